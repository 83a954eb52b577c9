"""The skill library: a content-addressed folder that only the host writes, and what a skill is made of."""

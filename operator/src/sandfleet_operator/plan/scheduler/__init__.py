"""Which claim gets which sandbox, and how many sandboxes each pool keeps: one event in, actions out."""

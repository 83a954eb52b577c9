"""Commands that show what was traced."""

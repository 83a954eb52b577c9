"""What sessions use, by the word of their executors."""

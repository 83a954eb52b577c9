"""What becomes of a session without its executor: after a crash, and while it is suspended."""

"""What to do, decided from values: no effects, and time and chance are arguments."""

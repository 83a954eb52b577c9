"""What to do, decided from values: the scheduler, pods, claims and sandboxes. Time and chance are arguments."""

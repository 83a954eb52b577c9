"""What waits for review in the sandboxes of a fleet, and the answers."""

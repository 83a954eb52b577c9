"""What to try of the network from inside a sandbox."""

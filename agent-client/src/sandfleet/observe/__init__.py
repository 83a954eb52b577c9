"""What can be observed of the client: traces."""

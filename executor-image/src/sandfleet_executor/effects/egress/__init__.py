"""The way out of the session: its connections are carried to the egress process, which alone has a network."""

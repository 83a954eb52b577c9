"""The way out of a session: a proxy on its loopback, through which programs reach hosts by name."""

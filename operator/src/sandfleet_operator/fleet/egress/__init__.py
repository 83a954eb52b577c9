"""The egress process: the one process through which sessions reach hosts, by name."""

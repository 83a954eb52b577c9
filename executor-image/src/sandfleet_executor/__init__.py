"""The daemon in a sandbox that runs an agent's code."""

__version__ = "0.1.0"

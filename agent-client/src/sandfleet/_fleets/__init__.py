"""Fleets: which one to use, how to reach it, and how to claim a sandbox from it."""

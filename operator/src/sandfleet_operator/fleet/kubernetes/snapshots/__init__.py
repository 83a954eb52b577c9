"""Snapshots of the sessions of a cluster: what callers may, and the snapshotters that do the work."""

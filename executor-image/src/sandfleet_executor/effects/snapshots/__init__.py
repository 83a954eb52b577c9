"""Snapshots: walks the workspace of a frozen session, and fills a workspace."""

"""Snapshots as callers of the fleet see them."""

"""Suspends a session, and brings back what was kept."""

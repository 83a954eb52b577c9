"""Leases: their renewals are written down, and who asks an executor for the last time hears of their ends."""

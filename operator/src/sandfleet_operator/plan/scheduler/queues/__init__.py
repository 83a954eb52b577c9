"""Whose claim comes next: quotas, cohorts, fair turns, gangs and sandboxes that the operator makes. Pure."""

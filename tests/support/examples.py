"""How many examples a property tries when it names a number of its own: the profile's share of it."""

import os

# Of HYPOTHESIS_PROFILE, as tests/conftest.py registers them.
SHARES = {"fast": 0.2, "ci": 1.0, "nightly": 10.0}


def examples(count: int) -> int:
    """The share of `count` for this run's profile, at least 5."""
    return max(5, round(count * SHARES[os.environ.get("HYPOTHESIS_PROFILE") or "ci"]))

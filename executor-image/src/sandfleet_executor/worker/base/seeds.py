"""The seed that a session asks for with SANDFLEET_SEED, so that its random numbers are the same in each run."""

import os
from hashlib import sha256

SEED = "SANDFLEET_SEED"
# As the least of the generators takes it.
MOST = (1 << 31) - 1


def seed() -> int | None:
    """A number below 2**31: as it is given, or made of another text; None where the session asks for none."""
    text = os.environ.get(SEED, "")
    if not text:
        return None
    if text.isascii() and text.isdecimal() and len(text) <= 10 and int(text) <= MOST:
        return int(text)
    return int.from_bytes(sha256(text.encode("utf-8", "surrogateescape")).digest()[:4], "big") & MOST

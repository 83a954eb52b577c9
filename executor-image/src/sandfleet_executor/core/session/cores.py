"""Which processors of the machine the code of a session is kept to, so that `nproc` tells it what its limit gives.

A quota alone is not seen by programs: they would start a thread for each processor, and wait for each other.
"""

import math
import zlib
from collections.abc import Collection


def cores(cpus: float, available: Collection[int], name: str) -> list[int]:
    """As many as the limit gives, rounded up; empty: all. `name` spreads the sandboxes over the machine.

    A limit of 1.5 on processors 0 to 3 gives two neighbours, as 3 and 0.
    """
    wanted, order = math.ceil(cpus), sorted(available)
    if not 0 < wanted < len(order):
        return []
    start = zlib.crc32(name.encode()) % len(order)
    return sorted((order * 2)[start : start + wanted])

"""Where a file has bytes, and where holes: by SEEK_DATA and SEEK_HOLE."""

import errno
import os

from sandfleet_executor.core.snapshots.entries import MAX_EXTENTS, Extents, whole

_BLOCK = 512


def extents_of(fd: int, status: os.stat_result) -> Extents:
    """Of an open file. One extent, where it has no holes or the file system does not tell them. Raises OSError."""
    size = status.st_size
    if status.st_blocks * _BLOCK >= size:
        return whole(size)
    found: list[tuple[int, int]] = []
    at = 0
    while at < size:
        try:
            start = os.lseek(fd, at, os.SEEK_DATA)
            end = min(size, os.lseek(fd, start, os.SEEK_HOLE))
        except OSError as error:
            if error.errno == errno.ENXIO:
                # Only a hole is left.
                break
            return whole(size)
        if start >= end:
            break
        if len(found) == MAX_EXTENTS - 1:
            end = size
        found.append((start, end - start))
        at = end
    return tuple(found)

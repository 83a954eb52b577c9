"""Tables of chunks: where the chunks of one stream are, in the order of the stream.

A table is cut into parts, each a chunk itself. A record is 52 bytes: the chunk's name, and five numbers.
"""

import struct
from collections.abc import Iterator, Sequence

from sandfleet_operator.plan.snapshots.errors import corrupt
from sandfleet_operator.plan.snapshots.manifest import Ref, is_ref

_RECORD = struct.Struct(">32s5I")
# Records of one part: 832 KiB.
PART = 16_384


def encode(refs: Sequence[Ref]) -> bytes:
    return b"".join(_RECORD.pack(ref.id, ref.source, ref.pack, ref.offset, ref.length, ref.size) for ref in refs)


def decode(data: bytes, sources: int) -> Iterator[Ref]:
    """Raises SnapshotError: it is no table, or names a source that is not one of so many."""
    if len(data) % _RECORD.size:
        raise corrupt("one of its tables is cut off")
    for values in _RECORD.iter_unpack(data):
        ref = Ref(*values)
        if not is_ref(ref, sources):
            raise corrupt("one of its tables has impossible numbers")
        yield ref

"""Cuts a stream into chunks where its content says so (FastCDC: Xia et al., IEEE TPDS 31(9), 2020)."""

from collections.abc import Iterator

from pyfastcdc import FastCDC

LEAST, USUAL, MOST = 64 << 10, 256 << 10, 1 << 20
# What is gathered before it is cut: the last piece of it is cut again with what follows.
_GATHERED = 4 * MOST


class Cutter:
    """The same bytes give the same chunks, in whatever pieces they come. `seed`: of 8 bytes or more, of the tenant."""

    def __init__(self, seed: bytes) -> None:
        number = int.from_bytes(seed[:8], "big") >> 1
        self._cdc = FastCDC(USUAL, min_size=LEAST, max_size=MOST, normalized_chunking=2, seed=number)
        self._pieces: list[bytes | memoryview] = []
        self._held = 0

    def feed(self, data: bytes | memoryview) -> Iterator[memoryview]:
        """The chunks that are complete. They stay valid."""
        if data:
            self._pieces.append(data)
            self._held += len(data)
        if self._held >= _GATHERED:
            whole = memoryview(b"".join(self._pieces))
            # Where the buffer ends the last chunk ends, too: that is no cut.
            *lengths, rest = (chunk.length for chunk in self._cdc.cut_buf(whole))
            self._pieces, self._held = [whole[len(whole) - rest :]], rest
            yield from _sliced(whole, lengths)

    def end(self) -> Iterator[memoryview]:
        """The rest. The cutter can begin another stream."""
        whole = memoryview(b"".join(self._pieces))
        self._pieces, self._held = [], 0
        if whole:
            yield from _sliced(whole, [chunk.length for chunk in self._cdc.cut_buf(whole)])


def _sliced(whole: memoryview, lengths: list[int]) -> Iterator[memoryview]:
    start = 0
    for length in lengths:
        yield whole[start : start + length]
        start += length

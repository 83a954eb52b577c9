"""JournalService."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import grpc
from sandfleet_api.executor.v1 import journal_pb2 as pb
from sandfleet_api.executor.v1 import journal_pb2_grpc

from sandfleet_executor.core.errors import BusyError
from sandfleet_executor.core.journal import records
from sandfleet_executor.effects.journal.journal import Journal
from sandfleet_executor.servicers.errors import ApiError

MAX_READERS = 8


class JournalService(journal_pb2_grpc.JournalServiceServicer):
    def __init__(self, journal: Journal, *, lasting: bool) -> None:
        """`lasting`: it lies on the volume of the workspace."""
        self._journal = journal
        self._lasting = lasting
        self._readers = 0

    async def Head(self, request: pb.HeadRequest, context: Any) -> pb.HeadResponse:
        await self._journal.settled()
        status = self._journal.status(request.pod_uid)
        return pb.HeadResponse(
            number=status.head.number,
            hash=status.head.hash,
            anchor_number=status.anchor.number,
            anchor_hash=status.anchor.hash,
            pod_uid=status.pod,
            session=status.session,
            missed_records=status.missed,
            missed_reason=status.reason,
            lasting=self._lasting,
        )

    async def Read(
        self, request: pb.JournalServiceReadRequest, context: Any
    ) -> AsyncIterator[pb.JournalServiceReadResponse]:
        if self._readers >= MAX_READERS:
            raise BusyError(f"cannot read the journal: {MAX_READERS} are reading")
        await self._journal.settled()
        parts = self._journal.read(request.from_number, request.pod_uid)
        self._readers += 1
        try:
            async for lines, following in _pages(parts, request.most_bytes):
                yield pb.JournalServiceReadResponse(lines=lines, next_number=following)
        finally:
            self._readers -= 1


async def _pages(parts: Iterator[bytes], most: int) -> AsyncIterator[tuple[bytes, int]]:
    """Lines, and where to go on where `most` bytes end them; 0 for no end."""
    rest, lines = most, await asyncio.to_thread(_next, parts)
    while lines:
        later = await asyncio.to_thread(_next, parts)
        rest -= len(lines)
        if most and rest <= 0 and later:
            yield lines, _number(later)
            return
        yield lines, 0
        lines = later


def _number(lines: bytes) -> int:
    """Of the first of some lines."""
    try:
        return records.read(lines[: lines.index(b"\n")]).head.number
    except ValueError as error:
        raise ApiError(
            grpc.StatusCode.DATA_LOSS, "JournalDamaged", "cannot read the journal: a line is none"
        ) from error


def _next(parts: Iterator[bytes]) -> bytes:
    try:
        return next(parts, b"")
    except OSError as error:
        message = f"cannot read the journal: {error.strerror or error}"
        raise ApiError(grpc.StatusCode.DATA_LOSS, "JournalDamaged", message) from error

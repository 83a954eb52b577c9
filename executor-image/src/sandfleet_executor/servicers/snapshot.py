"""SnapshotService."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager
from typing import Any

import grpc
from sandfleet_api.executor.v1 import snapshot_pb2 as pb
from sandfleet_api.executor.v1 import snapshot_pb2_grpc

from sandfleet_executor.core.snapshots.entries import Totals
from sandfleet_executor.core.snapshots.session import SnapshotRunningError
from sandfleet_executor.effects.snapshots.restorer import Restorer
from sandfleet_executor.effects.snapshots.saver import Saver, Saving
from sandfleet_executor.effects.snapshots.spool import Piece
from sandfleet_executor.servicers.convert import snapshots as convert
from sandfleet_executor.servicers.errors import ApiError, invalid, translated

# Of one message.
MAX_ENTRIES, MAX_DATA_BYTES = 1000, 1 << 20


class SnapshotService(snapshot_pb2_grpc.SnapshotServiceServicer):
    """One snapshot or restore at a time."""

    def __init__(self, saver: Saver, restorer: Restorer) -> None:
        self._saver = saver
        self._restorer = restorer
        self._running = ""

    async def Save(self, request: pb.SaveRequest, _context: Any) -> AsyncIterator[pb.SaveResponse]:
        with translated("save", b"/workspace"), self._alone("saved"):
            async with self._saving(request) as saving:
                totals = convert.totals_message(saving.totals)
                yield pb.SaveResponse(begun=totals)
                async for entries, data in saving.pieces:
                    yield pb.SaveResponse(piece=convert.piece_message(entries, data))
                facts = convert.facts_message(saving.found)
                yield pb.SaveResponse(end=pb.SaveResponse.End(facts=facts, totals=totals))

    async def Unhold(self, _request: pb.UnholdRequest, _context: Any) -> pb.UnholdResponse:
        self._saver.unhold()
        return pb.UnholdResponse()

    async def Restore(self, requests: AsyncIterator[pb.RestoreRequest], _context: Any) -> pb.RestoreResponse:
        with translated("restore", b"/workspace"), self._alone("restored"):
            first = await anext(aiter(requests), None)
            if first is None or first.WhichOneof("part") != "header":
                raise invalid("InvalidStream", "cannot restore: the stream has to begin with a header")
            wanted = convert.wanted(first.header)
            return convert.restored_message(await self._restorer.restore(wanted, pieces_of(requests)))

    def _saving(self, request: pb.SaveRequest) -> AbstractAsyncContextManager[Saving]:
        if request.hold:
            return self._saver.save_last(force=request.force, unused=request.unused, base=request.base)
        return self._saver.save(variables=not request.without_variables, base=request.base)

    @contextlib.contextmanager
    def _alone(self, doing: str) -> Iterator[None]:
        """Raises SnapshotRunningError."""
        if self._running:
            raise SnapshotRunningError(f"cannot begin: a snapshot is being {self._running}")
        self._running = doing
        try:
            yield
        finally:
            self._running = ""


async def pieces_of(requests: AsyncIterator[pb.RestoreRequest]) -> AsyncIterator[Piece | Totals]:
    """Raises ApiError and InvalidEntry."""
    async for request in requests:
        match request.WhichOneof("part"):
            case "piece":
                piece = request.piece
                if len(piece.entries) > MAX_ENTRIES or len(piece.data) > MAX_DATA_BYTES:
                    raise invalid("InvalidStream", f"cannot restore: a piece has over {MAX_ENTRIES} entries or 1 MiB")
                yield convert.piece_of(piece)
            case "end":
                yield Totals(request.end.entries, request.end.bytes)
                return
            case _:
                why = "after the header only pieces may come, then an end"
                raise invalid("InvalidStream", f"cannot restore: {why}")
    raise ApiError(grpc.StatusCode.CANCELLED, "StreamBroken", "cannot restore: it ended before its end was said")

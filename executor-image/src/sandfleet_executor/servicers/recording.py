"""The one place that each call which changes the session passes: it has its record, and ends with the journal's head.

The table is core/rpcs.py.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
from collections.abc import AsyncIterator
from typing import Any

from sandfleet_executor.core.rpcs import Entry, Rpc
from sandfleet_executor.effects.journal.journal import Journal
from sandfleet_executor.servicers.convert import journal as convert
from sandfleet_executor.servicers.handlers import Behaviour, Handler, behaving, behaviour_of, is_upload

HEAD_KEY = "sandfleet-journal-head"
MISSED_KEY = "sandfleet-journal-missed"
# Of an upload: what stands in its record as a whole.
CONTENT_BYTES = 256 << 10


class CallRecorder:
    """The layer next to the servicers: it records what runs, after a reviewer."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def recorded(self, handler: Handler, rpc: Rpc) -> Handler:
        """Calls that only read have no record."""
        if rpc.entry is Entry.READS:
            return handler
        behaviour = behaviour_of(handler)
        if handler.unary_unary:
            return behaving(handler, self._unary(behaviour, rpc))
        if is_upload(handler):
            return behaving(handler, self._upload(behaviour, rpc))
        return behaving(handler, self._streamed(behaviour)) if handler.unary_stream else handler

    def _unary(self, behaviour: Behaviour, rpc: Rpc) -> Behaviour:
        async def recorded(request: Any, context: Any) -> Any:
            with self._failing(rpc, request):
                response = await behaviour(request, context)
            if rpc.entry is Entry.CALL:
                self._journal.put(*convert.record(rpc, request, response))
            await self._tell(context)
            return response

        return recorded

    def _upload(self, behaviour: Behaviour, rpc: Rpc) -> Behaviour:
        async def recorded(requests: AsyncIterator[Any], context: Any) -> Any:
            upload = Upload(requests)
            with self._failing(rpc, upload):
                response = await behaviour(upload, context)
            self._journal.put(*convert.record(rpc, upload.header, response, upload.content()))
            await self._tell(context)
            return response

        return recorded

    def _streamed(self, behaviour: Behaviour) -> Behaviour:
        async def recorded(request: Any, context: Any) -> AsyncIterator[Any]:
            async with contextlib.aclosing(behaviour(request, context)) as responses:
                async for response in responses:
                    yield response
            await self._tell(context)

        return recorded

    @contextlib.contextmanager
    def _failing(self, rpc: Rpc, request: Any) -> Any:
        """A call that fails half-way has a record, too."""
        try:
            yield
        except BaseException as error:
            if rpc.partial:
                content = request.content() if isinstance(request, Upload) else None
                asked = request.header if isinstance(request, Upload) else request
                if asked is not None:
                    kind, body = convert.record(rpc, asked, None, content)
                    self._journal.put(kind, {**body, "failed": getattr(error, "reason", type(error).__name__)})
            raise

    async def _tell(self, context: Any) -> None:
        """The head, once all that came before is written."""
        await self._journal.settled()
        told = [(HEAD_KEY, str(self._journal.head))]
        if (missed := self._journal.missed).count:
            told.append((MISSED_KEY, f"{missed.count}:{missed.reason}"))
        context.set_trailing_metadata(tuple(told))


class Upload:
    """The messages of an upload, and what they bring."""

    def __init__(self, requests: AsyncIterator[Any]) -> None:
        self.header: Any = None
        self._requests = requests
        self._hash = hashlib.sha256()
        self._size = 0
        self._kept = bytearray()

    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    async def __anext__(self) -> Any:
        request = await anext(aiter(self._requests))
        match request.WhichOneof("part"):
            case "header" if self.header is None:
                self.header = request.header
            case "data":
                # Each look at a field of bytes copies it.
                data = request.data
                self._hash.update(data)
                self._size += len(data)
                if self._size <= CONTENT_BYTES:
                    self._kept += data
        return request

    def content(self) -> dict[str, Any]:
        whole = self._size <= CONTENT_BYTES
        content = base64.b64encode(self._kept).decode() if whole else None
        return {"size": self._size, "sha256": self._hash.hexdigest(), "content": content}

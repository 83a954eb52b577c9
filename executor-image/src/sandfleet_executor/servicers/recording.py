"""The one place that each call which changes the session passes: it has its record, and ends with the journal's head.

The table is core/journal/methods.py.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeAlias

import grpc
import grpc.aio

from sandfleet_executor.core.journal.methods import Entry, entry_of
from sandfleet_executor.effects.journal.journal import Journal
from sandfleet_executor.servicers.convert import journal as convert

Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"

HEAD_KEY = "sandfleet-journal-head"
MISSED_KEY = "sandfleet-journal-missed"
# Of an upload: what stands in its record as a whole.
CONTENT_BYTES = 256 << 10
# They may have changed something although they failed.
PARTIAL = (
    "FilesystemService/Extract",
    "FilesystemService/Remove",
    "InterpreterService/RestoreState",
    "ServiceManagerService/Apply",
)


class JournalInterceptor(grpc.aio.ServerInterceptor):  # type: ignore[type-arg] # generic in the stubs, not when it runs
    """Put it last, next to the servicers: it records what runs, after a reviewer."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        # One entry for each method that exists: bounded by the API.
        self._recorded: dict[str, tuple[Any, Handler]] = {}

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler:
        handler = await continuation(handler_call_details)
        method = handler_call_details.method
        # The type says otherwise, but an unknown method comes as None and has to stay None (UNIMPLEMENTED).
        if handler is None or entry_of(method) is Entry.READS:
            return handler
        known, recorded = self._recorded.get(method, (None, None))
        if recorded is None or known is not handler:
            recorded = self._record(handler, method)
            self._recorded[method] = (handler, recorded)
        return recorded

    def _record(self, handler: Handler, method: str) -> Handler:
        codec = (handler.request_deserializer, handler.response_serializer)
        if handler.unary_unary:
            return grpc.unary_unary_rpc_method_handler(self._unary(handler.unary_unary, method), *codec)
        if handler.stream_unary:
            return grpc.stream_unary_rpc_method_handler(self._upload(handler.stream_unary, method), *codec)
        if handler.unary_stream:
            return grpc.unary_stream_rpc_method_handler(self._streamed(handler.unary_stream), *codec)
        return handler

    def _unary(self, behaviour: Callable[..., Awaitable[Any]], method: str) -> Callable[..., Awaitable[Any]]:
        name = method.rpartition(".")[2]
        records = entry_of(method) is Entry.CALL

        async def recorded(request: Any, context: Any) -> Any:
            with self._failing(name, request):
                response = await behaviour(request, context)
            if records:
                self._journal.put(*convert.record(name, request, response))
            await self._tell(context)
            return response

        return recorded

    def _upload(self, behaviour: Callable[..., Awaitable[Any]], method: str) -> Callable[..., Awaitable[Any]]:
        name = method.rpartition(".")[2]

        async def recorded(requests: AsyncIterator[Any], context: Any) -> Any:
            upload = Upload(requests)
            with self._failing(name, upload):
                response = await behaviour(upload, context)
            self._journal.put(*convert.record(name, upload.header, response, upload.content()))
            await self._tell(context)
            return response

        return recorded

    def _streamed(self, behaviour: Callable[..., Any]) -> Callable[..., AsyncIterator[Any]]:
        async def recorded(request: Any, context: Any) -> AsyncIterator[Any]:
            async with contextlib.aclosing(behaviour(request, context)) as responses:
                async for response in responses:
                    yield response
            await self._tell(context)

        return recorded

    @contextlib.contextmanager
    def _failing(self, name: str, request: Any) -> Any:
        """A call that fails half-way has a record, too."""
        try:
            yield
        except BaseException as error:
            if name in PARTIAL:
                content = request.content() if isinstance(request, Upload) else None
                asked = request.header if isinstance(request, Upload) else request
                if asked is not None:
                    kind, body = convert.record(name, asked, None, content)
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

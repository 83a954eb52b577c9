"""Both APIs over HTTP: each call is read, passed on by gRPC and answered. The descriptors are the only list of RPCs."""

from __future__ import annotations

import asyncio
import json
import os
import pkgutil
import re
from contextlib import AsyncExitStack, suppress
from functools import cache
from importlib import import_module
from typing import Any, Self

import sandfleet_api.executor.v1
import sandfleet_api.fleet.v1
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from sandfleet import __version__
from sandfleet._fleets import embedded
from sandfleet._fleets.discovery import default_fleet, find_fleet_of
from sandfleet._fleets.fleet import AsyncFleet
from sandfleet._wire import api
from sandfleet._wire.link import AnyMetadata
from sandfleet._wire.status import code_of, detail
from sandfleet.doors.http.forms import Failure, Form, Wish, form
from sandfleet.doors.http.headers import Asked, Headers
from sandfleet.doors.http.openapi import document
from sandfleet.doors.http.previews import Receive, Send
from sandfleet.doors.http.sandboxes import Sandboxes
from sandfleet.errors import SandboxEnded, SandfleetError

_PACKAGES = (sandfleet_api.executor.v1, sandfleet_api.fleet.v1)
_EXECUTOR = "sandfleet_api.executor."
_EOF: object = api.grpc.aio.EOF  # type: ignore[attr-defined]  # the stubs lack it
_TRACEPARENT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")
# Digits of a time limit, and its units in seconds.
_MOST_DIGITS = 10
_SECONDS = {"H": 3600.0, "M": 60.0, "S": 1.0, "m": 1e-3, "u": 1e-6, "n": 1e-9}


@cache
def services() -> dict[str, ServiceDescriptor]:
    """Return all services of both APIs by their names."""
    names = [
        f"{package.__name__}.{module.name}"
        for package in _PACKAGES
        for module in pkgutil.iter_modules(package.__path__)
        if module.name.endswith("_pb2")
    ]
    files = [import_module(name).DESCRIPTOR for name in names]
    return {service.full_name: service for file in files for service in file.services_by_name.values()}


@cache
def described() -> bytes:
    """Return the OpenAPI document of all services."""
    return json.dumps(document(services().values(), __version__, _EXECUTOR)).encode()


def called(path: str) -> tuple[str, MethodDescriptor]:
    """Return the sandbox's id ("" for calls to the fleet) and the RPC that a path names. Raises Failure."""
    parts = path.lstrip("/").rsplit("/", 2)
    sandbox_id, service, name = ("", "", "", *parts)[-3:]
    method = services()[service].methods_by_name.get(name) if service in services() else None
    if method is None:
        paths = "/SERVICE/METHOD, for executors /SANDBOX_ID/SERVICE/METHOD, and /mcp of `sandfleet serve --mcp`"
        message = f"cannot call {path[:200]!r}: paths are {paths}"
        raise Failure("unimplemented", message, "Unimplemented", status=404)
    if bool(sandbox_id) != service.startswith(_EXECUTOR):
        path = f"/{service}/{name}" if sandbox_id else f"/SANDBOX_ID/{service}/{name}"
        raise Failure("unimplemented", f"cannot call {name}: its path is {path}", "Unimplemented", status=404)
    if method.client_streaming and method.server_streaming:
        message = f"cannot call {name} over HTTP/1.1: both sides would speak at once; use gRPC"
        raise Failure("unimplemented", message, "Unimplemented")
    return sandbox_id, method


class Rpcs:
    """Answers calls of callers who were let in before."""

    def __init__(self, sandboxes: Sandboxes) -> None:
        """Share connections to sandboxes with previews."""
        self._sandboxes = sandboxes
        # Rpcs holds it, so that its connection lasts.
        self._own: AsyncFleet | None = None
        # These futures wait for the callers of calls that run.
        self._running: set[asyncio.Future[None]] = set()

    def end(self) -> None:
        """End all calls that run, and tell their callers."""
        for up in self._running:
            up.cancel()

    async def answer(self, asked: Asked, receive: Receive, send: Send, fields: Headers) -> None:
        """Answer a call; `fields` are headers of the answer."""
        answer = _Answer(send, fields)
        try:
            sandbox_id, method = called(asked.path)
            answer.form = form(method, _wish(asked))
            async with asyncio.timeout(_limit(asked)):
                requests = _Requests(receive, answer.form, GetMessageClass(method.input_type))
                if not await self._passed_on(sandbox_id, _Call(method, requests, asked), answer):
                    return
        except (Failure, SandfleetError, api.aio.AioRpcError) as error:
            await answer.end(_failure(error))
        except TimeoutError:
            why = "the caller's time limit is over"
            await answer.end(Failure("deadline_exceeded", f"cannot answer: {why}", "DeadlineExceeded"))
        else:
            await answer.end(None)

    async def _passed_on(self, sandbox_id: str, call: _Call, answer: _Answer) -> bool:
        """Pass requests and answers on as they come; return whether the caller is still there at the end."""
        up = asyncio.ensure_future(call.requests.run())
        down = asyncio.ensure_future(self._down(sandbox_id, call, answer))
        self._running.add(up)
        try:
            await asyncio.wait({up, down}, return_when=asyncio.FIRST_COMPLETED)
            is_there = down.done()
            if up.cancelled() and not is_there:
                raise Failure("unavailable", "cannot go on with the call: the server ends", "Draining", retryable=True)
            (down if is_there else up).result()
            return is_there
        finally:
            self._running.discard(up)
            up.cancel()
            down.cancel()
            await asyncio.gather(up, down, return_exceptions=True)

    async def _down(self, sandbox_id: str, call: _Call, answer: _Answer) -> None:
        await call.prepare()
        async with AsyncExitStack() as stack:
            if sandbox_id:
                link = await stack.enter_async_context(self._sandboxes.linked(sandbox_id))
                rpc, message = await link.run(lambda to: call.begin(to.channel, to.metadata()), resend=False)
            else:
                to = (await self._fleet(call.request)).connection
                await to.reach()
                rpc, message = await call.begin(to.channel, await to.metadata())
            stack.callback(rpc.cancel)
            while message is not _EOF:
                await answer.message(message)
                message = _EOF if call.is_unary else await rpc.read()

    async def _fleet(self, request: Message | None) -> AsyncFleet:
        """Return the fleet of the sandbox that a request names, else the one that the environment names."""
        if sandbox_id := getattr(request, "sandbox_id", ""):
            # The fleet says what a call means for a sandbox that no fleet has.
            with suppress(SandboxEnded):
                return await find_fleet_of(sandbox_id)
        self._own = await default_fleet(isolation=embedded.default_isolation())
        return self._own


class _Requests:
    """The requests of a call, as they come."""

    def __init__(self, receive: Receive, form: Form, kind: type[Message]) -> None:
        self._receive = receive
        self._form = form
        self._kind = kind
        # None follows the last one. A sandbox that does not read stops the caller.
        self._queue: asyncio.Queue[Message | None] = asyncio.Queue(1)

    async def run(self) -> None:
        """Read them, and return when the caller has gone. Raises Failure."""
        while (event := await self._receive())["type"] == "http.request":
            is_last = not event.get("more_body")
            for data in self._form.messages(event.get("body", b""), is_last=is_last):
                await self._queue.put(self._form.decoded(data, self._kind))
            if is_last:
                await self._queue.put(None)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        if (request := await self._queue.get()) is None:
            raise StopAsyncIteration
        return request


class _Call:
    """A call that is passed on; those with a stream have streams both ways, which is the same on the wire."""

    def __init__(self, method: MethodDescriptor, requests: _Requests, asked: Asked) -> None:
        self._method = method
        self.requests = requests
        self._asked = asked
        self.is_unary = not (method.client_streaming or method.server_streaming)
        # The only one, unless the method takes a stream.
        self.request: Message | None = None
        self._is_begun = False

    async def prepare(self) -> None:
        """Wait for the request, if there is one only. Raises Failure."""
        if self._method.client_streaming:
            return
        async for request in self.requests:
            if self.request is not None:
                raise Failure(
                    "unimplemented", f"cannot call {self._method.name}: it takes one request", "InvalidRequest"
                )
            self.request = request
        if self.request is None:
            raise Failure("unimplemented", f"cannot call {self._method.name} without a request", "InvalidRequest")

    async def begin(self, channel: api.aio.Channel, metadata: AnyMetadata) -> tuple[Any, Any]:
        """Return the call at a server, and its first answer. Raises AioRpcError, Failure."""
        if self._is_begun and self.request is None:
            message = f"cannot call {self._method.name} again: the beginning of its requests has gone"
            raise Failure("unavailable", message, "Broken")
        self._is_begun = True
        opened: Any = (channel.unary_unary if self.is_unary else channel.stream_stream)(
            f"/{self._method.containing_service.full_name}/{self._method.name}",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=GetMessageClass(self._method.output_type).FromString,
        )
        parent = self._asked.first(b"traceparent")
        trace = [("traceparent", parent)] if _TRACEPARENT.fullmatch(parent) else []
        more = {"metadata": (*metadata, *trace), "timeout": _limit(self._asked)}
        if self.is_unary:
            rpc = opened(self.request, **more)
            return rpc, await rpc
        rpc = opened(self.requests if self.request is None else iter([self.request]), **more)
        return rpc, await rpc.read()


class _Answer:
    """The answer to a call, in the caller's form."""

    def __init__(self, send: Send, fields: Headers) -> None:
        self._send = send
        self._fields = fields
        self._is_begun = False
        # An answer that is no stream is sent in one piece, when its call has ended well.
        self._whole = b""
        self.form = Form("json", "application/json")

    async def message(self, message: Message) -> None:
        """Send a message."""
        body = self.form.message(self.form.encoded(message))
        if not self.form.is_stream:
            self._whole = body
            return
        await self._begin(200, self.form.fields)
        await self._send({"type": "http.response.body", "body": body, "more_body": True})

    async def end(self, failure: Failure | None) -> None:
        """Send the end, and what has failed."""
        if failure and self.form.has_status and not self._is_begun:
            status = failure.status
            fields = failure.fields
            body = failure.body
        else:
            status = 200
            fields = self.form.fields
            body = self._whole + self.form.end(failure)
        await self._begin(status, [*fields, (b"content-length", b"%d" % len(body))])
        await self._send({"type": "http.response.body", "body": body})

    async def _begin(self, status: int, fields: Headers) -> None:
        if not self._is_begun:
            self._is_begun = True
            await self._send({"type": "http.response.start", "status": status, "headers": [*self._fields, *fields]})


def _failure(error: Failure | SandfleetError | api.aio.AioRpcError) -> Failure:
    if isinstance(error, Failure):
        return error
    cause = error.__cause__ if isinstance(error, SandfleetError) else error
    if isinstance(cause, api.aio.AioRpcError):
        told = detail(cause) or api.common.ErrorDetail()
        return Failure.of(cause.code().name, told.message or cause.details() or "", told)
    assert isinstance(error, SandfleetError)
    subject = os.fsencode(error.subject)
    told = api.common.ErrorDetail(
        reason=error.reason, message=error.message, retryable=error.retryable, subject=subject
    )
    return Failure.of(code_of(error), error.message, told)


def _wish(asked: Asked) -> Wish:
    of_messages = asked.first(b"connect-content-encoding") or asked.first(b"grpc-encoding")
    of_body = asked.first(b"content-encoding")
    return Wish(asked.first(b"content-type"), asked.first(b"accept"), of_body, of_messages)


def _limit(asked: Asked) -> float | None:
    """Return the seconds that the caller gives a call; None: all. Raises Failure."""
    text, unit = asked.first(b"connect-timeout-ms"), "m"
    if not text and (web := asked.first(b"grpc-timeout")):
        text, unit = web[:-1], web[-1]
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS and unit in _SECONDS):
        raise Failure("invalid_argument", f"cannot use the time limit {text[:20]!r}: it is no number", "InvalidRequest")
    return int(text) * _SECONDS[unit]

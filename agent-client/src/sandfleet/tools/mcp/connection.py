"""The connection to one MCP server: made once, made again when it is lost, ended at the end."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Self, TextIO

from sandfleet.errors import PreconditionFailed, UnavailableError

if TYPE_CHECKING:
    from mcp import Client
    from mcp.types import CallToolResult
    from mcp.types import Tool as Described

# How long a server may take to start and to say which tools it has, in seconds.
START_SECONDS = 60.0
# As MCP's own client has them: of a request, and of the answer to one.
_HTTP_SECONDS, _HTTP_READ_SECONDS = 30.0, 300.0
# What hindered the connection for the call that is made here: MCP's client sends it in the caller's context.
_UNSENT: ContextVar[list[Exception] | None] = ContextVar("unsent", default=None)
# Of the log of a program, in bytes, for each time that it is started.
MAX_LOG = 1 << 20
_LOG_PIECE = 64 << 10
# How long the rest of a log may take when its program has ended, in seconds.
_LOG_SECONDS = 1.0
# Between two attempts to hear of changes, in seconds.
LISTEN_SECONDS = 1.0
# Pages of one list of tools.
MAX_PAGES = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where a server is: a program that is started, or a URL. What may be secret is not shown."""

    command: tuple[str, ...] = ()
    env: Mapping[str, str] | None = field(default=None, repr=False)
    cwd: str | None = None
    url: str = ""
    headers: Mapping[str, str] | None = field(default=None, repr=False)

    def __str__(self) -> str:
        return f"MCP server {self.url or self.command[0]!r}"


class Life:
    """One connection. MCP's client has to end in the task in which it began: that is `_live`."""

    def __init__(self, address: Address, changed: Callable[[], None]) -> None:
        """`changed` is called when the server says that it has other tools."""
        self._address = address
        self._changed = changed
        self._over = asyncio.Event()
        self._ready: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        self._living = asyncio.ensure_future(self._live())

    @property
    def is_over(self) -> bool:
        """Whether the server has gone, or the end was asked for."""
        return self._over.is_set()

    async def client(self) -> Client:
        """Raises what hindered the start."""
        return await asyncio.shield(self._ready)

    def end(self) -> None:
        """Let it end; `ended` waits for it."""
        self._over.set()

    async def ended(self) -> None:
        """End it, and the program with it. Never raises."""
        self.end()
        if not self._ready.done():
            self._living.cancel()
        await asyncio.gather(self._living, return_exceptions=True)

    async def _live(self) -> None:
        from mcp import Client

        try:
            transport = _noticed(_transport(self._address), self._over)
            async with Client(transport, message_handler=self._heard) as client:
                self._ready.set_result(client)
                listening = asyncio.ensure_future(self._listen(client))
                try:
                    await self._over.wait()
                finally:
                    listening.cancel()
                    await asyncio.gather(listening, return_exceptions=True)
        except BaseException as error:
            if not self._ready.done():
                self._ready.set_exception(_first(error))
                # Also where no caller waits for it any more.
                self._ready.exception()
            raise
        finally:
            self._over.set()

    async def _heard(self, message: object) -> None:
        """What servers say by themselves up to the protocol of 2025-11-25."""
        from mcp.types import ToolListChangedNotification

        if isinstance(message, ToolListChangedNotification):
            self._changed()

    async def _listen(self, client: Client) -> None:
        """From 2026-07-28 on they say it to those who listen; a stream that was lost may have lost a change."""
        from mcp import MCPError
        from mcp.client.subscriptions import ListenNotSupportedError, SubscriptionLost

        while True:
            try:
                async with client.listen(tools_list_changed=True) as changes:
                    async for _ in changes:
                        self._changed()
            except SubscriptionLost:
                await asyncio.sleep(LISTEN_SECONDS)
                self._changed()
            except (ListenNotSupportedError, MCPError):
                return
            else:
                return


class Connection:
    """To one server. Raises UnavailableError where it does not start."""

    def __init__(self, address: Address) -> None:
        self._address = address
        # Set when the server may have other tools than it has described.
        self.changed = asyncio.Event()
        self._life: Life | None = None
        self._turn = asyncio.Lock()
        self._closed = False

    async def described(self) -> list[Described]:
        """The tools that the server has."""
        client = (await self.living())[0]
        found: list[Described] = []
        cursor: str | None = None
        try:
            async with asyncio.timeout(START_SECONDS):
                for _ in range(MAX_PAGES):
                    page = await client.list_tools(cursor=cursor)
                    found += page.tools
                    cursor = page.next_cursor
                    if cursor is None:
                        break
        except Exception as error:
            raise UnavailableError(f"cannot list the tools of {self._address}: {_said(error)}") from error
        return found

    async def call(self, name: str, arguments: Mapping[str, Any]) -> CallToolResult:
        """Call a tool. Raises UnavailableError where the server was not reached, and what MCP's client raises."""
        from mcp import MCPError
        from mcp.types import CONNECTION_CLOSED

        client, life = await self.living()
        unsent: list[Exception] = []
        _UNSENT.set(unsent)
        try:
            return await client.call_tool(name, dict(arguments))
        except MCPError as error:
            if unsent:
                life.end()
                raise UnavailableError(f"cannot reach {self._address}: {_said(unsent[0])}") from error
            # A server that was started anew does not know the session of the one before it.
            if error.code == CONNECTION_CLOSED or error.message == "Session terminated":
                life.end()
            raise

    async def living(self) -> tuple[Client, Life]:
        """The connection, which is made where there is none."""
        async with self._turn:
            if self._closed:
                raise UnavailableError(f"cannot reach {self._address}: it was closed")
            if self._life is not None and self._life.is_over:
                await self._life.ended()
                self._life = None
                # One that was started anew may have others.
                self.changed.set()
            if self._life is None:
                self._life = Life(self._address, self.changed.set)
            life = self._life
            try:
                async with asyncio.timeout(START_SECONDS):
                    return await life.client(), life
            except Exception as error:
                await life.ended()
                raise UnavailableError(f"cannot start {self._address}: {_said(error)}") from error

    async def close(self) -> None:
        """End the connection, and the program with it."""
        self._closed = True
        if self._life is not None:
            await self._life.ended()


def require_mcp() -> None:
    """Raises PreconditionFailed where the package is missing."""
    try:
        import jsonschema
        import mcp
    except ImportError as error:
        why = "the package mcp is not installed; it comes with the extra sandfleet[mcp]"
        raise PreconditionFailed(f"cannot use MCP servers: {why}", reason="McpMissing") from error
    assert jsonschema
    assert mcp


@asynccontextmanager
async def _transport(address: Address) -> AsyncGenerator[Any]:
    """The streams to the server. A program's log goes to this process's standard error."""
    from mcp import StdioServerParameters, stdio_client
    from mcp.client.streamable_http import streamable_http_client

    if address.url:
        async with _http(address) as http, streamable_http_client(address.url, http_client=http) as streams:
            yield streams
        return
    env = None if address.env is None else dict(address.env)
    parameters = StdioServerParameters(
        command=address.command[0], args=list(address.command[1:]), env=env, cwd=address.cwd
    )
    async with _log() as log, stdio_client(parameters, errlog=log) as streams:
        yield streams


@asynccontextmanager
async def _log() -> AsyncGenerator[TextIO]:
    """What a program writes its log to: the first of it goes to standard error, the rest is dropped."""
    reading, writing = os.pipe()
    reader = asyncio.StreamReader()
    make = partial(asyncio.StreamReaderProtocol, reader)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(make, os.fdopen(reading, "rb"))
    copying = asyncio.ensure_future(_copied(reader))
    try:
        with os.fdopen(writing, "w") as log:
            yield log
        # A process that the program has left may hold the other end.
        await asyncio.wait((copying,), timeout=_LOG_SECONDS)
    finally:
        copying.cancel()
        await asyncio.gather(copying, return_exceptions=True)
        transport.close()


async def _copied(reader: asyncio.StreamReader) -> None:
    left = MAX_LOG
    while data := await reader.read(_LOG_PIECE):
        if left > 0:
            piece = data[:left] if len(data) < left else data[:left] + b"\n(the rest of this log is dropped)\n"
            left -= len(data)
            # Not sys.stderr, which is no file in a notebook.
            await asyncio.to_thread(os.write, 2, piece)


def _http(address: Address) -> Any:
    """A client that notes which calls no connection took."""
    import httpx2

    class Noting(httpx2.AsyncHTTPTransport):
        async def handle_async_request(self, request: Any) -> Any:
            try:
                return await super().handle_async_request(request)
            except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
                if (unsent := _UNSENT.get()) is not None:
                    unsent.append(error)
                raise

    headers, timeout = dict(address.headers or {}), httpx2.Timeout(_HTTP_SECONDS, read=_HTTP_READ_SECONDS)
    return httpx2.AsyncClient(headers=headers, timeout=timeout, transport=Noting())


@asynccontextmanager
async def _noticed(transport: Any, over: asyncio.Event) -> AsyncGenerator[Any]:
    """The transport, which sets the event when the server has gone."""
    async with transport as (reading, writing):
        yield _Reading(reading, over), writing


class _Reading:
    """A stream of MCP's messages."""

    def __init__(self, stream: Any, over: asyncio.Event) -> None:
        self._stream = stream
        self._over = over

    @property
    def last_context(self) -> Any:
        return getattr(self._stream, "last_context", None)

    async def receive(self) -> Any:
        return await self._stream.receive()

    async def aclose(self) -> None:
        await self._stream.aclose()

    def __aiter__(self) -> _Reading:
        return self

    async def __anext__(self) -> Any:
        try:
            return await self._stream.__anext__()
        except BaseException:  # The end, too, is an exception.
            self._over.set()
            raise

    async def __aenter__(self) -> Self:
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> Any:
        return await self._stream.__aexit__(*error)


def _first(error: BaseException) -> BaseException:
    """What hindered, out of the groups that tasks put around it; the future takes no cancellation."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error if isinstance(error, Exception) else RuntimeError("it was stopped")


def _said(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return f"it has not answered within {START_SECONDS:g} s"
    return str(error) or type(error).__name__

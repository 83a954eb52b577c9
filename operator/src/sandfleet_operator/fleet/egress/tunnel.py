"""A tunnel to a host: what goes through it has to ask for that very host, by TLS or by HTTP."""

import asyncio
import contextlib
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable

from sandfleet_operator.api.egress import canonical
from sandfleet_operator.fleet.egress.peer import Peer, carrying
from sandfleet_operator.fleet.egress.sessions import Connection
from sandfleet_operator.plan.egress import hello
from sandfleet_operator.plan.egress.refusals import Place, RefusedError, Why

# The beginning of a request of HTTP/1. The preface of HTTP/2 is none: its requests are not looked at one by one.
REQUEST = re.compile(rb"(?!PRI )[A-Z]{3,16} ")
LONGEST_METHOD = 17

Work = asyncio.Future[None]
Serve = Callable[[Peer], Awaitable[None]]


async def run(inner: Peer, connection: Connection, http: Serve, https: Serve) -> None:
    """Carries TLS for the host both ways until both ends have said all.

    `http` serves a client that speaks HTTP, and `https` one that speaks TLS, where the session ends it here.

    Raises RefusedError, TimeoutError and OSError.
    """
    bounds, outer = connection.session.bounds, connection.outer
    async with asyncio.timeout(bounds.opening):
        first = await _first(inner, connection.place)
    if first[0] != hello.HANDSHAKE:
        inner.unread(first)
        await http(inner)
        return
    if connection.session.ends_tls(connection.place):
        inner.unread(first)
        await https(inner)
        return
    connection.sent(len(first))
    await outer.write(first)
    both: set[Work] = {
        carrying(inner, outer, connection.sent),
        carrying(outer, inner, connection.received),
    }
    async with asyncio.timeout(bounds.longest), ended(both):
        await until_idle(both, set(), connection, bounds.idle)


@contextlib.asynccontextmanager
async def ended(works: set[Work]) -> AsyncIterator[None]:
    """Whatever happens, none of the works outlives the block."""
    try:
        yield
    finally:
        for work in works:
            work.cancel()
        await asyncio.gather(*works, return_exceptions=True)


async def until_idle(needed: set[Work], beside: set[Work], connection: Connection, idle: float) -> None:
    """Waits for all that are needed. Raises what any raises, and TimeoutError after so long without any byte."""
    while not all(work.done() for work in needed):
        left = connection.moved + idle - time.monotonic()
        if left <= 0:
            raise TimeoutError
        waiting = [work for work in needed | beside if not work.done()]
        await asyncio.wait(waiting, timeout=left, return_when=asyncio.FIRST_COMPLETED)
        for work in needed | beside:
            if work.done():
                work.result()


async def _first(inner: Peer, place: Place) -> bytes:
    """The first bytes of the client, which ask for this host, or are a request of HTTP. Raises RefusedError."""
    data = b""
    while True:
        if not (piece := await inner.read()):
            raise EOFError
        data += piece
        if data[0] != hello.HANDSHAKE:
            if REQUEST.match(data):
                return data
            if len(data) >= LONGEST_METHOD or not data.isalpha():
                raise RefusedError(Why.NOT_TLS, place)
            continue
        try:
            found = hello.read(data)
        except hello.NotTlsError:
            raise RefusedError(Why.NOT_TLS, place) from None
        if found is not None:
            _check(found, place)
            return data


def _check(found: hello.Hello, place: Place) -> None:
    if found.encrypted:
        raise RefusedError(Why.ENCRYPTED, place)
    if canonical(found.server_name) != canonical(place.host):
        raise RefusedError(Why.SERVER_NAME, place)

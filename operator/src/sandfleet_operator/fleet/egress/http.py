"""The proxy that programs in a session speak to: CONNECT, and requests of HTTP/1.1 in absolute form.

Each request is read by h11 and written anew by h11: what the server reads is what was checked, and no more.
"""

import asyncio
import contextlib
from typing import Any
from urllib.parse import urlsplit

import h11

from sandfleet_operator.api.egress import canonical, port_of
from sandfleet_operator.fleet.egress import tunnel
from sandfleet_operator.fleet.egress.outside import Outside
from sandfleet_operator.fleet.egress.peer import Peer, carry
from sandfleet_operator.fleet.egress.sessions import Bounds, Connection, Session
from sandfleet_operator.fleet.egress.upstream import MAX_HEAD, Upstream
from sandfleet_operator.plan.egress import requests, websocket
from sandfleet_operator.plan.egress.credentials import Headers, Mask, filled, secrets
from sandfleet_operator.plan.egress.refusals import Place, RefusedError, Why

HTTP_PORT, HTTPS_PORT = 80, 443
SWITCHING = 101
# Headers of one hop. An upgrade makes the rest of the connection something else: only WebSocket's is passed on, without
# extensions, which may compress.
HOP = frozenset(
    b"connection keep-alive proxy-connection proxy-authorization proxy-authenticate te trailer upgrade".split()
) | {b"http2-settings", b"expect"}
UPGRADE = [(b"Upgrade", b"websocket"), (b"Connection", b"Upgrade")]
EXTENSIONS = frozenset([b"sec-websocket-extensions"])


class Front:
    """One client of a session, from its first request to its end."""

    def __init__(self, peer: Peer, session: Session, outside: Outside) -> None:
        self._peer, self._session, self._outside = peer, session, outside
        self._bounds: Bounds = session.bounds
        self._conn = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEAD)
        # Within a tunnel all requests are for its host, and the first has the tunnel's own connection.
        self._within: Place | None = None
        self._ready: Connection | None = None
        # Whether TLS is ended here.
        self._is_secure = False
        # The connection of the request before, if another may follow on it; and what closes those that were opened.
        self._kept: Upstream | None = None
        self._opened = contextlib.AsyncExitStack()

    async def serve(self) -> None:
        """Returns when the client or a request ends the connection. Raises OSError and TimeoutError."""
        async with self._opened:
            await self._serve()

    async def _serve(self) -> None:
        while True:
            try:
                async with asyncio.timeout(self._bounds.idle):
                    event = await self._next()
                if not isinstance(event, h11.Request):
                    return
                if event.method == b"CONNECT" and self._within is None:
                    await self._connect(event)
                    return
                await self._forward(event)
            except RefusedError as error:
                self._session.refused(error, self._peer)
                await self._refuse(error)
                return
            except (h11.RemoteProtocolError, h11.LocalProtocolError, UnicodeError):
                await self._malformed()
                return
            if self._conn.our_state is not h11.DONE or self._conn.their_state is not h11.DONE:
                return
            self._conn.start_next_cycle()

    async def _next(self) -> object:
        while (event := self._conn.next_event()) is h11.NEED_DATA:
            self._conn.receive_data(await self._peer.read())
        return event

    async def _send(self, *events: h11.Event) -> None:
        if data := b"".join(self._conn.send(event) or b"" for event in events):
            await self._peer.write(data)

    async def _refuse(self, error: RefusedError) -> None:
        """Says why, in the reason too, which some programs show, unless a response has begun. It is the last word."""
        if self._conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            return
        text = f"{error}\n".encode()
        headers = [("Content-Type", "text/plain; charset=utf-8"), ("Content-Length", str(len(text)))]
        headers += [("Connection", "close"), ("X-Sandfleet-Egress", error.why.value)]
        response = h11.Response(status_code=error.why.status, headers=headers, reason=text.strip())
        await self._send(response, h11.Data(data=text), h11.EndOfMessage())

    async def _malformed(self) -> None:
        error = RefusedError(Why.MALFORMED, self._within or Place("", 0))
        self._session.refused(error, self._peer)
        await self._refuse(error)

    # CONNECT

    async def _connect(self, request: h11.Request) -> None:
        place = authority(request.target.decode("ascii"), HTTPS_PORT)
        if place is None:
            raise RefusedError(Why.MALFORMED, Place(request.target.decode("ascii"), 0))
        # The end of the request, which has no body.
        await self._next()
        async with self._outside.open(self._session, place, self._peer) as connection:
            await self._send(h11.Response(status_code=200, headers=[], reason=b"Connection established"))
            self._peer.unread(self._conn.trailing_data[0])
            await through(self._peer, connection, self._outside)

    # Requests of HTTP

    @classmethod
    async def within(cls, peer: Peer, connection: Connection, outside: Outside, *, is_secure: bool = False) -> None:
        """Serves a client that speaks HTTP in its tunnel. `is_secure`: the host is spoken to by TLS."""
        front = cls(peer, connection.session, outside)
        front._within, front._ready = connection.place, connection
        front._is_secure = is_secure
        await front.serve()

    async def _forward(self, request: h11.Request) -> None:
        place, path = self._target(request)
        check_framing(request)
        rules = self._session.rules(place)
        requests.check(rules, place, request.method.decode("ascii"), path, list(request.headers))
        self._session.check_secret(canonical(place.host), place)
        # Rules hold as long as the host reads the very requests that were checked: there, none shares its connection.
        is_kept = self._is_secure and not rules
        upstream, self._kept = await self._upstream(place), None
        await self._exchange(request, path, upstream, is_kept=is_kept)
        if is_kept:
            self._kept = upstream
        else:
            upstream.connection.outer.close()

    async def _upstream(self, place: Place) -> Upstream:
        """The connection for a request: the one before, the tunnel's own, or a new one. Raises RefusedError."""
        if self._kept is not None:
            if await self._kept.is_ready():
                return self._kept
            self._kept.connection.outer.close()
        await self._opened.aclose()
        connection, self._ready = self._ready, None
        if connection is None:
            connection = await self._opened.enter_async_context(self._outside.open(self._session, place, self._peer))
        if self._is_secure:
            await self._outside.secure(connection)
        return Upstream(connection)

    def _target(self, request: h11.Request) -> tuple[Place, str]:
        """Where the request goes, and its path. Raises RefusedError."""
        target = request.target.decode("ascii")
        host = next((value.decode("ascii") for name, value in request.headers if name == b"host"), "")
        said = authority(host, self._within.port if self._within else HTTP_PORT)
        if self._within is not None:
            # In a tunnel an absolute form would name a second host.
            if not target.startswith("/") and target != "*":
                raise RefusedError(Why.MALFORMED, self._within)
            place, path = self._within, target
        else:
            parts = urlsplit(target)
            found = authority(parts.netloc, HTTP_PORT) if parts.scheme == "http" else None
            if found is None:
                raise RefusedError(Why.MALFORMED, Place(target[:80], 0))
            place = found
            path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        if said is None or (canonical(said.host), said.port) != (canonical(place.host), place.port):
            raise RefusedError(Why.HOST, place)
        return place, path

    async def _exchange(self, request: h11.Request, path: str, upstream: Upstream, *, is_kept: bool) -> None:
        """One request and its response. Raises RefusedError before the response began."""
        connection = upstream.connection
        host = [value for name, value in request.headers if name == b"host"]
        own, mask = passed_on(list(request.headers)), Mask(())
        if credentials := self._session.credentials_for(connection.place) if self._is_secure else []:
            before, own = own, filled(own, credentials)
            mask = Mask(secrets(before, own, credentials))
        key = websocket.key_of(request.method, request.http_version, list(request.headers))
        how = UPGRADE if key else [] if is_kept else [(b"Connection", b"close")]
        own = [(name, value) for name, value in own if name not in EXTENSIONS or not key]
        head = h11.Request(method=request.method, target=path, headers=[(b"Host", host[0]), *own, *how])
        async with asyncio.timeout(self._bounds.idle):
            is_whole = await self._pass_on(upstream, head)
        body: set[tunnel.Work] = set() if is_whole else {asyncio.ensure_future(self._body(upstream))}
        answer = asyncio.ensure_future(self._response(upstream, key, mask))
        async with asyncio.timeout(self._bounds.longest), tunnel.ended({answer, *body}):
            await tunnel.until_idle({answer}, body, connection, self._bounds.idle)
        if self._conn.our_state is h11.SWITCHED_PROTOCOL:
            await self._switched(upstream, mask)

    async def _pass_on(self, upstream: Upstream, *events: h11.Event) -> bool:
        """Sends these and what has come of the body; returns whether that was its end."""
        passed = list(events)
        while isinstance(event := self._conn.next_event(), h11.Data):
            passed.append(event)
        is_end = isinstance(event, h11.EndOfMessage)
        # Without its trailers.
        await upstream.send(*passed, *([h11.EndOfMessage()] if is_end else []))
        return is_end

    async def _body(self, upstream: Upstream) -> None:
        is_whole = False
        while not is_whole:
            if self._conn.they_are_waiting_for_100_continue:
                await self._send(h11.InformationalResponse(status_code=100, headers=[]))
            self._conn.receive_data(await self._peer.read())
            is_whole = await self._pass_on(upstream)

    async def _response(self, upstream: Upstream, key: bytes, mask: Mask) -> None:
        """`key`: of a request for WebSocket."""
        events: list[h11.Event] = []
        while True:
            event = upstream.next()
            if event is h11.NEED_DATA:
                await self._send(*events)
                events = []
                await upstream.hear()
            elif isinstance(event, h11.Response):
                events.append(h11.Response(status_code=event.status_code, **_covered(event, mask)))
            elif isinstance(event, h11.Data):
                events.append(h11.Data(data=mask.piece(bytes(event.data))))
            elif isinstance(event, h11.EndOfMessage):
                await self._send(*events, h11.Data(data=mask.rest()), h11.EndOfMessage())
                return
            elif isinstance(event, h11.InformationalResponse) and event.status_code != SWITCHING:
                continue
            elif isinstance(event, h11.InformationalResponse) and websocket.is_accepted(key, list(event.headers)):
                said = _covered(event, mask)
                said["headers"] += UPGRADE
                await self._send(h11.InformationalResponse(status_code=SWITCHING, **said))
                return
            else:
                raise RefusedError(Why.UNREACHABLE, upstream.connection.place)

    async def _switched(self, upstream: Upstream, mask: Mask) -> None:
        """Carries the frames of WebSocket. Raises OSError, and RefusedError for what is none."""
        connection, bounds = upstream.connection, self._bounds
        self._peer.unread(self._conn.trailing_data[0])
        upstream.leave()
        asked, answered = websocket.Frames(is_client=True), websocket.Frames(is_client=False)

        def out(data: bytes) -> bytes:
            asked.follow(data)
            return data

        def back(data: bytes) -> bytes:
            answered.follow(data)
            # The next frame may be long in coming.
            return mask.piece(data) + (mask.rest() if answered.is_between else b"")

        both: set[tunnel.Work] = {
            asyncio.ensure_future(carry(self._peer, connection.outer, connection.sent, out)),
            asyncio.ensure_future(carry(connection.outer, self._peer, connection.received, back)),
        }
        try:
            async with asyncio.timeout(bounds.longest), tunnel.ended(both):
                await tunnel.until_idle(both, set(), connection, bounds.idle)
        except websocket.NoFrameError:
            raise RefusedError(Why.MALFORMED, connection.place) from None


def _covered(event: h11.Response | h11.InformationalResponse, mask: Mask) -> dict[str, Any]:
    """The headers of a head that are passed on."""
    headers = [(name, mask.whole(value)) for name, value in passed_on(list(event.headers))]
    return {"headers": headers, "reason": mask.whole(bytes(event.reason))}


async def through(inner: Peer, connection: Connection, outside: Outside) -> None:
    """A tunnel, once its client was told that it is open."""

    async def http(peer: Peer) -> None:
        await Front.within(peer, connection, outside)

    async def https(peer: Peer) -> None:
        # Late: the process is small as long as no session has credentials.
        from sandfleet_operator.fleet.egress.tls import TlsPeer

        session = connection.session
        if session.authority is None:
            # The list names methods or paths, and the session's programs trust no certificate but the host's.
            raise RefusedError(Why.REQUEST, connection.place)
        inside = TlsPeer(peer, session.authority.context(connection.host))
        async with asyncio.timeout(session.bounds.opening):
            await inside.shake_hands()
        await Front.within(inside, connection, outside, is_secure=True)

    try:
        await tunnel.run(inner, connection, http, https)
    except RefusedError as error:
        connection.session.refused(error, inner)
        inner.abort()


def authority(text: str, port: int) -> Place | None:
    """HOST or HOST:PORT; None for anything else. The host may be no name, which is refused in better words."""
    host, colon, number = text.rpartition(":")
    if text.startswith("[") and text.endswith("]"):
        host, colon, number = text, "", ""
    elif not colon:
        host = text
    if "@" in text or not host or "/" in host:
        return None
    if not colon:
        return Place(host, port)
    return Place(host, found) if (found := port_of(number)) else None


def check_framing(request: h11.Request) -> None:
    """A request has one length (RFC 9112, 6.1): two of them are read differently by different servers."""
    names = [name for name, _ in request.headers]
    if b"transfer-encoding" in names and b"content-length" in names:
        raise h11.RemoteProtocolError("it has two lengths")


def passed_on(headers: Headers) -> Headers:
    """The headers that are for the other end."""
    named = b",".join(value for name, value in headers if name == b"connection").lower()
    own = HOP | {b"host"} | {word.strip() for word in named.split(b",")}
    # The framing is this hop's, but h11 takes it from here.
    own -= {b"transfer-encoding", b"content-length"}
    return [(name, value) for name, value in headers if name not in own]

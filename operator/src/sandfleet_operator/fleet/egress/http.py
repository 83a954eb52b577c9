"""The proxy that programs in a session speak to: CONNECT, and requests of HTTP/1.1 in absolute form.

Each request is read by h11 and written anew by h11: what the server reads is what was checked, and no more.
"""

import asyncio
from collections.abc import Sequence
from urllib.parse import urlsplit

import h11

from sandfleet_operator.api.egress import Credential, canonical, port_of
from sandfleet_operator.fleet.egress import tunnel
from sandfleet_operator.fleet.egress.outside import Outside
from sandfleet_operator.fleet.egress.peer import Peer
from sandfleet_operator.fleet.egress.sessions import Bounds, Connection, Session
from sandfleet_operator.plan.egress import requests
from sandfleet_operator.plan.egress.credentials import Headers, Mask, filled, secrets
from sandfleet_operator.plan.egress.refusals import Place, RefusedError, Why

MAX_HEAD = 64 << 10
HTTP_PORT, HTTPS_PORT = 80, 443
# Headers of one hop. An upgrade would make the rest of the connection something that is not looked at.
HOP = frozenset(
    b"connection keep-alive proxy-connection proxy-authorization proxy-authenticate te trailer upgrade".split()
) | {b"http2-settings", b"expect"}


class Front:
    """One client of a session, from its first request to its end."""

    def __init__(self, peer: Peer, session: Session, outside: Outside) -> None:
        self._peer, self._session, self._outside = peer, session, outside
        self._bounds: Bounds = session.bounds
        self._conn = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEAD)
        # Within a tunnel all requests are for its host, and the first has the tunnel's own connection.
        self._within: Place | None = None
        self._ready: Connection | None = None
        # Whether TLS is ended here; then what is put into requests, and covered in answers.
        self._is_secure = False
        self._credentials: Sequence[Credential] = ()

    async def serve(self) -> None:
        """Returns when the client or a request ends the connection. Raises OSError and TimeoutError."""
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

    async def _send(self, event: h11.Event) -> None:
        if data := self._conn.send(event):
            await self._peer.write(data)

    async def _pass(self, data: bytes) -> None:
        if data:
            await self._send(h11.Data(data=data))

    async def _refuse(self, error: RefusedError) -> None:
        """Says why, in the reason too, which some programs show, unless a response has begun. It is the last word."""
        if self._conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            return
        text = f"{error}\n".encode()
        headers = [("Content-Type", "text/plain; charset=utf-8"), ("Content-Length", str(len(text)))]
        headers += [("Connection", "close"), ("X-Sandfleet-Egress", error.why.value)]
        response = h11.Response(status_code=error.why.status, headers=headers, reason=text.strip())
        await self._send(response)
        await self._send(h11.Data(data=text))
        await self._send(h11.EndOfMessage())

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
        if is_secure:
            front._credentials = connection.session.credentials_for(connection.place)
        await front.serve()

    async def _forward(self, request: h11.Request) -> None:
        place, path = self._target(request)
        check_framing(request)
        requests.check(self._session.rules(place), place, request.method.decode("ascii"), path, list(request.headers))
        if self._ready is not None:
            connection, self._ready = self._ready, None
            await self._exchange(request, path, connection)
            return
        async with self._outside.open(self._session, place, self._peer) as connection:
            await self._exchange(request, path, connection)

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

    async def _exchange(self, request: h11.Request, path: str, connection: Connection) -> None:
        """One request and its response, on a connection of their own. Raises RefusedError before the response began."""
        if self._is_secure:
            await self._outside.secure(connection)
        toward = h11.Connection(h11.CLIENT, max_incomplete_event_size=MAX_HEAD)
        host = [value for name, value in request.headers if name == b"host"]
        own, mask = passed_on(list(request.headers)), Mask(())
        if self._credentials:
            before, own = own, filled(own, self._credentials)
            mask = Mask(secrets(before, own, self._credentials))
        headers = [(b"Host", host[0]), *own, (b"Connection", b"close")]
        out = toward.send(h11.Request(method=request.method, target=path, headers=headers))
        connection.sent(len(out or b""))
        await connection.outer.write(out or b"")
        body = asyncio.ensure_future(self._body(toward, connection))
        answer = asyncio.ensure_future(self._response(toward, connection, mask))
        async with asyncio.timeout(self._bounds.longest), tunnel.ended({answer, body}):
            await tunnel.until_idle({answer}, {body}, connection, self._bounds.idle)

    async def _body(self, toward: h11.Connection, connection: Connection) -> None:
        while True:
            if self._conn.they_are_waiting_for_100_continue:
                await self._send(h11.InformationalResponse(status_code=100, headers=[]))
            event = await self._next()
            if isinstance(event, h11.Data):
                data = toward.send(event) or b""
                connection.sent(len(data))
                await connection.outer.write(data)
            elif isinstance(event, h11.EndOfMessage):
                # Without its trailers.
                await connection.outer.write(toward.send(h11.EndOfMessage()) or b"")
                return
            else:
                return

    async def _response(self, toward: h11.Connection, connection: Connection, mask: Mask) -> None:
        try:
            while True:
                while (event := toward.next_event()) is h11.NEED_DATA:
                    data = await connection.outer.read()
                    connection.received(len(data))
                    toward.receive_data(data)
                if isinstance(event, h11.Response):
                    headers = [(name, mask.whole(value)) for name, value in passed_on(list(event.headers))]
                    reason = mask.whole(bytes(event.reason))
                    await self._send(h11.Response(status_code=event.status_code, headers=headers, reason=reason))
                elif isinstance(event, h11.Data):
                    await self._pass(mask.piece(bytes(event.data)))
                elif isinstance(event, h11.EndOfMessage):
                    await self._pass(mask.rest())
                    await self._send(h11.EndOfMessage())
                    return
                elif not isinstance(event, h11.InformationalResponse):
                    raise RefusedError(Why.UNREACHABLE, connection.place)
        except h11.RemoteProtocolError:
            raise RefusedError(Why.UNREACHABLE, connection.place) from None


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

"""SOCKS5 (RFC 1928) with names, on the same port as HTTP: what programs mean by socks5h."""

from sandfleet_operator.fleet.egress import http
from sandfleet_operator.fleet.egress.outside import Outside
from sandfleet_operator.fleet.egress.peer import Peer
from sandfleet_operator.fleet.egress.sessions import Session
from sandfleet_operator.plan.egress.refusals import Place, RefusedError

VERSION = 5
NO_AUTHENTICATION, NO_METHOD = 0, 0xFF
CONNECT = 1
IPV4, NAME, IPV6 = 1, 3, 4
ADDRESS_BYTES = {IPV4: 4, IPV6: 16}
DONE, FAILED, REFUSED, NO_HOST, BAD_COMMAND = 0, 1, 2, 4, 7
REPLIES = {403: REFUSED, 429: REFUSED, 502: NO_HOST, 504: NO_HOST}


async def serve(peer: Peer, session: Session, outside: Outside) -> None:
    """Serves one client. Raises EOFError, OSError and TimeoutError."""
    _, count = await peer.exactly(2)
    methods = await peer.exactly(count)
    if NO_AUTHENTICATION not in methods:
        await peer.write(bytes([VERSION, NO_METHOD]))
        return
    await peer.write(bytes([VERSION, NO_AUTHENTICATION]))
    version, command, _, kind = await peer.exactly(4)
    if version != VERSION or command != CONNECT:
        await peer.write(_reply(BAD_COMMAND))
        return
    place = await _place(peer, kind)
    try:
        async with outside.open(session, place, peer) as connection:
            await peer.write(_reply(DONE))
            await http.through(peer, connection, outside)
    except RefusedError as error:
        session.refused(error, peer)
        await peer.write(_reply(REPLIES.get(error.why.status, FAILED)))


async def _place(peer: Peer, kind: int) -> Place:
    if kind == NAME:
        size = (await peer.exactly(1))[0]
        host = (await peer.exactly(size)).decode("latin-1")
    elif kind in ADDRESS_BYTES:
        # No name: it is refused as such.
        raw = await peer.exactly(ADDRESS_BYTES[kind])
        host = ".".join(map(str, raw)) if kind == IPV4 else f"[{raw.hex(':', 2)}]"
    else:
        raise EOFError
    return Place(host, int.from_bytes(await peer.exactly(2), "big"))


def _reply(word: int) -> bytes:
    return bytes([VERSION, word, 0, IPV4, 0, 0, 0, 0, 0, 0])

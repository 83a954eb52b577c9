"""Names to addresses, and connections to them: all that leads out."""

import asyncio
import contextlib
import socket
import ssl
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from sandfleet_operator.api.networks import Network
from sandfleet_operator.fleet.egress.peer import Peer, SocketPeer
from sandfleet_operator.fleet.egress.sessions import Connection, Session
from sandfleet_operator.plan.egress import addresses
from sandfleet_operator.plan.egress.refusals import Place, RefusedError, Why

# Names that are being looked up at a time (sessions.MOST_LOOKUPS: of one session): each takes a thread until the
# resolver gives up, also where its session has done so before.
MOST_LOOKUPS = 128
LOOKUP_SECONDS = 5.0
# For the C library, with each name server: it would try for half a minute.
RESOLVER = {"RES_OPTIONS": "timeout:2 attempts:2"}
# Addresses of one name that are looked at, those that are tried, and the seconds for each.
MOST_FOUND, MOST_ADDRESSES = 64, 4
CONNECT_SECONDS = 5.0
# The words of a resolver for a name that has no address; with others it could not learn that.
NO_ADDRESS = (socket.EAI_NONAME, socket.EAI_NODATA)

Lookup = Callable[[str, int], Awaitable[Sequence[str]]]


@dataclass(frozen=True, slots=True)
class Ways:
    """What an argument of the process opens or closes."""

    # Networks that are not public, where names may lead nevertheless.
    allowed: Sequence[Network] = ()
    blocked: Sequence[Network] = ()
    # Hosts with their addresses, which are not looked up: the argument has said where they are.
    hosts: Mapping[str, str] = field(default_factory=dict)


async def looked_up(host: str, port: int) -> Sequence[str]:
    """The addresses of a host, by this machine's resolver. Raises OSError.

    No pool of threads: names that hang would hold its threads, and its end would wait for them.
    """
    answer: Future[Sequence[str]] = Future()
    # A running one cannot be cancelled, so that the thread may always answer.
    answer.set_running_or_notify_cancel()

    def ask() -> None:
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[:MOST_FOUND]
            answer.set_result(list(dict.fromkeys(str(address[0]) for *_, address in found)))
        except (OSError, UnicodeError) as error:
            answer.set_exception(error)

    threading.Thread(target=ask, daemon=True).start()
    return await asyncio.wrap_future(answer)


async def looked_up_as_it_is(host: str, port: int) -> Sequence[str]:
    """As `looked_up`, and never below a domain that a pod searches in: there `example.com` would first be the Service
    `example` of a namespace `com`. Raises OSError.
    """
    return await looked_up(f"{host.rstrip('.')}.", port)


class Outside:
    def __init__(self, ways: Ways, lookup: Lookup = looked_up, tls: ssl.SSLContext | None = None) -> None:
        """`tls`: what hosts with credentials are connected to with; by default this machine's authorities."""
        self._ways, self._lookup, self._tls = ways, lookup, tls
        self._lookups = asyncio.Semaphore(MOST_LOOKUPS)

    @contextlib.asynccontextmanager
    async def open(self, session: Session, place: Place, inner: Peer) -> AsyncIterator[Connection]:
        """A connection to a host of the session's list, for the program at `inner`. Raises RefusedError.

        The name is looked up once: the address that was checked is the one that is connected to.
        """
        host = session.check(place)
        address, outer = await self._connected(place, await self._addresses(session, host, place))
        with session.connected(place, host, address, outer, inner) as connection:
            yield connection

    async def secure(self, connection: Connection) -> None:
        """Speaks TLS on the connection from now on, with the host of that name. Raises RefusedError."""
        # Late: the process is small as long as no session has credentials.
        from sandfleet_operator.fleet.egress.tls import TlsPeer, outward

        self._tls = self._tls or outward()
        outer = TlsPeer(connection.outer, self._tls, connection.host)
        try:
            async with asyncio.timeout(connection.session.bounds.opening):
                await outer.shake_hands()
        except ssl.SSLError:
            raise RefusedError(Why.UNTRUSTED, connection.place) from None
        except TimeoutError:
            raise RefusedError(Why.TIMED_OUT, connection.place) from None
        except OSError:
            raise RefusedError(Why.UNREACHABLE, connection.place) from None
        connection.outer = outer

    async def _addresses(self, session: Session, host: str, place: Place) -> Sequence[str]:
        if known := self._ways.hosts.get(host):
            return [known]
        try:
            async with asyncio.timeout(LOOKUP_SECONDS):
                found = (await self._in_turn(session, host, place.port))[:MOST_FOUND]
        except TimeoutError:
            raise RefusedError(Why.NO_ANSWER, place) from None
        except (OSError, UnicodeError) as error:
            is_none = isinstance(error, UnicodeError) or error.errno in NO_ADDRESS
            raise RefusedError(Why.NO_ADDRESS if is_none else Why.NO_ANSWER, place) from None
        if not found:
            raise RefusedError(Why.NO_ADDRESS, place)
        public = [one for one in found if not addresses.refusal(one, self._ways.allowed, self._ways.blocked)]
        if not public:
            raise RefusedError(Why.ADDRESS, place)
        return public[:MOST_ADDRESSES]

    async def _in_turn(self, session: Session, host: str, port: int) -> Sequence[str]:
        """Looks a name up. A session whose names hang waits for itself. Raises OSError and UnicodeError."""
        await session.lookups.acquire()
        try:
            await self._lookups.acquire()
        except asyncio.CancelledError:
            session.lookups.release()
            raise

        def over(asked: asyncio.Future[Sequence[str]]) -> None:
            session.lookups.release()
            self._lookups.release()
            # It may fail when there is no waiter left.
            _ = asked.cancelled() or asked.exception()

        asking = asyncio.ensure_future(self._lookup(host, port))
        asking.add_done_callback(over)
        # It goes on, with its place in both lines, where this end gives up.
        return await asyncio.shield(asking)

    @staticmethod
    async def _connected(place: Place, found: Sequence[str]) -> tuple[str, Peer]:
        """The first address that accepts."""
        why = Why.UNREACHABLE
        for address in found:
            try:
                async with asyncio.timeout(CONNECT_SECONDS):
                    _, outer = await asyncio.get_running_loop().create_connection(SocketPeer, address, place.port)
            except TimeoutError:
                why = Why.TIMED_OUT
            except OSError:
                why = Why.UNREACHABLE
            else:
                return address, outer
        raise RefusedError(why, place)

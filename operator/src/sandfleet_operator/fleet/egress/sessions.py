"""The sessions that may reach anything: their lists, their connections, and what is told of them."""

import asyncio
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from sandfleet_operator.api.egress import HTTP_PORT, MAX_HOST, WILDCARD, Credential, Name, canonical, parse, rules
from sandfleet_operator.fleet.egress.peer import Peer
from sandfleet_operator.plan.egress.refusals import Place, RefusedError, Why, shown

if TYPE_CHECKING:
    from sandfleet_operator.fleet.egress.tls import Authority


# The statuses of refusals by the session's list and bounds; with others the host cannot be reached now.
DENIED = (403, 429)
# Names of one session that are being looked up at a time.
MOST_LOOKUPS = 4
# Connections that the executor of one session keeps: twice what it means to.
MOST_KEPT = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Numbers of connections; bytes; seconds."""

    connections: int = 2000
    per_session: int = 128
    # In both directions together, of one session.
    session_bytes: int = 256 << 30
    # Names that a session has looked up by a `*`: each is a message to the name servers of that domain.
    wildcard_names: int = 256
    # Until a client has asked for a host, and until the host has accepted.
    opening: float = 15.0
    # Without any byte.
    idle: float = 900.0
    longest: float = 6 * 3600.0
    # Between two reports.
    report: float = 0.2
    # Rows about hosts in the reports of one session.
    rows: int = 256


@dataclass(slots=True)
class Row:
    """What has come since the last report, about one host of one session. `open` may be negative."""

    host: str
    port: int
    reason: str = ""
    address: str = ""
    connections: int = 0
    open: int = 0
    sent: int = 0
    received: int = 0


@dataclass(eq=False, slots=True)
class Connection:
    """One that leads out of a session, with its outer end."""

    session: "Session"
    place: Place
    # The canonical name, and the address that it had.
    host: str
    address: str
    outer: Peer
    task: asyncio.Task[Any]
    moved: float = 0.0
    cut: bool = False
    # So far.
    bytes_sent: int = 0
    bytes_received: int = 0

    def row(self) -> Row:
        return self.session.row(self.host, self.place.port)

    def sent(self, count: int) -> None:
        self.row().sent += count
        self.bytes_sent += count
        self.moved = time.monotonic()

    def received(self, count: int) -> None:
        self.row().received += count
        self.bytes_received += count
        self.moved = time.monotonic()


@dataclass(eq=False, slots=True)
class Session:
    session_id: str
    bounds: Bounds
    names: tuple[Name, ...] = ()
    # Of hosts at which TLS is ended here, with the session's own authority.
    credentials: Sequence[Credential] = field(default=(), repr=False)
    authority: "Authority | None" = None
    # Hosts whose secret cannot be read.
    without_secret: frozenset[str] = frozenset()
    # Conversations of the session's programs, whether they lead anywhere yet or not.
    tasks: set[asyncio.Task[Any]] = field(default_factory=set)
    # Connections of its executor that wait for the next program.
    kept: set[asyncio.Task[Any]] = field(default_factory=set)
    connections: set[Connection] = field(default_factory=set)
    looked_up: set[str] = field(default_factory=set)
    lookups: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MOST_LOOKUPS))
    rows: dict[tuple[str, int, str], Row] = field(default_factory=dict)
    bytes: int = 0

    def allow(self, names: tuple[Name, ...]) -> None:
        """The list from now on. Connections that it does not allow any more end, and those with other requests."""
        before, self.names = self.names, names
        for one in tuple(self.connections):
            where = one.host, one.place.port
            now = rules(names, *where)
            if not any(name.allows(*where) for name in names) or (now and now != rules(before, *where)):
                one.cut = True
                one.task.cancel()

    def rules(self, place: Place) -> tuple[Name, ...]:
        """The entries that say which requests the host may get; none: all."""
        return rules(self.names, canonical(place.host), place.port)

    def ends_tls(self, place: Place) -> bool:
        """Whether TLS to the host is ended here: requests are filled with credentials, or looked at."""
        return bool(self.credentials_for(place) or self.rules(place))

    def check(self, place: Place) -> str:
        """The canonical host. Raises RefusedError."""
        host = canonical(place.host)
        if not host:
            raise RefusedError(Why.NOT_A_NAME, place)
        by = next((name for name in self.names if name.allows(host, place.port)), None)
        if by is None:
            raise RefusedError(Why.NOT_LISTED, place)
        self.check_secret(host, place)
        if by.host.startswith(WILDCARD):
            if host not in self.looked_up and len(self.looked_up) >= self.bounds.wildcard_names:
                raise RefusedError(Why.TOO_MANY, place)
            self.looked_up.add(host)
        if len(self.connections) >= self.bounds.per_session or self.bytes > self.bounds.session_bytes:
            raise RefusedError(Why.TOO_MANY, place)
        return host

    def check_secret(self, host: str, place: Place) -> None:
        """Raises RefusedError where a secret for the host cannot be read."""
        if host in self.without_secret:
            raise RefusedError(Why.NO_SECRET, place)

    def credentials_for(self, place: Place) -> list[Credential]:
        """Those of a host that is connected to by HTTPS."""
        host = canonical(place.host)
        return [one for one in self.credentials if one.host == host and place.port != HTTP_PORT]

    def row(self, host: str, port: int, reason: str = "") -> Row:
        """The row about a host; beyond the bound all hosts share one."""
        key = (host, port, reason)
        if key not in self.rows and len(self.rows) >= self.bounds.rows:
            key = ("", 0, reason)
        return self.rows.setdefault(key, Row(*key))

    def refused(self, error: RefusedError, inner: Peer) -> None:
        """Counts it, and tells the executor before its program reads why."""
        host = shown(error.place.host, MAX_HOST)
        self.row(host, error.place.port, error.why.value).connections += 1
        denied = error.why.status in DENIED
        inner.say({"host": host, "port": error.place.port, "reason": error.why.value, "denied": denied})

    @contextmanager
    def connected(self, place: Place, host: str, address: str, outer: Peer, inner: Peer) -> Iterator[Connection]:
        """A connection from now on, in the present task, for the program at `inner`."""
        inner.say({"host": host, "port": place.port})
        task = asyncio.current_task()
        assert task is not None
        one = Connection(self, place, host, address, outer, task, time.monotonic())
        row = one.row()
        row.connections, row.open, row.address = row.connections + 1, row.open + 1, address
        self.connections.add(one)
        try:
            yield one
        finally:
            outer.close()
            inner.carried(one.bytes_sent, one.bytes_received)
            self.connections.discard(one)
            one.row().open -= 1
            if one.cut:
                self.row(host, place.port, Why.CUT.value).connections += 1

    @contextmanager
    def keeping(self, task: asyncio.Task[Any]) -> Iterator[None]:
        """A connection of the session's executor that no program uses. Raises ConnectionError where there are many."""
        if len(self.kept) >= MOST_KEPT:
            raise ConnectionError
        self.kept.add(task)
        try:
            yield
        finally:
            self.kept.discard(task)

    def end(self) -> None:
        for task in (*self.tasks, *self.kept):
            task.cancel()

    def report(self) -> list[dict[str, Any]]:
        """What has come since the last one."""
        rows, self.rows = self.rows, {}
        self.bytes += sum(row.sent + row.received for row in rows.values())
        return [asdict(row) for row in rows.values() if row != Row(row.host, row.port, row.reason, row.address)]


class Sessions:
    """All of the process."""

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds
        self._sessions: dict[str, Session] = {}
        # Of sessions that have ended: their last report is still due.
        self._ended: list[Session] = []

    def allow(
        self, session_id: str, names: Sequence[str], credentials: Sequence[Credential] = (), authority: str = ""
    ) -> None:
        """`authority` is key and certificate of the session's own, as PEM. Raises FleetError."""
        session = self._sessions.get(session_id) or Session(session_id, self.bounds)
        session.allow(tuple(map(parse, names)))
        if authority and session.authority is None:
            # Late: the process is small as long as no session has credentials.
            from sandfleet_operator.fleet.egress.tls import Authority

            session.authority = Authority(authority)
        session.credentials = credentials
        self._sessions[session_id] = session

    def end(self, session_id: str) -> None:
        if (session := self._sessions.pop(session_id, None)) is not None:
            session.end()
            self._ended.append(session)

    def find(self, session_id: str) -> Session | None:
        return self._sessions.get(session_id)

    @property
    def is_full(self) -> bool:
        return sum(len(each.tasks) for each in self._sessions.values()) >= self.bounds.connections

    def reports(self) -> dict[str, list[dict[str, Any]]]:
        """By session, what has come since the last time."""
        ended, self._ended = self._ended, []
        reports = {each.session_id: each.report() for each in (*ended, *self._sessions.values())}
        return {name: rows for name, rows in reports.items() if rows}

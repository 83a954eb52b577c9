"""Whether sandboxes reach what they may: the fleet asks their executors after it has answered their claims.

Watchers are told. An executor is not trusted: its answer goes to the holder of its own sandbox and decides nothing
else. The answers are not stored: the next leader asks again.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from sandfleet_api.fleet.v1 import fleet_pb2

from sandfleet_operator.api.errors import FleetError
from sandfleet_operator.api.kinds.sandbox import CodeSandbox
from sandfleet_operator.api.kinds.template import Egress
from sandfleet_operator.api.settings import Settings
from sandfleet_operator.api.values import Sandbox, State
from sandfleet_operator.cluster.tasks import Sweeps, in_turns
from sandfleet_operator.fleet.incarnations import Executors
from sandfleet_operator.fleet.kubernetes import feed
from sandfleet_operator.fleet.kubernetes.catalog import Catalog
from sandfleet_operator.plan.egress.lists import named
from sandfleet_operator.plan.pods import egress_probe as reach
from sandfleet_operator.plan.pods.egress_probe import Known, Target
from sandfleet_operator.plan.usage import Reading
from sandfleet_operator.plan.witness import Head

# Seconds before each time that an executor is asked, each of which takes a second at most: about half a minute.
PAUSES = (0.0, 0.25, 0.5, 1.0, 2.0, 4.0, 6.0, 8.0)
# Executors that are asked at the same time: claims are answered beside this, and a connection costs two handshakes.
AT_ONCE = 16
# Sessions that are looked at before others get their turn.
TURN = 100

_LOG = logging.getLogger(__name__)


class ProbingExecutors(Executors, Protocol):
    """What the fleet on Kubernetes says to executors: sandfleet_operator.executors.pod_client.PodExecutors."""

    async def probe(self, sandbox: Sandbox, targets: Sequence[Target]) -> Sequence[bool]: ...
    async def prepared(self, sandbox: Sandbox) -> str: ...
    async def journal_head(self, sandbox: Sandbox) -> Head: ...
    async def usage(self, sandbox: Sandbox) -> Reading: ...


@dataclass(slots=True)
class _Entry:
    # Of the incarnation that is asked.
    sandbox_uid: str
    # What the CodeSandbox itself lists; None: what its template does.
    own: Egress | None
    wanted: Egress
    known: Known
    task: asyncio.Task[None] | None = None


class EgressChecks:
    """By the name of the CodeSandbox. `session_of` gives what serves it, `say` is called with names that have news."""

    def __init__(
        self,
        executors: ProbingExecutors,
        catalog: Catalog,
        settings: Settings,
        session_of: Callable[[str], Sandbox | None],
        *,
        say: Callable[[str], None],
        clock: Callable[[], float],
    ) -> None:
        self._executors = executors
        self._catalog = catalog
        self._settings = settings
        self._session_of = session_of
        self._say = say
        self._clock = clock
        self._entries: dict[str, _Entry] = {}
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._sweeps = Sweeps(self._look_at_all, "look at egress again")

    def of(self, name: str) -> Known | None:
        """None where no claim is served."""
        session = self._session_of(name)
        if session is None or session.claim is None or not session.bound:
            return None
        entry = self._entries.get(name)
        if entry is None:
            # Its CodeSandbox is not written yet.
            wanted = self._of_template(session) if session.claim.egress else _claimed(session)
        elif _is_of(entry, session):
            return entry.known
        else:
            wanted = entry.wanted
        return Known(reach.at_first(wanted, self._settings))

    def describe(self, sandbox: CodeSandbox) -> fleet_pb2.Sandbox:
        """As callers see it."""
        return feed.message(sandbox, self.of(feed.sandbox_id(sandbox)))

    def look_young(self, name: str) -> None:
        """A claim was answered. Its CodeSandbox comes later, and will list what the claim asked for."""
        session = self._session_of(name)
        if session is not None and session.claim is not None and name not in self._entries:
            self.look(name, None if session.claim.egress else _claimed(session))

    def look(self, name: str, own: Egress | None) -> None:
        """Asks its executor, unless that was done for this incarnation and this list."""
        session = self._session_of(name)
        if session is None or session.claim is None or session.state is not State.CLAIMED:
            return
        wanted = self._of_template(session) if own is None else own
        entry = self._entries.get(name)
        if entry is not None and _is_of(entry, session) and entry.wanted == wanted:
            entry.own = own
            return
        self.forget(name)
        known = Known(reach.at_first(wanted, self._settings), self._clock())
        self._entries[name] = entry = _Entry(session.sandbox_uid, own, wanted, known)
        targets = reach.targets(wanted, self._settings)
        if targets:
            entry.task = asyncio.create_task(self._ask(name, entry, session, targets))
            entry.task.add_done_callback(_report)
        self._say(name)

    def look_again(self, namespace: str, template: str) -> None:
        """The template has changed."""
        self._sweeps.add((namespace, template))

    async def _look_at_all(self, changed: tuple[str, str]) -> None:
        """Those that list what the template lists."""
        async for name in in_turns(list(self._entries), TURN):
            entry, session = self._entries.get(name), self._session_of(name)
            if entry is None or session is None or entry.own is not None:
                continue
            if (name.partition("/")[0], session.template) == changed:
                self.look(name, None)

    def forget(self, name: str) -> None:
        entry = self._entries.pop(name, None)
        if entry is not None and entry.task is not None:
            entry.task.cancel()

    def close(self) -> None:
        self._sweeps.close()
        for name in list(self._entries):
            self.forget(name)

    def _of_template(self, session: Sandbox) -> Egress:
        return self._catalog.egress(session.pool.partition("/")[0], session.template)

    async def _ask(self, name: str, entry: _Entry, session: Sandbox, targets: tuple[Target, ...]) -> None:
        found, why = None, ""
        for pause in PAUSES:
            await asyncio.sleep(pause)
            try:
                async with self._slots:
                    reached = await self._executors.probe(session, targets)
            except FleetError as error:
                why = str(error)
                continue
            why = ""
            if found := reach.after(targets, reached):
                break
        entry.known = Known(found or reach.at_last(targets, why), self._clock())
        self._say(name)


def _claimed(session: Sandbox) -> Egress:
    """What the claim asked for instead of the template's list."""
    texts = session.claim.egress_names if session.claim else ()
    return Egress(names=tuple(named(texts)))


def _is_of(entry: _Entry, session: Sandbox) -> bool:
    return session.state is State.CLAIMED and entry.sandbox_uid == session.sandbox_uid


def _report(done: asyncio.Task[None]) -> None:
    if not done.cancelled() and (error := done.exception()) is not None:
        _LOG.error("cannot ask whether egress is open: %r", error)

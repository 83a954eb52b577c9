"""CodeSandboxes as callers of the fleet see them, and the feed of their changes for callers that watch."""

import asyncio
import heapq
import re
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass

from google.protobuf.timestamp_pb2 import Timestamp
from sandfleet_api.executor.v1 import session_pb2
from sandfleet_api.fleet.v1 import fleet_pb2

from sandfleet_operator.api.conditions import ConditionType, Reason
from sandfleet_operator.api.errors import Code, FleetError, Problem
from sandfleet_operator.api.kept import Kept
from sandfleet_operator.api.kinds.meta import Condition
from sandfleet_operator.api.kinds.sandbox import CodeSandbox, by_metadata, code_sandbox
from sandfleet_operator.api.kube import CODE_SANDBOX, Json, Ref
from sandfleet_operator.api.reasons import ClaimReason
from sandfleet_operator.cluster.intake import Unreadable
from sandfleet_operator.cluster.store import Store
from sandfleet_operator.cluster.tasks import in_turns
from sandfleet_operator.fleet.kubernetes.catalog import key_of
from sandfleet_operator.fleet.kubernetes.sessions.young import YoungSessions
from sandfleet_operator.plan.claims.suspension import is_suspended, suspended_until
from sandfleet_operator.plan.pods.egress_probe import Known, ReachState

# NAMESPACE/NAME, each a DNS label as the schema wants them.
SANDBOX_ID = re.compile(r"([a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?)/([a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?)")
# Sandboxes that are shown before others get their turn: a new one takes a quarter of a millisecond.
TURN = 20
# Watches of one caller, and of all callers together that watch one namespace, or all: each costs something at each
# change there.
MAX_WATCHES, MAX_READERS = 64, 1024
# Of an int32 of the API.
MAX_COUNT = (1 << 31) - 1
# The operator is at work on these, or another controller is: asking again later may help.
PASSING = frozenset(
    one.value
    for one in (
        Reason.WAITING_FOR_ADMISSION,
        Reason.WAITING_FOR_CLAIM,
        Reason.WORKSPACE_PENDING,
        Reason.WORKSPACE_IN_USE,
        Reason.SCHEDULED,
        Reason.POD_STARTING,
        Reason.EXECUTOR_UNREACHABLE,
        Reason.BACK_OFF,
        Reason.POLICY_MISSING,
        Reason.POLICY_IN_PLACE,
        Reason.ISOLATED,
        Reason.RUNNING,
        Reason.OUT_OF_MEMORY,
        Reason.EXECUTOR_CRASHED,
        Reason.EXECUTOR_IDENTITY_INVALID,
        Reason.EVICTED,
        Reason.POD_DELETED,
        Reason.NODE_LOST,
        Reason.DRIFTED,
    )
)
EGRESSES = {
    ReachState.DENIED: fleet_pb2.EGRESS_STATE_DENIED,
    ReachState.OPENING: fleet_pb2.EGRESS_STATE_OPENING,
    ReachState.OPEN: fleet_pb2.EGRESS_STATE_OPEN,
}
ISOLATIONS = {"gvisor": session_pb2.ISOLATION_GVISOR, "linux": session_pb2.ISOLATION_NAMESPACE}


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a ready sandbox is reached."""

    address: str
    pod_uid: str

    @property
    def host(self) -> str:
        return self.address.rpartition(":")[0]


def sandbox_id(sandbox: CodeSandbox) -> str:
    return f"{sandbox.meta.namespace}/{sandbox.meta.name}"


def parse_id(text: str, *, doing: str) -> tuple[str, str]:
    """Namespace and name. Raises FleetError."""
    found = SANDBOX_ID.fullmatch(text)
    if found is None:
        raise ClaimReason.INVALID_ID.error(
            f"cannot {doing}: the sandbox id {text[:80]!r} is not NAMESPACE/NAME", text[:80]
        )
    return found[1], found[2]


def endpoint(sandbox: CodeSandbox) -> Endpoint:
    """The way to a ready sandbox as its status has it: see `KubernetesFleet.endpoint`.

    Raises FleetError where no code can be run in it now, with the reason of its Ready condition.
    """
    name, status = sandbox_id(sandbox), sandbox.status
    ready = _condition(sandbox, ConditionType.READY)
    if sandbox.meta.deleting or _is_true(_condition(sandbox, ConditionType.EXPIRED)):
        why = ready.reason if ready is not None else Reason.DELETING.value
        raise FleetError(Problem(Code.NOT_FOUND, why, f"cannot open sandbox {name}: it has ended ({why})", name))
    if ready is None:
        why = "the operator has not looked at it yet; if it lasts, see whether it runs"
        raise closed(name, Reason.POD_STARTING.value, why)
    if ready.status != "True":
        raise closed(name, ready.reason, ready.message or f"its Ready condition is {ready.status}")
    if not (status.address and status.pod_uid):
        raise closed(name, Reason.POD_STARTING.value, "its status names no address")
    return Endpoint(status.address, status.pod_uid)


def closed(name: str, reason: str, why: str) -> FleetError:
    message = f"cannot open sandbox {name}: {reason}: {why}"
    return FleetError(Problem(Code.FAILED_PRECONDITION, reason, message, name, passing=reason in PASSING))


def message(sandbox: CodeSandbox, egress: Known | None) -> fleet_pb2.Sandbox:
    status, created = sandbox.status, Timestamp()
    created.FromMicroseconds(round(sandbox.meta.created * 1e6))
    return fleet_pb2.Sandbox(
        sandbox_id=sandbox_id(sandbox),
        sandbox_uid=status.pod_uid,
        template=sandbox.spec.template,
        state=_state(sandbox),
        labels=sandbox.meta.labels,
        workspace_id=status.workspace_claim,
        created=created,
        isolation=ISOLATIONS.get(status.runtime, session_pb2.ISOLATION_UNSPECIFIED),
        restarts=min(max(status.restarts, 0), MAX_COUNT),
        last_restart_reason=status.restart_history[-1].reason if status.restart_history else "",
        egress=egress_message(egress) if egress else None,
        suspended_until=_suspended_until(sandbox),
    )


def egress_message(known: Known) -> fleet_pb2.EgressStatus:
    found = known.reach
    message = fleet_pb2.EgressStatus(state=EGRESSES[found.state], reason=found.reason, message=found.message)
    if known.since is not None:
        message.since.FromMicroseconds(round(known.since * 1e6))
    return message


def _state(sandbox: CodeSandbox) -> fleet_pb2.SandboxState:
    if sandbox.meta.deleting or _is_true(_condition(sandbox, ConditionType.EXPIRED)):
        return fleet_pb2.SANDBOX_STATE_ENDED
    if is_suspended(sandbox):
        return fleet_pb2.SANDBOX_STATE_SUSPENDED
    if _is_true(_condition(sandbox, ConditionType.READY)):
        return fleet_pb2.SANDBOX_STATE_CLAIMED
    return fleet_pb2.SANDBOX_STATE_RECOVERING if sandbox.status.restarts else fleet_pb2.SANDBOX_STATE_STARTING


def _suspended_until(sandbox: CodeSandbox) -> Timestamp | None:
    """As the fleet has written it; one whose owner has suspended it says none."""
    until = suspended_until(sandbox) if is_suspended(sandbox) else None
    if until is None:
        return None
    moment = Timestamp()
    moment.FromSeconds(int(until))
    return moment


def _condition(sandbox: CodeSandbox, kind: ConditionType) -> Condition | None:
    return next((one for one in sandbox.status.conditions if one.type == kind.value), None)


def _is_true(condition: Condition | None) -> bool:
    return condition is not None and condition.status == "True"


def _has_begun(obj: Json) -> bool:
    """Whether the operator has written what it has seen. Also of one that cannot be read."""
    status = obj.get("status")
    return isinstance(status, dict) and bool(status.get("conditions"))


Matches = Callable[[Mapping[str, str]], bool]


# An object, and whether it is gone.
News = tuple[Json, bool]


class _Reader:
    def __init__(self, caller: str) -> None:
        self.caller = caller
        # What it has not seen, by name.
        self.news: dict[str, News] = {}
        self.came = asyncio.Event()


class SandboxFeed:
    """CodeSandboxes as all callers see them, and young sessions like them. Lists leave unreadable ones out, and watches
    say why.

    `egress_of` says what is known of the egress of a CodeSandbox, NAMESPACE/NAME.
    """

    def __init__(self, store: Store, egress_of: Callable[[str], Known | None], young: YoungSessions) -> None:
        self._store = store
        self._young = young
        self._egress_of = egress_of
        # By namespace; empty: those of all.
        self._readers: dict[str, set[_Reader]] = {}
        self._watches: Counter[str] = Counter()
        # By name: the object, what was known of its egress, and the message of both.
        self._encoded: dict[str, tuple[Json, Known | None, bytes]] = {}
        self.unreadable = Unreadable()

    def say(self, obj: Json, *, gone: bool) -> None:
        name = key_of(obj)
        if gone:
            self._encoded.pop(name, None)
            # All readers read it, and it is in no store that has read it.
            obj = Kept(obj)
        if gone or _has_begun(obj):
            self._young.drop(name)
        elif self._young.get(name) is not None:
            # It is shown by its pod until the operator has looked at it.
            return
        self._tell(name, obj, gone=gone)

    def saw_pod(self, obj: Json, *, gone: bool) -> None:
        news = self._young.saw(obj, gone=gone)
        if news is None:
            return
        name, shown, over = news
        written = self._written(name)
        if over and written is None:
            self._encoded.pop(name, None)
        self._tell(name, written or shown if over else shown, gone=over and written is None)

    def is_young(self, name: str) -> bool:
        """Whether a session is only its pod, as far as the watches show."""
        return self._young.get(name) is not None and self._written(name) is None

    def _tell(self, name: str, obj: Json, *, gone: bool) -> None:
        for reader in (*self._readers.get(obj["metadata"]["namespace"], ()), *self._readers.get("", ())):
            reader.news[name] = (obj, gone)
            reader.came.set()

    def say_again(self, name: str) -> None:
        """Something is new of a CodeSandbox, NAMESPACE/NAME, that does not stand in it."""
        obj = self._young.get(name) or self._written(name)
        if obj is not None:
            self._tell(name, obj, gone=False)

    def _written(self, name: str) -> Json | None:
        namespace, _, own = name.partition("/")
        return self._store.get(Ref(CODE_SANDBOX, namespace, own))

    def _in_order(self, namespace: str, after: str = "") -> Iterator[Json]:
        """By name, from the one after `after` on, each as it is when its turn comes; without a namespace, of all."""
        young = sorted(name for one in self._young.all(namespace or None) if (name := key_of(one)) > after)
        last = ""
        for name in heapq.merge(self._store.names(CODE_SANDBOX, namespace, after), young):
            obj = self._young.get(name) or self._written(name)
            # A young session may be written down meanwhile, and has both names then.
            if obj is not None and name != last:
                yield obj
            last = name

    async def page(self, namespace: str, matches: Matches, after: str, size: int) -> tuple[list[bytes], str]:
        """So many messages by name, from the one after `after` on; and the last name, empty where no more follow.

        Without a namespace: of all.
        """
        found: list[bytes] = []
        last = ""
        async for obj in in_turns(self._in_order(namespace, after), TURN):
            if not matches(obj["metadata"].get("labels") or {}):
                continue
            try:
                encoded = self._message(obj)
            except FleetError as error:
                self.unreadable.note(CODE_SANDBOX, obj, error)
                continue
            if len(found) == size:
                return found, last
            found.append(encoded)
            last = key_of(obj)
        return found, ""

    async def watch(self, namespace: str, matches: Matches, caller: str = "") -> AsyncIterator[fleet_pb2.WatchResponse]:
        """Without a namespace: of all. Until it is closed. Raises FleetError where there are too many."""
        reader, sequence = self._joined(namespace, caller), 0
        try:
            news, synced = self._first(reader, namespace), False
            while True:
                async for obj, gone in in_turns(news, TURN):
                    for message in self._responses(obj, namespace, matches, gone=gone):
                        sequence += 1
                        message.sequence = sequence
                        yield message
                if not synced:
                    sequence += 1
                    yield fleet_pb2.WatchResponse(sequence=sequence, synced=True)
                    synced = True
                await reader.came.wait()
                reader.came.clear()
                taken, reader.news = reader.news, {}
                news = iter(taken.values())
        finally:
            self._left(reader, namespace)

    def _joined(self, namespace: str, caller: str) -> _Reader:
        readers = self._readers.get(namespace, set())
        why = (
            f"{MAX_WATCHES} watches of {caller} are open"
            if self._watches[caller] >= MAX_WATCHES
            else f"{MAX_READERS} watches of {f'namespace {namespace}' if namespace else 'all namespaces'} are open"
            if len(readers) >= MAX_READERS
            else ""
        )
        if why:
            raise ClaimReason.TOO_MANY_WATCHES.error(f"cannot watch: {why}", namespace)
        reader = _Reader(caller)
        self._readers.setdefault(namespace, readers).add(reader)
        self._watches[caller] += 1
        return reader

    def _left(self, reader: _Reader, namespace: str) -> None:
        readers = self._readers[namespace]
        readers.discard(reader)
        if not readers:
            del self._readers[namespace]
        self._watches[reader.caller] -= 1
        if not self._watches[reader.caller]:
            del self._watches[reader.caller]

    def _message(self, obj: Json) -> bytes:
        """A CodeSandbox of the store as callers see it, encoded once for all of them. Raises FleetError."""
        name = key_of(obj)
        egress = self._egress_of(name)
        known = self._encoded.get(name)
        if known is not None and known[0] is obj and known[1] == egress:
            return known[2]
        encoded = message(code_sandbox(obj), egress).SerializeToString()
        if any(one is obj for one in (self._young.get(name), self._written(name))):
            self._encoded[name] = obj, egress, encoded
        return encoded

    def _first(self, reader: _Reader, namespace: str) -> Iterator[News]:
        """What is there when a watch begins. The reader need not see it again."""
        for obj in self._in_order(namespace):
            reader.news.pop(key_of(obj), None)
            yield obj, False

    def _responses(
        self, obj: Json, namespace: str, matches: Matches, *, gone: bool
    ) -> Iterator[fleet_pb2.WatchResponse]:
        """One, or none where this watch is not for the object."""
        if namespace and obj["metadata"]["namespace"] != namespace:
            return
        try:
            labels = by_metadata(obj).meta.labels if gone else obj["metadata"].get("labels") or {}
            if matches(labels):
                yield self._response(obj, gone=gone)
        except FleetError as error:
            self.unreadable.note(CODE_SANDBOX, obj, error)
            yield from self._unreadable(obj, error, matches)

    def _response(self, obj: Json, *, gone: bool) -> fleet_pb2.WatchResponse:
        if gone:
            return fleet_pb2.WatchResponse(removed=message(by_metadata(obj), self._egress_of(key_of(obj))))
        found = fleet_pb2.WatchResponse()
        found.changed.ParseFromString(self._message(obj))
        return found

    def _unreadable(self, obj: Json, error: FleetError, matches: Matches) -> Iterator[fleet_pb2.WatchResponse]:
        for known in self.unreadable.readable(CODE_SANDBOX, [obj], by_metadata):
            if matches(known.meta.labels):
                reason, why = ClaimReason.SANDBOX_UNREADABLE.value, error.problem.message
                said = fleet_pb2.UnreadableSandbox(sandbox_id=sandbox_id(known), reason=reason, message=why)
                yield fleet_pb2.WatchResponse(unreadable=said)

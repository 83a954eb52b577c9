"""Claims that a fleet had bound and not recorded when it ended: the next leader takes them over before it serves.

The old fleet's undo of a claim may arrive at any later time. It tests the record on the pod, which the takeover
changes: a claim that the successor has answered is not undone.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from sandfleet_operator.api.kinds.sandbox import readable
from sandfleet_operator.api.kube import CODE_SANDBOX, POD, Json, Ref
from sandfleet_operator.cluster.lease import NotLeadingError
from sandfleet_operator.cluster.store import Store
from sandfleet_operator.fleet.kubernetes import adoption
from sandfleet_operator.fleet.kubernetes.writer import Writer
from sandfleet_operator.plan.claims.patches import keep_patch
from sandfleet_operator.plan.claims.record import Record
from sandfleet_operator.plan.pods import names
from sandfleet_operator.plan.pods.podspec import PodState
from sandfleet_operator.plan.sandbox.binding import told
from sandfleet_operator.plan.sandbox.observed import Pod

# Seconds that a takeover waits for pods whose record the API server does not let it change.
SETTLE_SECONDS = 10.0

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Found:
    """A pod, with the claim on it. `key` is NAMESPACE/POD."""

    key: str
    pod: Pod
    record: Record

    @property
    def ref(self) -> Ref:
        return Ref(POD, self.key.partition("/")[0], self.pod.name)

    @property
    def object(self) -> Ref:
        return Ref(CODE_SANDBOX, self.ref.namespace, self.record.object)


class UnrecordedClaims:
    """`take` hears of each claim that is this fleet's own from now on; `left` of the CodeSandbox of one that is not."""

    def __init__(
        self, store: Store, writer: Writer, *, take: Callable[[Found], None], left: Callable[[Ref], None]
    ) -> None:
        self._store = store
        self._writer = writer
        self._take = take
        self._left = left
        self._found: dict[str, Found] = {}
        self._busy: dict[str, asyncio.Task[None]] = {}

    def __contains__(self, key: str) -> bool:
        """Whether the claim of this pod is still to be settled."""
        return key in self._found or key in self._busy

    def add(self, found: Found) -> None:
        if found.key not in self:
            self._found[found.key] = found

    def begin(self) -> None:
        """What was added, in the background."""
        added, self._found = self._found, {}
        chosen, rest = choose(added.values(), self._holder)
        for one in rest:
            self._writer.discard_later(one.ref, one.pod.uid, one.record)
        for one in chosen:
            self._busy[one.key] = asyncio.create_task(self._settle(one))

    async def settled(self) -> None:
        """Returns when all that was added is settled, or nearly: a pod that cannot be changed holds up no others."""
        give_up = asyncio.get_running_loop().time() + SETTLE_SECONDS
        while self._found or self._busy:
            self.begin()
            left = give_up - asyncio.get_running_loop().time()
            if left <= 0:
                _LOG.warning("claims on %d pods are not taken over yet", len(self._busy))
                return
            if self._busy:
                await asyncio.wait(list(self._busy.values()), timeout=left)

    async def close(self) -> None:
        tasks = list(self._busy.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _holder(self, ref: Ref) -> tuple[str, Record] | None:
        """The pod that this CodeSandbox names, and its claim."""
        obj = self._store.get(ref)
        if obj is None or "deletionTimestamp" in obj["metadata"]:
            return None
        sandbox = readable(obj)
        found = told(sandbox) if sandbox is not None else None
        return (f"{ref.namespace}/{found.pod}", found.record) if found is not None else None

    async def _settle(self, found: Found) -> None:
        try:
            kept = await self._kept(found)
        except NotLeadingError:
            return
        finally:
            del self._busy[found.key]
        if kept is not None:
            self._take(replace(found, record=kept))
        else:
            self._left(found.object)

    async def _kept(self, found: Found) -> Record | None:
        """The record as it is from now on; None where the pod is not this claim's any more. Raises NotLeadingError."""
        record = found.record
        while True:
            mine = record.kept_by(self._writer.fencing())
            kept = await self._writer.patched(found.ref, keep_patch(found.pod.uid, record, mine))
            if kept is not None:
                # Its old fleet has deleted it since it was found: the claim is over.
                return None if "deletionTimestamp" in kept else mine
            there = _claim_on(await self._writer.look(found.ref), found.pod.uid)
            if there == mine:
                # By a write whose reply was lost.
                return there
            if there is None or there.number >= mine.keeper or replace(there, keeper=0) != replace(record, keeper=0):
                return None
            record = there


def choose(
    claims: Iterable[Found], holder: Callable[[Ref], tuple[str, Record] | None]
) -> tuple[list[Found], list[Found]]:
    """The claims to complete, one for each CodeSandbox, and the others, whose pods are discarded.

    `holder` says which pod the object names, and for which claim. A fleet binds a request again only if the first pod
    was lost, and of two fleets the later one leads: the later claim stays.
    """
    latest: dict[Ref, Found] = {}
    everything = list(claims)
    for one in everything:
        known = latest.get(one.object)
        if known is None or _order(known.record) < _order(one.record):
            latest[one.object] = one
    chosen = []
    for ref, one in latest.items():
        named = holder(ref)
        if named is None or named[0] == one.key or (not named[1].uid and _order(named[1]) < _order(one.record)):
            chosen.append(one)
    return chosen, [one for one in everything if one not in chosen]


def _order(record: Record) -> tuple[int, float]:
    return record.fencing, record.at


def _claim_on(obj: Json | None, uid: str) -> Record | None:
    if obj is None or obj["metadata"]["uid"] != uid:
        return None
    meta = obj["metadata"]
    claimed = (meta.get("labels") or {}).get(names.STATE) == PodState.CLAIMED.value
    alive = claimed and "deletionTimestamp" not in meta
    return adoption.record_on(meta.get("annotations") or {}) if alive else None

"""How many sandboxes of a pool to start, for which claims, and how many warm ones to end."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sandfleet_operator.api.values import Template
from sandfleet_operator.plan.scheduler.claim_queue import Waiting


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """Sandboxes of one template, and how many of them are kept warm."""

    name: str
    template: Template
    target_warm: int = 0
    # The most sandboxes of it, warm and claimed together; None: only the fleet's own bound.
    most: int | None = None
    # The most starts of it at the same time; None: only the fleet's own bound.
    max_starting: int | None = None
    # Seconds until a sandbox must be ready; None: the fleet's own bound.
    start_timeout: float | None = None
    # The revision of new sandboxes: warm ones of another revision are replaced.
    revision: str = ""
    # Why the pool may start and hand out nothing now, in one word; empty while it may.
    closed: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Supply:
    """What a pool has. `starting` counts starts for no claim in particular, `stale` warm sandboxes to replace."""

    warm: int
    starting: int
    target_warm: int
    stale: int = 0

    @property
    def surplus(self) -> int:
        """Warm sandboxes above the target."""
        return max(0, self.warm - self.target_warm)


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    # Starts that may begin now.
    slots: int
    # Sandboxes that may be added.
    sandboxes: int
    # Sandboxes that are ending: their places are free soon.
    ending: int


@dataclass(frozen=True, slots=True)
class Refill:
    """`dedicated`: claims with a start of their own; `shared`: starts for the pool; `evict`: warm ones to end."""

    dedicated: tuple[Waiting, ...] = ()
    shared: int = 0
    evict: int = 0


def refill(waiting: Iterable[Waiting], supply: Supply, room: Room) -> Refill:
    """What to start when no warm sandbox can serve a waiting claim. `waiting` is in the order of the queue.

    A claim on an earlier workspace, or with an image of its own, needs a start of its own. If warm sandboxes leave no
    room for it, one of them ends.
    """
    claims, spare = _unmet(waiting, supply.starting, room.slots)
    fresh = supply.warm - supply.stale
    wanted: list[Waiting | None] = [*claims, *[None] * max(0, supply.target_warm - fresh - spare)]
    going = wanted[: max(0, min(room.slots, room.sandboxes))]
    return Refill(
        dedicated=tuple(one for one in going if one is not None and one.claim.alone),
        shared=sum(1 for one in going if one is None or not one.claim.alone),
        evict=_in_the_way(wanted[len(going) : room.slots], supply, room) if room.sandboxes <= len(going) else 0,
    )


def refill_shared(missing: int, supply: Supply, room: Room) -> Refill:
    """The same where no claim needs a start of its own: only numbers count. `missing` is that of `missing_starts`."""
    going = max(0, min(missing, room.slots, room.sandboxes))
    replaced = bool(supply.stale) and room.sandboxes <= going < min(missing, room.slots)
    return Refill(shared=going, evict=max(0, min(1, supply.warm) - room.ending) if replaced else 0)


def missing_starts(supply: Supply, shared: int, alone: int) -> int:
    """Starts that a pool needs for claims and for its target, beside those in progress.

    `shared` of the claims can be served by any sandbox, `alone` need a start of their own.
    """
    spare = max(0, supply.starting - shared)
    unmet = alone + max(0, shared - supply.starting)
    return unmet + max(0, supply.target_warm - (supply.warm - supply.stale) - spare)


def _in_the_way(left: Sequence[Waiting | None], supply: Supply, room: Room) -> int:
    """Warm sandboxes whose place is needed: by claims with starts of their own, or by the successor of a stale one."""
    own = sum(1 for one in left if one is not None and one.claim.alone)
    replaced = 1 if left and supply.stale else 0
    return max(0, min(max(own, replaced), supply.warm) - room.ending)


def surplus(supply: Supply, kept: int = 0) -> int:
    """Warm sandboxes above the target, when no waiting claim could have them. Stale ones stay until others are warm.

    `kept` is the number of claims that only wait for quota that others have borrowed.
    """
    return max(0, supply.surplus - kept)


def _unmet(waiting: Iterable[Waiting], starting: int, most: int) -> tuple[list[Waiting], int]:
    """The first `most` claims that no start in progress will serve, and the number of starts to spare."""
    unmet: list[Waiting] = []
    for one in waiting:
        if len(unmet) >= most and starting == 0:
            break
        if one.sandbox_id:
            continue
        if not one.claim.alone and starting > 0:
            starting -= 1
        else:
            unmet.append(one)
    return unmet, starting

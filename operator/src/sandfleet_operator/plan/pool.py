"""Pools: how many sandboxes to start, and for whom; how many to end."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sandfleet_operator.api.values import Template
from sandfleet_operator.plan.queue import Waiting


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
    # Of what sandboxes are made from now: a warm one of another revision is replaced.
    revision: str = ""
    # Why nothing may be started or handed out now, in one word; empty where it may.
    closed: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Supply:
    """What a pool has. `starting` counts the starts that are for nobody in particular, `stale` the warm ones that are replaced."""

    warm: int
    starting: int
    target_warm: int
    stale: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    # Starts that may begin now.
    slots: int
    # Sandboxes that may be added.
    sandboxes: int
    # Sandboxes on their way out, whose place will be free soon.
    ending: int


@dataclass(frozen=True, slots=True)
class Refill:
    """`dedicated` are the claims to start a sandbox for, `anyones` the starts for the pool, `evict` the warm ones to end."""

    dedicated: tuple[Waiting, ...] = ()
    anyones: int = 0
    evict: int = 0


def refill(waiting: Iterable[Waiting], supply: Supply, room: Room) -> Refill:
    """What to start, with `waiting` in its order and nothing warm that one of them could have.

    A claim on an older workspace needs a start of its own. Where only warm sandboxes stand in its way, one of them is ended.
    """
    claims, spare = _unmet(waiting, supply.starting, room.slots)
    fresh = supply.warm - supply.stale
    wanted: list[Waiting | None] = [*claims, *[None] * max(0, supply.target_warm - fresh - spare)]
    going = wanted[: max(0, min(room.slots, room.sandboxes))]
    return Refill(
        dedicated=tuple(one for one in going if one is not None and one.claim.workspace_id),
        anyones=sum(1 for one in going if one is None or not one.claim.workspace_id),
        evict=_in_the_way(wanted[len(going) : room.slots], supply, room) if room.sandboxes <= len(going) else 0,
    )


def _in_the_way(left: Sequence[Waiting | None], supply: Supply, room: Room) -> int:
    """Warm sandboxes whose place is needed: for claims on older workspaces, or one stale one for its successor."""
    own = sum(1 for one in left if one is not None and one.claim.workspace_id)
    replaced = 1 if left and supply.stale else 0
    return max(0, min(max(own, replaced), supply.warm) - room.ending)


def surplus(supply: Supply) -> int:
    """Warm sandboxes that nobody needs, when no claim that could have one waits. Stale ones stay until others are warm."""
    return max(0, supply.warm - supply.target_warm)


def _unmet(waiting: Iterable[Waiting], starting: int, most: int) -> tuple[list[Waiting], int]:
    """The first `most` claims that no start in progress will serve, and the starts that are left over."""
    unmet: list[Waiting] = []
    for one in waiting:
        if len(unmet) >= most and starting == 0:
            break
        if one.sandbox_id:
            continue
        if not one.claim.workspace_id and starting > 0:
            starting -= 1
        else:
            unmet.append(one)
    return unmet, starting


@dataclass(frozen=True, slots=True)
class StartHealth:
    """Starts lost in a row, and when the next one may begin."""

    failures: int = 0
    retry_at: float = 0.0

    def after_loss(self, now: float, backoff: float, most: float) -> "StartHealth":
        failures = self.failures + 1
        return StartHealth(failures, now + min(most, backoff * 2 ** min(failures - 1, 10)))

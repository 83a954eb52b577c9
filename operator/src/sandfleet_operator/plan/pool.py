"""How many sandboxes to start, and for whom; how many to end."""

from collections.abc import Sequence
from dataclasses import dataclass

from sandfleet_operator.plan.queue import Waiting


@dataclass(frozen=True, slots=True, kw_only=True)
class Supply:
    """What a template has. `starting` counts the starts that are for nobody in particular."""

    warm: int
    starting: int
    target_warm: int


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


def refill(waiting: Sequence[Waiting], supply: Supply, room: Room) -> Refill:
    """What to start, with `waiting` in its order and nothing warm that one of them could have.

    A claim on an older workspace needs a start of its own. Where only warm sandboxes stand in its way, one of them is ended.
    """
    claims, spare = _unmet(waiting, supply.starting, room.slots)
    wanted: list[Waiting | None] = [*claims, *[None] * max(0, supply.target_warm - supply.warm - spare)]
    going = wanted[: max(0, min(room.slots, room.sandboxes))]
    left = [one for one in wanted[len(going) : room.slots] if one is not None and one.claim.workspace_id]
    return Refill(
        dedicated=tuple(one for one in going if one is not None and one.claim.workspace_id),
        anyones=sum(1 for one in going if one is None or not one.claim.workspace_id),
        evict=max(0, min(len(left), supply.warm) - room.ending) if room.sandboxes <= len(going) else 0,
    )


def surplus(supply: Supply) -> int:
    """Warm sandboxes that nobody needs, when no claim that could have one waits."""
    return max(0, supply.warm - supply.target_warm)


def _unmet(waiting: Sequence[Waiting], starting: int, most: int) -> tuple[list[Waiting], int]:
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

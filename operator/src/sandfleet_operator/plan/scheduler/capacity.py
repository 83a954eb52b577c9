"""What there is of each pool, and what there is room for. It looks and changes nothing."""

from itertools import islice

from sandfleet_operator.api.values import Sandbox, State
from sandfleet_operator.plan.scheduler.inventory import Inventory
from sandfleet_operator.plan.scheduler.limits import FleetLimits
from sandfleet_operator.plan.scheduler.refill import Pool, Room, Supply


class Capacity:
    """`max_starting` may be changed at any time: it goes with the nodes that are there."""

    def __init__(self, inventory: Inventory, limits: FleetLimits) -> None:
        self._inventory = inventory
        self._limits = limits
        self.max_starting = limits.max_starting

    def room(self, pool: Pool) -> int:
        """Sandboxes of the pool that may be added."""
        room = self._limits.max_sandboxes - len(self._inventory)
        if pool.most is None:
            return room
        return min(room, pool.most - self._inventory.count_of(pool.name, *State))

    def room_to_start(self, pool: Pool) -> Room:
        ending = self._inventory.count(State.ENDED)
        slots = self.free_slots()
        if pool.max_starting is not None:
            slots = min(slots, pool.max_starting - self._inventory.count_of(pool.name, State.STARTING))
        return Room(slots=max(0, slots), sandboxes=self.room(pool), ending=ending)

    def unmade(self, pool: Pool) -> int:
        """Starts of the pool that the backend has not confirmed yet."""
        return sum(1 for one in self._inventory.of_pool(pool.name, State.STARTING) if one.unmade)

    def free_slots(self) -> int:
        """Starts that may begin now, of all pools together."""
        replacing = 0
        if self._limits.recovers:
            replacing = sum(1 for one in self._inventory.in_state(State.RECOVERING) if one.running)
        return self.max_starting - self._inventory.count(State.STARTING) - replacing

    def has_room_on(self, workspace_id: str) -> bool:
        """Whether a sandbox may be started on this workspace (empty: a new one)."""
        if not workspace_id:
            return True
        if self._limits.keeps_workspaces:
            return workspace_id in self._inventory.kept_workspaces
        return self._inventory.has_workspace(workspace_id) is None

    def supply(self, pool: Pool) -> Supply:
        warm = self._inventory.count_of(pool.name, State.WARM)
        fresh = self._inventory.count_of_revision(pool.name, State.WARM, pool.revision)
        starting = self._inventory.of_pool(pool.name, State.STARTING)
        return Supply(
            warm=warm,
            starting=sum(1 for one in starting if one.claim is None),
            target_warm=pool.target_warm,
            stale=warm - fresh,
        )

    def missing(self, pool: Pool, waiting: int) -> int:
        """Starts that the pool needs for `waiting` claims and for its target, beside those in progress."""
        supply = self.supply(pool)
        return max(0, waiting + supply.target_warm - (supply.warm - supply.stale) - supply.starting)

    def dispensable(self, pool: Pool, many: int) -> list[Sandbox]:
        """The warm ones to end: stale ones first, then the oldest."""
        if many <= 0:
            return []
        warm = list(self._inventory.of_pool(pool.name, State.WARM))
        return list(islice(sorted(warm, key=lambda one: one.revision == pool.revision), many))

    def start_is_overdue(self, sandbox: Sandbox, now: float) -> bool:
        replaced = sandbox.state is State.RECOVERING and sandbox.running and self._limits.recovers
        return (sandbox.state is State.STARTING or replaced) and now - sandbox.started >= self._limits.start_timeout

    def lease_is_over(self, sandbox: Sandbox, now: float) -> bool:
        if sandbox.lease_expires is None or sandbox.state not in {State.CLAIMED, State.RECOVERING} or not sandbox.bound:
            return False
        # The executor ends itself first; one that is being replaced has none that could.
        grace = self._limits.lease_grace if sandbox.state is State.CLAIMED else 0.0
        return now >= sandbox.lease_expires + grace

    def lease_is_doubtful(self, sandbox: Sandbox, now: float) -> bool:
        """Whether an earlier leader may have renewed the lease, and the executor still has time to say so."""
        asked = sandbox.lease_asked
        return not sandbox.lease_known and (asked is None or now < asked + self._limits.lease_patience)

"""What there is of each pool, and what there is room for. It looks and changes nothing."""

from itertools import islice

from sandfleet_operator.api.values import Hold, Sandbox, State
from sandfleet_operator.plan.scheduler.inventory import Inventory
from sandfleet_operator.plan.scheduler.limits import FleetLimits
from sandfleet_operator.plan.scheduler.refill import Pool, Room, Supply
from sandfleet_operator.plan.scheduler.starts.shares import StartShares

# States in which a sandbox takes a place of its pool.
PLACED = tuple(state for state in State if state is not State.SUSPENDED)


class Capacity:
    """`max_starting` may be changed at any time: it goes with the nodes that are there."""

    def __init__(self, inventory: Inventory, limits: FleetLimits) -> None:
        self._inventory = inventory
        self._limits = limits
        self.max_starting = limits.max_starting
        self.shares = StartShares()

    def room(self, pool: Pool) -> int:
        """Sandboxes of the pool that may be added. A suspended one holds no place."""
        room = self._limits.max_sandboxes - (len(self._inventory) - self._inventory.count(State.SUSPENDED))
        if pool.most is None:
            return room
        return min(room, pool.most - self._inventory.count_of(pool.name, *PLACED))

    def begun(self, pool: str) -> int:
        """Starts of the pool that nodes are at work on, those of resumed sessions included."""
        return self._inventory.count_of(pool, State.STARTING, State.RESUMING) - self._inventory.held(pool)

    def room_to_start(self, pool: Pool, room: int) -> Room:
        """As `want` has said last what the pool wants. `room`: the pool's."""
        slots = self.share(pool) - self.begun(pool.name)
        return Room(slots=max(0, slots), sandboxes=room, ending=self._inventory.count(State.ENDED))

    def share(self, pool: Pool) -> int:
        """Starts that the pool may have in progress."""
        total = self.max_starting - self._replacing()
        return self.shares.share(pool.name, total) if total > 0 else 0

    def want(self, pool: Pool, more: int, room: int) -> None:
        """The pool wants so many more starts, for claims and for its target. `room`: the pool's.

        Starts that wait for a node take no slot of other pools; more of them than slots would only wait as well.
        """
        starting = self.begun(pool.name)
        if held := self._inventory.held(pool.name):
            more = min(more, max(0, self.max_starting - starting - held))
        # A pool that is full may still replace a warm sandbox.
        more = min(more, max(1, room))
        if pool.max_starting is not None:
            more = min(more, pool.max_starting - starting)
        self.shares.want(pool.name, starting + max(0, more))

    def reach(self, pool: Pool) -> int:
        """Sandboxes that a gang could have: those that are warm, that are being started for the pool, and the room."""
        warm = self._inventory.count_of(pool.name, State.WARM)
        return warm + self._inventory.shared_starts(pool.name) + max(0, self.room(pool))

    def most_starts(self, pool: Pool, room: int) -> int:
        """More starts of the pool than this cannot be in progress, for however many claims. `room`: the pool's."""
        starting = self._inventory.count_of(pool.name, State.STARTING)
        return starting + min(max(1, room), self.max_starting)

    def unmade(self, pool: Pool) -> int:
        """Starts of the pool that the backend has not confirmed yet."""
        return self._inventory.unmade(pool.name)

    def free_slots(self) -> int:
        """Starts that may begin now, of all pools together."""
        begun = self._inventory.count(State.STARTING) + self._inventory.count(State.RESUMING)
        return self.max_starting - (begun - self._inventory.held()) - self._replacing()

    def _replacing(self) -> int:
        if not self._limits.recovers:
            return 0
        return sum(1 for one in self._inventory.in_state(State.RECOVERING) if one.running)

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
        return Supply(
            warm=warm,
            starting=self._inventory.shared_starts(pool.name),
            target_warm=pool.target_warm,
            stale=warm - fresh,
        )

    def rest(self, pool: Pool) -> None:
        """The pool starts nothing for now."""
        self.shares.want(pool.name, self.begun(pool.name))

    def dispensable(self, pool: Pool, many: int) -> list[Sandbox]:
        """The warm ones to end: stale ones first, then the oldest."""
        return list(islice(self._inventory.of_pool(pool.name, State.WARM, last=pool.revision), max(0, many)))

    def start_is_overdue(self, sandbox: Sandbox, timeout: float, now: float) -> bool:
        replaced = sandbox.state is State.RECOVERING and sandbox.running and self._limits.recovers
        begun = sandbox.state in {State.STARTING, State.RESUMING}
        since = max(sandbox.started, sandbox.clock)
        return (begun or replaced) and now - since >= self.patience_with(sandbox.hold, timeout)

    def patience_with(self, hold: Hold, timeout: float) -> float:
        """Seconds that a start may take, or stand, where `timeout` is that of its pool."""
        return self._limits.hold_timeouts.get(hold, timeout)

    def misplaced(self, pool: Pool, surplus: int) -> list[Sandbox]:
        """Starts without a node that are to end: those of an earlier revision, and `surplus` of those for no claim."""
        if not self._inventory.held(pool.name):
            return []
        held = [one for one in self._inventory.of_pool(pool.name, State.STARTING) if not one.hold.has_node]
        stale = [one for one in held if one.revision != pool.revision]
        spare = [one for one in held if one.revision == pool.revision and one.claim is None]
        return [*stale, *spare[: max(0, surplus - sum(one.claim is None for one in stale))]]

    def lease_is_over(self, sandbox: Sandbox, now: float) -> bool:
        if sandbox.lease_expires is None or sandbox.state not in {State.CLAIMED, State.RECOVERING} or not sandbox.bound:
            return False
        # The executor ends itself first; one that is being replaced has none that could.
        settles = sandbox.claim.settles if sandbox.claim is not None else 0.0
        grace = self._limits.lease_grace + settles if sandbox.state is State.CLAIMED else 0.0
        return now >= sandbox.lease_expires + grace

    def lease_is_doubtful(self, sandbox: Sandbox, now: float) -> bool:
        """Whether an earlier leader may have renewed the lease, and the executor still has time to say so."""
        asked = sandbox.lease_asked
        return not sandbox.lease_known and (asked is None or now < asked + self._limits.lease_patience)

"""All sandboxes and waiting claims at one moment, indexed for the decisions. It decides nothing."""

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain

from sandfleet_operator.api.values import RequestKey, Sandbox, State
from sandfleet_operator.plan.scheduler.claim_queue import Waiting
from sandfleet_operator.plan.scheduler.queues.ledger import Ledger
from sandfleet_operator.plan.scheduler.queues.quota import Vector, vector
from sandfleet_operator.plan.scheduler.sessions.ends import EndsOfSessions


class Inventory:
    def __init__(self) -> None:
        self._sandboxes: dict[str, Sandbox] = {}
        self._by_uid: dict[str, str] = {}
        self._by_state: dict[State, dict[str, None]] = {state: {} for state in State}
        # Pool and state → revision → ids.
        self._by_pool: dict[tuple[str, State], dict[str, dict[str, None]]] = {}
        # Pool and state → how many, so that no decision counts them.
        self._many: Counter[tuple[str, State]] = Counter()
        self._by_claim: dict[RequestKey, str] = {}
        self._by_workspace: dict[str, str] = {}
        # Queue → ids of the sandboxes that serve a claim of it.
        self._by_queue: dict[str, dict[str, None]] = {}
        self.waiting: dict[RequestKey, Waiting] = {}
        # Workspaces of released sessions that no sandbox has.
        self.kept_workspaces: set[str] = set()
        self._changed: set[str] = set()
        # Pool → starts for no claim in particular, and starts that the backend has not confirmed yet.
        self._shared_starts: Counter[str] = Counter()
        self._unmade: Counter[str] = Counter()
        # Pool → starts that no node has.
        self._held: Counter[str] = Counter()
        # What sandboxes and others use of the quotas of queues.
        self.ledger = Ledger()
        self.ends = EndsOfSessions(self._sandboxes)

    def __len__(self) -> int:
        return len(self._sandboxes)

    def take_changed(self) -> set[str]:
        """The ids of the sandboxes that were put or removed since the last call."""
        changed, self._changed = self._changed, set()
        return changed

    def put(self, sandbox: Sandbox) -> None:
        old = self._sandboxes.get(sandbox.sandbox_id)
        self._changed.add(sandbox.sandbox_id)
        self._account(old, sandbox)
        if old is None or not _is_indexed_alike(old, sandbox):
            self._forget(sandbox.sandbox_id)
            self._index(sandbox)
        self._sandboxes[sandbox.sandbox_id] = sandbox
        self.ends.note(sandbox)
        if sandbox.bound and sandbox.claim is not None and sandbox.state is not State.ENDED:
            self._by_claim[sandbox.claim.key] = sandbox.sandbox_id

    def remove(self, sandbox_id: str) -> None:
        self._changed.add(sandbox_id)
        self._account(self._sandboxes.get(sandbox_id), None)
        self._forget(sandbox_id)
        del self._sandboxes[sandbox_id]

    def get(self, sandbox_id: str) -> Sandbox | None:
        return self._sandboxes.get(sandbox_id)

    def of_incarnation(self, sandbox_uid: str) -> Sandbox | None:
        """The sandbox whose present incarnation this is."""
        return self._sandboxes.get(self._by_uid.get(sandbox_uid, ""))

    def of_session(self, key: RequestKey) -> Sandbox | None:
        """The sandbox that a claim was answered with, while it lives."""
        return self._sandboxes.get(self._by_claim.get(key, ""))

    def keys_of(self, holder: str, request_id: str) -> list[RequestKey]:
        """Of the claims of this caller with this id, at any pool, that wait or have their sandbox."""
        keys = chain(self.waiting, self._by_claim)
        return [key for key in keys if key.request_id == request_id and key.holder == holder]

    def all(self) -> Iterable[Sandbox]:
        return list(self._sandboxes.values())

    def in_state(self, state: State) -> list[Sandbox]:
        """The longest in that state first."""
        return [self._sandboxes[name] for name in self._by_state[state]]

    def count(self, state: State) -> int:
        return len(self._by_state[state])

    def of_pool(self, pool: str, state: State, *, last: str | None = None) -> Iterator[Sandbox]:
        """Revision `last` last; within a revision the longest in that state first. Do not change them meanwhile."""
        revisions = self._by_pool.get((pool, state), {})
        for revision in sorted(revisions, key=lambda one: one == last):
            yield from (self._sandboxes[name] for name in revisions[revision])

    def first_of(self, pool: str, state: State, revision: str) -> Sandbox | None:
        """Of this revision before all others, and of those the one that is longest in that state."""
        revisions = self._by_pool.get((pool, state))
        if not revisions:
            return None
        return self._sandboxes[next(iter(revisions.get(revision) or next(iter(revisions.values()))))]

    def count_of(self, pool: str, *states: State) -> int:
        many = self._many
        if len(states) == 1:
            return many.get((pool, states[0]), 0)
        return sum([many.get((pool, state), 0) for state in states])

    def count_of_revision(self, pool: str, state: State, revision: str) -> int:
        return len(self._by_pool.get((pool, state), {}).get(revision, ()))

    def shared_starts(self, pool: str) -> int:
        """Sandboxes of the pool that are being started for no claim in particular."""
        return self._shared_starts[pool]

    def unmade(self, pool: str) -> int:
        """Starts of the pool that the backend has not confirmed yet."""
        return self._unmade[pool]

    def held(self, pool: str | None = None) -> int:
        """Starts of the pool, or of all, that no node has."""
        return self._held.total() if pool is None else self._held[pool]

    def serving(self, queue: str) -> list[Sandbox]:
        """The sandboxes that serve claims of the queue."""
        return [self._sandboxes[name] for name in self._by_queue.get(queue, ())]

    def has_workspace(self, workspace_id: str) -> Sandbox | None:
        return self._sandboxes.get(self._by_workspace.get(workspace_id, ""))

    def _account(self, old: Sandbox | None, new: Sandbox | None) -> None:
        """A claim uses its queue's quota from its nomination to the end of its process."""
        if old is not None and new is not None and old.claim is new.claim and old.state is new.state:
            return
        before, after = _charge(old), _charge(new)
        if before == after:
            return
        if after is not None:
            self.ledger.charge(*after)
        if before is not None:
            self.ledger.discharge(*before)

    def _index(self, sandbox: Sandbox) -> None:
        self._by_state[sandbox.state][sandbox.sandbox_id] = None
        self._count_start(sandbox, 1)
        revisions = self._by_pool.setdefault((sandbox.pool, sandbox.state), {})
        revisions.setdefault(sandbox.revision, {})[sandbox.sandbox_id] = None
        self._many[sandbox.pool, sandbox.state] += 1
        self._by_uid[sandbox.sandbox_uid] = sandbox.sandbox_id
        self._by_workspace[sandbox.workspace_id] = sandbox.sandbox_id
        if (queue := _served(sandbox)) is not None:
            self._by_queue.setdefault(queue, {})[sandbox.sandbox_id] = None

    def _forget(self, sandbox_id: str) -> None:
        old = self._sandboxes.get(sandbox_id)
        if old is None:
            return
        del self._by_state[old.state][sandbox_id]
        self._count_start(old, -1)
        self._forget_place(old)
        if (queue := _served(old)) is not None:
            del self._by_queue[queue][sandbox_id]
            if not self._by_queue[queue]:
                del self._by_queue[queue]
        del self._by_uid[old.sandbox_uid]
        if self._by_workspace.get(old.workspace_id) == sandbox_id:
            del self._by_workspace[old.workspace_id]
        if old.claim is not None and self._by_claim.get(old.claim.key) == sandbox_id:
            del self._by_claim[old.claim.key]

    def _count_start(self, sandbox: Sandbox, by: int) -> None:
        if not sandbox.hold.has_node and sandbox.state in {State.STARTING, State.RESUMING}:
            self._held[sandbox.pool] += by
        if sandbox.state is State.STARTING:
            self._shared_starts[sandbox.pool] += by if sandbox.claim is None else 0
            self._unmade[sandbox.pool] += by if sandbox.unmade else 0

    def _forget_place(self, old: Sandbox) -> None:
        self._many[old.pool, old.state] -= 1
        revisions = self._by_pool[old.pool, old.state]
        del revisions[old.revision][old.sandbox_id]
        if not revisions[old.revision]:
            del revisions[old.revision]
        if not revisions:
            del self._by_pool[old.pool, old.state]


def _served(sandbox: Sandbox) -> str | None:
    """The queue of the claim that the sandbox serves, empty without one; None where it serves none."""
    return sandbox.claim.queue if sandbox.state is State.CLAIMED and sandbox.claim is not None else None


def _is_indexed_alike(one: Sandbox, other: Sandbox) -> bool:
    """Whether no index but that of the claims tells them apart."""
    return (
        one.state is other.state
        and one.sandbox_uid == other.sandbox_uid
        and one.claim is other.claim
        and one.unmade == other.unmade
        and one.hold is other.hold
        and one.revision == other.revision
        and one.workspace_id == other.workspace_id
        and one.pool == other.pool
    )


def _charge(sandbox: Sandbox | None) -> tuple[str, Vector] | None:
    """The queue whose quota the sandbox uses, and how much of it; None where it uses none, as while it is suspended.

    One whose session is over uses it until its process is gone.
    """
    claim = sandbox.claim if sandbox is not None and sandbox.state is not State.SUSPENDED else None
    if claim is None or not claim.queue or claim.amount is None:
        return None
    return claim.queue, vector(claim.amount)

"""The fleet's decisions: one event in, actions out, time as an argument. It has no effects of its own."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from sandfleet_operator.api.errors import Code, FleetError, Problem
from sandfleet_operator.api.values import Claim, Exit, RequestKey, Sandbox, State
from sandfleet_operator.plan import lifecycle
from sandfleet_operator.plan.actions import Action, Answer, Gone, Lost, Taken
from sandfleet_operator.plan.admission import admit
from sandfleet_operator.plan.inventory import Inventory
from sandfleet_operator.plan.lifecycle import Step
from sandfleet_operator.plan.lines import Books, Level, Lines, level
from sandfleet_operator.plan.memory import Memory
from sandfleet_operator.plan.policy import Policy
from sandfleet_operator.plan.pool import Pool, StartHealth, refill, surplus
from sandfleet_operator.plan.queue import FirstComeFirstServed, Line, Queued, Waiting, observed, overdue_problem
from sandfleet_operator.plan.stock import Stock

REMEMBERED = 16384
# Problems that no other sandbox would solve.
HOPELESS = frozenset({Code.FAILED_PRECONDITION, Code.INVALID_ARGUMENT})


class Engine:
    """Events are methods; each returns what is to be done because of it. Not for several threads."""

    def __init__(
        self,
        pools: Iterable[Pool],
        policy: Policy,
        *,
        new_id: Callable[[str], str],
        new_line: Callable[[], Line] = FirstComeFirstServed,
    ) -> None:
        """`new_id` makes a name for something of the pool that it is given."""
        self.policy = policy
        self.inventory = Inventory()
        self.stock = Stock(self.inventory, policy)
        self._new_id = new_id
        self._arrivals = 0
        self._lines = Lines(self.inventory, new_line, pools)
        self._ended_claims: Memory[RequestKey, Problem] = Memory(REMEMBERED)
        self._ended_sandboxes: Memory[str, str] = Memory(REMEMBERED)

    # What people declare.

    @property
    def pools(self) -> list[Pool]:
        return [books.pool for books in self._lines.all()]

    def pool(self, name: str) -> Pool | None:
        books = self._lines.get(name)
        return books.pool if books else None

    def level(self, name: str) -> Level:
        """How full a pool is, and why it is not fuller."""
        books = self._lines.get(name)
        assert books is not None, "the pool was asked for by its name"
        return level(books, self.inventory, self.stock)

    def set_pool(self, pool: Pool, now: float) -> list[Action]:
        """There is this pool from now on, or it has changed. Its template's isolation and limits hold for later claims."""
        books = self._lines.get(pool.name)
        if books is None:
            self._lines.open(pool)
        elif books.pool == pool:
            return []
        else:
            books.pool = pool
        return self._settle(now, pool.name)

    def remove_pool(self, name: str, now: float) -> list[Action]:
        """Its claims are refused, and what serves nobody ends."""
        if self._lines.get(name) is None:
            return []
        actions: list[Action] = []
        problem = Problem(Code.NOT_FOUND, "PoolNotFound", f"cannot claim: pool {name} is gone", name)
        for waiting in [one for one in self.inventory.waiting.values() if one.claim.pool == name]:
            if not self._lines.is_binding(waiting):
                actions += self._refuse(waiting, problem, now)
        for state in (State.STARTING, State.WARM):
            for sandbox in list(self.inventory.of_pool(name, state)):
                actions += self._take(sandbox, lifecycle.ended(sandbox, "PoolRemoved"), now)
        self._lines.close(name)
        return actions

    # What callers do.

    def knows(self, key: RequestKey) -> bool:
        """Whether this claim waits, was answered, or has ended not long ago."""
        return any((self.inventory.waiting.get(key), self.inventory.of_session(key), self._ended_claims.get(key)))

    def ask(self, claim: Claim, now: float) -> list[Action]:
        """A claim arrives, perhaps not for the first time. Raises FleetError where it can never be served."""
        if claim.key in self.inventory.waiting:
            return []
        session = self.inventory.of_session(claim.key)
        if session is not None:
            return [Answer(claim.key, self.session(session.sandbox_id, now))]
        if (problem := self._ended_claims.get(claim.key)) is not None:
            raise FleetError(problem)
        admit(claim, self.pool(claim.pool), self.inventory, self.policy)
        self._arrivals += 1
        self._lines.arrive(Waiting(claim=claim, number=self._arrivals, asked=now, deadline=now + claim.max_wait))
        return self._settle(now, claim.pool)

    def leave(self, key: RequestKey, now: float) -> list[Action]:
        """Nobody waits for this claim any more: it is undone, unless it was answered."""
        waiting = self.inventory.waiting.get(key)
        if waiting is None:
            return []
        return [*self._withdraw(key, now), *self._settle(now, waiting.claim.pool)]

    def release(self, sandbox_id: str, now: float) -> list[Action]:
        """The session is over."""
        sandbox = self.inventory.get(sandbox_id)
        if sandbox is None:
            return []
        return self._taken_and_settled(sandbox, lifecycle.ended(sandbox, "Released"), now)

    def renew(self, sandbox_id: str, lease: float, now: float) -> Sandbox:
        """The executor has taken a new lease. Raises FleetError where the session ended meanwhile."""
        sandbox = replace(self.session(sandbox_id, now), lease_expires=now + lease)
        self.inventory.put(sandbox)
        return sandbox

    def discard(self, sandbox_id: str, reason: str, now: float) -> list[Action]:
        """A warm sandbox is no good any more."""
        sandbox = self.inventory.get(sandbox_id)
        if sandbox is None or sandbox.state is not State.WARM:
            return []
        return self._taken_and_settled(sandbox, lifecycle.ended(sandbox, reason), now)

    # What sandboxes do. An incarnation that is not the present one is of no interest.

    def ready(self, sandbox_uid: str, now: float) -> list[Action]:
        """The executor answers and is what was asked for."""
        sandbox = self.inventory.of_incarnation(sandbox_uid)
        if sandbox is None:
            return []
        books = self._lines.get(sandbox.pool)
        if sandbox.state is State.STARTING and books is not None:
            books.start_seconds = observed(books.start_seconds, now - sandbox.started)
            books.health, books.trouble = StartHealth(), ""
        return self._taken_and_settled(sandbox, lifecycle.ready(sandbox, now), now)

    def bound(self, sandbox_uid: str, now: float) -> list[Action]:
        """The executor is open for its claim."""
        sandbox = self.inventory.of_incarnation(sandbox_uid)
        if sandbox is None:
            return []
        first = not sandbox.bound
        actions = self._take(sandbox, lifecycle.bound(sandbox), now)
        if first:
            actions += self._begin_session(sandbox.sandbox_id)
        return [*actions, *self._settle(now, sandbox.pool)]

    def unfit(self, sandbox_uid: str, problem: Problem, now: float) -> list[Action]:
        """The executor is not what was asked for, or cannot be opened."""
        sandbox = self.inventory.of_incarnation(sandbox_uid)
        if sandbox is None:
            return []
        return self._taken_and_settled(sandbox, lifecycle.unfit(sandbox, problem), now)

    def exited(self, sandbox_uid: str, end: Exit, now: float) -> list[Action]:
        """The process is gone."""
        sandbox = self.inventory.of_incarnation(sandbox_uid)
        if sandbox is None:
            return []
        return self._taken_and_settled(sandbox, lifecycle.exited(sandbox, end, now, self.policy), now)

    # What others do, where the fleet is not the only one.

    def adopt(self, sandbox: Sandbox, now: float) -> list[Action]:
        """It is there since before this fleet, or somebody else has made it."""
        if self.inventory.get(sandbox.sandbox_id) is not None:
            return []
        self.inventory.put(sandbox)
        self.inventory.kept_workspaces.discard(sandbox.workspace_id)
        waited = sandbox.claim is not None and self._lines.leave(sandbox.claim.key) is not None
        answer: list[Action] = [Answer(sandbox.claim.key, sandbox)] if waited and sandbox.claim else []
        return [*answer, *self._settle(now, sandbox.pool)]

    def taken(self, sandbox_uid: str, now: float) -> list[Action]:
        """Somebody else has it: a claim that was to get it waits again, in its old place."""
        sandbox = self.inventory.of_incarnation(sandbox_uid)
        if sandbox is None:
            return []
        return self._taken_and_settled(sandbox, lifecycle.taken(sandbox), now)

    def recovered(self, sandbox_id: str, sandbox_uid: str, now: float) -> list[Action]:
        """Somebody else has replaced the executor of a session."""
        sandbox = self.inventory.get(sandbox_id)
        if sandbox is None or sandbox.state is not State.RECOVERING:
            return []
        return self._taken_and_settled(sandbox, lifecycle.recovered(sandbox, sandbox_uid, now), now)

    def removed(self, sandbox_id: str, reason: str, now: float) -> list[Action]:
        """Somebody else has ended it, with all that belongs to it."""
        sandbox = self.inventory.get(sandbox_id)
        if sandbox is None:
            return []
        return self._taken_and_settled(sandbox, lifecycle.removed(sandbox, reason), now)

    # What time does.

    def tick(self, now: float) -> list[Action]:
        """Time has passed: to be called often enough for the deadlines to be kept."""
        actions: list[Action] = []
        for waiting in list(self.inventory.waiting.values()):
            if now >= waiting.deadline and not self._lines.is_binding(waiting):
                actions += self._refuse(waiting, self._overdue(waiting), now)
        for sandbox in self.inventory.all():
            if self.stock.start_is_overdue(sandbox, now):
                why = f"cannot start a sandbox: not ready within {self.policy.start_timeout:g} s"
                actions += self._take(
                    sandbox, lifecycle.unfit(sandbox, Problem(Code.INTERNAL, "StartTimeout", why)), now
                )
            elif self.stock.lease_is_over(sandbox, now):
                actions += self._take(sandbox, lifecycle.ended(sandbox, "LeaseExpired"), now)
        for books in self._lines.all():
            actions += self._settle(now, books.pool.name)
        return actions

    # What people ask.

    def session(self, sandbox_id: str, now: float) -> Sandbox:
        """A sandbox that somebody holds. Raises FleetError with NOT_FOUND."""
        sandbox = self.inventory.get(sandbox_id)
        live = sandbox is not None and sandbox.bound and sandbox.state is not State.ENDED
        if sandbox is not None and live and (sandbox.lease_expires is None or now < sandbox.lease_expires):
            return sandbox
        reason = "LeaseExpired" if live else self._ended_sandboxes.get(sandbox_id)
        why = f"it ended: {reason}" if reason else "there is none of that id"
        raise FleetError(
            Problem(
                Code.NOT_FOUND, "SandboxNotFound", f"cannot find sandbox {sandbox_id[:80]!r}: {why}", sandbox_id[:80]
            )
        )

    def standings(self, now: float, only: RequestKey | None = None) -> dict[RequestKey, Queued]:
        """Where each waiting claim stands, or one of them."""
        return self._lines.standings(self.stock, now, only)

    # Bookkeeping.

    def _take(self, sandbox: Sandbox, step: Step, now: float) -> list[Action]:
        after = step.sandbox
        if after is None:
            self.inventory.remove(sandbox.sandbox_id)
        else:
            self.inventory.put(after)
        gone = next((one.sandbox for one in step.actions if isinstance(one, Gone)), None)
        if gone is not None and gone.keeps_workspace and self.policy.keeps_workspaces:
            self.inventory.kept_workspaces.add(gone.workspace_id)
        last = gone or after
        if sandbox.bound and last is not None and last.state is State.ENDED and sandbox.state is not State.ENDED:
            self._remember_end(last)
        actions = list(step.actions)
        if isinstance(step.outcome, Lost):
            actions += self._lost(sandbox, step.outcome, now)
        elif isinstance(step.outcome, Taken):
            self._lines.wait_again(step.outcome.key, failures=0)
        return actions

    def _taken_and_settled(self, sandbox: Sandbox, step: Step, now: float) -> list[Action]:
        return [*self._take(sandbox, step, now), *self._settle(now, sandbox.pool)]

    def _remember_end(self, sandbox: Sandbox) -> None:
        assert sandbox.claim is not None
        why = f"cannot claim: the sandbox of this request ended: {sandbox.ended_reason}"
        problem = Problem(Code.FAILED_PRECONDITION, "ClaimEnded", why, sandbox.sandbox_id)
        if not sandbox.claim.object_uid:
            # An object says itself whether it wants another pod.
            self._ended_claims.put(sandbox.claim.key, problem)
        self._ended_sandboxes.put(sandbox.sandbox_id, sandbox.ended_reason)

    def _begin_session(self, sandbox_id: str) -> list[Action]:
        sandbox = self.inventory.get(sandbox_id)
        if sandbox is None or not sandbox.bound or sandbox.claim is None:
            return []
        self._lines.leave(sandbox.claim.key)
        books = self._lines.get(sandbox.pool)
        if books is not None:
            books.hits.append(sandbox.warm)
        return [Answer(sandbox.claim.key, sandbox)]

    def _lost(self, sandbox: Sandbox, lost: Lost, now: float) -> list[Action]:
        actions: list[Action] = []
        if lost.claim is not None:
            actions += self._wait_again(lost.claim.key, lost.problem, now)
        # What a claim itself brings, such as a workspace, says nothing about its pool.
        if lost.problem.code is Code.INVALID_ARGUMENT or (lost.claim is not None and lost.claim.workspace_id):
            return actions
        policy, books = self.policy, self._lines.get(sandbox.pool)
        if books is None:
            return actions
        books.trouble = lost.problem.message
        books.health = books.health.after_loss(now, policy.start_backoff, policy.max_start_backoff)
        if books.health.failures >= policy.start_attempts or lost.problem.code in HOPELESS:
            for waiting in list(books.line):
                actions += self._refuse(waiting, lost.problem, now)
        return actions

    def _wait_again(self, key: RequestKey, problem: Problem, now: float) -> list[Action]:
        waiting = self._lines.wait_again(key, failures=1)
        if waiting is None:
            return []
        if waiting.failures >= self.policy.start_attempts or problem.code in HOPELESS:
            return self._refuse(waiting, problem, now)
        return []

    def _refuse(self, waiting: Waiting, problem: Problem, now: float) -> list[Action]:
        return [*self._withdraw(waiting.claim.key, now), Answer(waiting.claim.key, problem)]

    def _withdraw(self, key: RequestKey, now: float) -> list[Action]:
        waiting = self._lines.leave(key)
        sandbox = self.inventory.get(waiting.sandbox_id) if waiting else None
        if sandbox is None:
            return []
        return self._take(sandbox, lifecycle.ended(sandbox, "ClaimUndone"), now)

    def _overdue(self, waiting: Waiting) -> Problem:
        books = self._lines.get(waiting.claim.pool)
        assert books is not None, "a claim waits at a pool"
        return overdue_problem(waiting, full=self.stock.room(books.pool) <= 0, closed=books.pool.closed)

    # After each event: 1 bind what is warm, 2 replace what crashed, 3 start what is missing, 4 end what is too much.

    def _settle(self, now: float, name: str) -> list[Action]:
        books = self._lines.get(name)
        if books is None:
            return self._replace_crashed(now)
        return [*self._bind_warm(books, now), *self._replace_crashed(now), *self._refill(books, now)]

    def _bind_warm(self, books: Books, now: float) -> list[Action]:
        if books.pool.closed or not self.inventory.count_of(books.pool.name, State.WARM):
            return []
        actions: list[Action] = []
        warm = self.inventory.of_pool(books.pool.name, State.WARM, books.pool.revision)
        # Lazily: of a long line only those are looked at that get one.
        ready = (one for one in books.line if not one.claim.workspace_id)
        for waiting, sandbox in list(zip(ready, warm, strict=False)):
            self._reserve(waiting, sandbox)
            actions += self._take(sandbox, lifecycle.assigned(sandbox, waiting, now), now)
        return actions

    def _reserve(self, waiting: Waiting, sandbox: Sandbox) -> None:
        self._lines.wait(replace(waiting, sandbox_id=sandbox.sandbox_id))

    def _replace_crashed(self, now: float) -> list[Action]:
        if not self.inventory.count(State.RECOVERING):
            return []
        actions: list[Action] = []
        slots = self.stock.free_slots()
        for sandbox in self.inventory.in_state(State.RECOVERING):
            if slots > 0 and not sandbox.running and sandbox.replace_at is not None and now >= sandbox.replace_at:
                slots -= 1
                actions += self._take(sandbox, lifecycle.replaced(sandbox, self._new_id(sandbox.pool), now), now)
        return actions

    def _refill(self, books: Books, now: float) -> list[Action]:
        pool = books.pool
        if pool.closed or now < books.health.retry_at:
            return []
        supply, room = self.stock.supply(pool), self.stock.room_to_start(pool)
        plan = refill(self._startable(books) if room.slots > 0 else (), supply, room)
        actions: list[Action] = []
        for waiting in plan.dedicated:
            actions += self._start(pool, waiting, now)
        for _ in range(plan.anyones):
            actions += self._start(pool, None, now)
        for sandbox in self.stock.dispensable(pool, plan.evict or surplus(supply)):
            actions += self._take(sandbox, lifecycle.ended(sandbox, "NotNeeded"), now)
        return actions

    def _startable(self, books: Books) -> Iterator[Waiting]:
        return (one for one in books.line if self.stock.has_room_on(one.claim.workspace_id))

    def _start(self, pool: Pool, waiting: Waiting | None, now: float) -> list[Action]:
        claim = waiting.claim if waiting else None
        name = self._new_id(pool.name)
        sandbox = Sandbox(
            sandbox_id=name,
            sandbox_uid=self._new_id(pool.name) if self.policy.recovers else name,
            pool=pool.name,
            template=pool.template.name,
            workspace_id=claim.workspace_id if claim else self._new_id(pool.name),
            state=State.STARTING,
            created=now,
            started=now,
            isolation=pool.template.isolation,
            revision=pool.revision,
            claim=claim,
        )
        if waiting is not None:
            self._reserve(waiting, sandbox)
        self.inventory.kept_workspaces.discard(sandbox.workspace_id)
        return self._take(sandbox, lifecycle.started(sandbox), now)

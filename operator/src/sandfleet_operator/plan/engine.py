"""The fleet's decisions: one event in, actions out, time as an argument. It has no effects of its own."""

from collections.abc import Callable, Mapping
from dataclasses import replace

from sandfleet_operator.api.errors import Code, FleetError, Problem
from sandfleet_operator.api.values import Claim, Exit, RequestKey, Sandbox, State, Template
from sandfleet_operator.plan import lifecycle, pool
from sandfleet_operator.plan.actions import Action, Answer, Gone, Lost
from sandfleet_operator.plan.admission import admit
from sandfleet_operator.plan.inventory import Inventory
from sandfleet_operator.plan.lifecycle import Step
from sandfleet_operator.plan.memory import Memory
from sandfleet_operator.plan.policy import Policy
from sandfleet_operator.plan.queue import (
    Order,
    Outlook,
    Queued,
    Waiting,
    first_come_first_served,
    observed,
    overdue_problem,
    standing,
)

REMEMBERED = 16384
# Problems that no other sandbox would solve.
HOPELESS = frozenset({Code.FAILED_PRECONDITION, Code.INVALID_ARGUMENT})


class Engine:
    """Events are methods; each returns what is to be done because of it. Not for several threads."""

    def __init__(
        self,
        templates: Mapping[str, Template],
        policy: Policy,
        *,
        new_id: Callable[[], str],
        order: Order = first_come_first_served,
    ) -> None:
        self.templates = templates
        self.policy = policy
        self.inventory = Inventory()
        self._new_id = new_id
        self._order = order
        self._arrivals = 0
        self._health = dict.fromkeys(templates, pool.StartHealth())
        self._start_seconds: float | None = None
        self._ended_claims: Memory[RequestKey, Problem] = Memory(REMEMBERED)
        self._ended_sandboxes: Memory[str, str] = Memory(REMEMBERED)

    # What callers do.

    def ask(self, claim: Claim, now: float) -> list[Action]:
        """A claim arrives, perhaps not for the first time. Raises FleetError where it can never be served."""
        if claim.key in self.inventory.waiting:
            return []
        session = self.inventory.of_session(claim.key)
        if session is not None:
            return [Answer(claim.key, self.session(session.sandbox_id, now))]
        problem = self._ended_claims.get(claim.key)
        if problem is not None:
            raise FleetError(problem)
        admit(claim, self.templates, self.inventory, self.policy)
        self._arrivals += 1
        self.inventory.waiting[claim.key] = Waiting(
            claim=claim, number=self._arrivals, asked=now, deadline=now + claim.max_wait
        )
        return self._settle(now)

    def leave(self, key: RequestKey, now: float) -> list[Action]:
        """Nobody waits for this claim any more: it is undone, unless it was answered."""
        return [*self._withdraw(key, now), *self._settle(now)]

    def release(self, sandbox_id: str, now: float) -> list[Action]:
        """The session is over."""
        sandbox = self.inventory.get(sandbox_id)
        if sandbox is None:
            return []
        return [*self._take(sandbox, lifecycle.ended(sandbox, "Released"), now), *self._settle(now)]

    def renew(self, sandbox_id: str, lease: float, now: float) -> Sandbox:
        """The executor has taken a new lease. Raises FleetError where the session ended meanwhile."""
        sandbox = replace(self.session(sandbox_id, now), lease_expires=now + lease)
        self.inventory.put(sandbox)
        return sandbox

    # What sandboxes do. An incarnation that is not the present one is of no interest.

    def ready(self, sandbox_uid: str, now: float) -> list[Action]:
        """The executor answers and is what was asked for."""
        sandbox = self.inventory.of_incarnation(sandbox_uid)
        if sandbox is None:
            return []
        if sandbox.state is State.STARTING:
            self._start_seconds = observed(self._start_seconds, now - sandbox.started)
            self._health[sandbox.template] = pool.StartHealth()
        return [*self._take(sandbox, lifecycle.ready(sandbox, now), now), *self._settle(now)]

    def bound(self, sandbox_uid: str, now: float) -> list[Action]:
        """The executor is open for its claim."""
        sandbox = self.inventory.of_incarnation(sandbox_uid)
        if sandbox is None:
            return []
        first = not sandbox.bound
        actions = self._take(sandbox, lifecycle.bound(sandbox), now)
        if first:
            actions += self._begin_session(sandbox.sandbox_id)
        return [*actions, *self._settle(now)]

    def unfit(self, sandbox_uid: str, problem: Problem, now: float) -> list[Action]:
        """The executor is not what was asked for, or cannot be opened."""
        sandbox = self.inventory.of_incarnation(sandbox_uid)
        if sandbox is None:
            return []
        return [*self._take(sandbox, lifecycle.unfit(sandbox, problem), now), *self._settle(now)]

    def exited(self, sandbox_uid: str, end: Exit, now: float) -> list[Action]:
        """The process is gone."""
        sandbox = self.inventory.of_incarnation(sandbox_uid)
        if sandbox is None:
            return []
        return [*self._take(sandbox, lifecycle.exited(sandbox, end, now, self.policy), now), *self._settle(now)]

    # What time does.

    def tick(self, now: float) -> list[Action]:
        """Time has passed: to be called often enough for the deadlines to be kept."""
        actions: list[Action] = []
        for waiting in list(self.inventory.waiting.values()):
            if now >= waiting.deadline and not self._is_binding(waiting):
                actions += self._refuse(waiting, overdue_problem(waiting, full=self._room() <= 0), now)
        for sandbox in self.inventory.all():
            if self._start_is_overdue(sandbox, now):
                why = f"cannot start a sandbox: not ready within {self.policy.start_timeout:g} s"
                actions += self._take(
                    sandbox, lifecycle.unfit(sandbox, Problem(Code.INTERNAL, "StartTimeout", why)), now
                )
            elif self._lease_is_over(sandbox, now):
                actions += self._take(sandbox, lifecycle.ended(sandbox, "LeaseExpired"), now)
        return [*actions, *self._settle(now)]

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
        starting = self.inventory.in_state(State.STARTING)
        outlook = Outlook(
            start_ages=tuple(now - one.started for one in starting),
            start_seconds=self._start_seconds,
            max_starting=self.policy.max_starting,
            full=self._room() <= 0,
        )
        queue = [one for one in self._order(self.inventory.waiting.values()) if not self._is_binding(one)]
        places = ((position, one) for position, one in enumerate(queue, 1) if only is None or one.claim.key == only)
        return {one.claim.key: standing(position, one, outlook) for position, one in places}

    # Bookkeeping.

    def _take(self, sandbox: Sandbox, step: Step, now: float) -> list[Action]:
        after = step.sandbox
        if after is None:
            self.inventory.remove(sandbox.sandbox_id)
        else:
            self.inventory.put(after)
        gone = next((one.sandbox for one in step.actions if isinstance(one, Gone)), None)
        if gone is not None and gone.keeps_workspace:
            self.inventory.kept_workspaces.add(gone.workspace_id)
        last = gone or after
        if sandbox.bound and last is not None and last.state is State.ENDED and sandbox.state is not State.ENDED:
            self._remember_end(last)
        actions = list(step.actions)
        if isinstance(step.outcome, Lost):
            actions += self._lost(sandbox, step.outcome, now)
        return actions

    def _remember_end(self, sandbox: Sandbox) -> None:
        assert sandbox.claim is not None
        why = f"cannot claim: the sandbox of this request ended: {sandbox.ended_reason}"
        problem = Problem(Code.FAILED_PRECONDITION, "ClaimEnded", why, sandbox.sandbox_id)
        self._ended_claims.put(sandbox.claim.key, problem)
        self._ended_sandboxes.put(sandbox.sandbox_id, sandbox.ended_reason)

    def _begin_session(self, sandbox_id: str) -> list[Action]:
        sandbox = self.inventory.get(sandbox_id)
        if sandbox is None or not sandbox.bound or sandbox.claim is None:
            return []
        self.inventory.waiting.pop(sandbox.claim.key, None)
        return [Answer(sandbox.claim.key, sandbox)]

    def _lost(self, sandbox: Sandbox, lost: Lost, now: float) -> list[Action]:
        actions: list[Action] = []
        if lost.claim is not None:
            actions += self._wait_again(lost.claim.key, lost.problem, now)
        if lost.problem.code is Code.INVALID_ARGUMENT:
            return actions
        policy = self.policy
        health = self._health[sandbox.template].after_loss(now, policy.start_backoff, policy.max_start_backoff)
        self._health[sandbox.template] = health
        if health.failures >= policy.start_attempts or lost.problem.code in HOPELESS:
            for waiting in list(self.inventory.waiting.values()):
                if not waiting.sandbox_id and waiting.claim.template == sandbox.template:
                    actions += self._refuse(waiting, lost.problem, now)
        return actions

    def _wait_again(self, key: RequestKey, problem: Problem, now: float) -> list[Action]:
        waiting = self.inventory.waiting.get(key)
        if waiting is None:
            return []
        waiting = replace(waiting, sandbox_id="", failures=waiting.failures + 1)
        self.inventory.waiting[key] = waiting
        if waiting.failures >= self.policy.start_attempts or problem.code in HOPELESS:
            return self._refuse(waiting, problem, now)
        return []

    def _refuse(self, waiting: Waiting, problem: Problem, now: float) -> list[Action]:
        return [*self._withdraw(waiting.claim.key, now), Answer(waiting.claim.key, problem)]

    def _withdraw(self, key: RequestKey, now: float) -> list[Action]:
        waiting = self.inventory.waiting.pop(key, None)
        sandbox = self.inventory.get(waiting.sandbox_id) if waiting else None
        if sandbox is None:
            return []
        return self._take(sandbox, lifecycle.ended(sandbox, "ClaimUndone"), now)

    def _is_binding(self, waiting: Waiting) -> bool:
        sandbox = self.inventory.get(waiting.sandbox_id)
        return sandbox is not None and sandbox.state is State.CLAIMED

    def _start_is_overdue(self, sandbox: Sandbox, now: float) -> bool:
        starts = sandbox.state is State.STARTING or (sandbox.state is State.RECOVERING and sandbox.running)
        return starts and now - sandbox.started >= self.policy.start_timeout

    def _lease_is_over(self, sandbox: Sandbox, now: float) -> bool:
        if sandbox.lease_expires is None or sandbox.state not in {State.CLAIMED, State.RECOVERING} or not sandbox.bound:
            return False
        # The executor ends itself first; one that is being replaced has none that could.
        grace = self.policy.lease_grace if sandbox.state is State.CLAIMED else 0.0
        return now >= sandbox.lease_expires + grace

    def _room(self) -> int:
        return self.policy.max_sandboxes - len(self.inventory)

    # After each event: 1 bind what is warm, 2 replace what crashed, 3 start what is missing, 4 end what is too much.

    def _settle(self, now: float) -> list[Action]:
        actions: list[Action] = []
        for template in self.templates.values():
            actions += self._bind_warm(template.name, now)
        actions += self._replace_crashed(now)
        for template in self.templates.values():
            actions += self._refill(template, now)
        return actions

    def _of(self, template: str, state: State) -> list[Sandbox]:
        return [one for one in self.inventory.in_state(state) if one.template == template]

    def _bind_warm(self, template: str, now: float) -> list[Action]:
        actions: list[Action] = []
        warm = self._of(template, State.WARM) if self.inventory.waiting else []
        if not warm:
            return actions
        for waiting in self._order(self.inventory.waiting.values()):
            if not warm:
                break
            if waiting.claim.template == template and not waiting.sandbox_id and not waiting.claim.workspace_id:
                sandbox = warm.pop(0)
                self._reserve(waiting, sandbox)
                actions += self._take(sandbox, lifecycle.assigned(sandbox, waiting, now), now)
        return actions

    def _reserve(self, waiting: Waiting, sandbox: Sandbox) -> None:
        self.inventory.waiting[waiting.claim.key] = replace(waiting, sandbox_id=sandbox.sandbox_id)

    def _free_slots(self) -> int:
        replacing = sum(1 for one in self.inventory.in_state(State.RECOVERING) if one.running)
        return self.policy.max_starting - self.inventory.count(State.STARTING) - replacing

    def _replace_crashed(self, now: float) -> list[Action]:
        actions: list[Action] = []
        slots = self._free_slots()
        for sandbox in self.inventory.in_state(State.RECOVERING):
            if slots > 0 and not sandbox.running and sandbox.replace_at is not None and now >= sandbox.replace_at:
                slots -= 1
                actions += self._take(sandbox, lifecycle.replaced(sandbox, self._new_id(), now), now)
        return actions

    def _refill(self, template: Template, now: float) -> list[Action]:
        if now < self._health[template.name].retry_at:
            return []
        warm = self._of(template.name, State.WARM)
        anyones = sum(1 for one in self._of(template.name, State.STARTING) if one.claim is None)
        supply = pool.Supply(warm=len(warm), starting=anyones, target_warm=self.policy.target_warm)
        room = pool.Room(slots=self._free_slots(), sandboxes=self._room(), ending=self.inventory.count(State.ENDED))
        plan = pool.refill(self._startable(template.name) if room.slots > 0 else (), supply, room)
        actions: list[Action] = []
        for waiting in plan.dedicated:
            actions += self._start(template, waiting, now)
        for _ in range(plan.anyones):
            actions += self._start(template, None, now)
        for sandbox in warm[: plan.evict or pool.surplus(supply)]:
            actions += self._take(sandbox, lifecycle.ended(sandbox, "NotNeeded"), now)
        return actions

    def _startable(self, template: str) -> list[Waiting]:
        kept = self.inventory.kept_workspaces
        ordered = self._order(self.inventory.waiting.values())
        mine = (one for one in ordered if one.claim.template == template)
        return [one for one in mine if not one.claim.workspace_id or one.sandbox_id or one.claim.workspace_id in kept]

    def _start(self, template: Template, waiting: Waiting | None, now: float) -> list[Action]:
        claim = waiting.claim if waiting else None
        sandbox = Sandbox(
            sandbox_id=self._new_id(),
            sandbox_uid=self._new_id(),
            template=template.name,
            workspace_id=claim.workspace_id if claim else self._new_id(),
            state=State.STARTING,
            created=now,
            started=now,
            isolation=template.isolation,
            claim=claim,
        )
        if waiting is not None:
            self._reserve(waiting, sandbox)
        self.inventory.kept_workspaces.discard(sandbox.workspace_id)
        return self._take(sandbox, lifecycle.started(sandbox), now)

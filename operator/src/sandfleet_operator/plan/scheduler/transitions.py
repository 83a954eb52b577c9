"""Puts the steps of sandboxes' lives on record, with what follows from them for claims and pools."""

from dataclasses import replace

from sandfleet_operator.api.errors import Code, Problem
from sandfleet_operator.api.kube import Cause, NotCreated
from sandfleet_operator.api.reasons import AdmissionReason, ClaimReason
from sandfleet_operator.api.values import RequestKey, Sandbox, State
from sandfleet_operator.plan.scheduler import lifecycle
from sandfleet_operator.plan.scheduler.actions import (
    Action,
    Answer,
    Gone,
    Hindered,
    Lost,
    Outcome,
    Refused,
    SessionResumed,
    Taken,
)
from sandfleet_operator.plan.scheduler.claim_queue import Waiting
from sandfleet_operator.plan.scheduler.ended_claims import REMEMBERED, EndedClaims
from sandfleet_operator.plan.scheduler.inventory import Inventory
from sandfleet_operator.plan.scheduler.lifecycle import Step
from sandfleet_operator.plan.scheduler.limits import FleetLimits
from sandfleet_operator.plan.scheduler.pool_queues import PoolQueues
from sandfleet_operator.plan.scheduler.recent import Recent
from sandfleet_operator.plan.scheduler.starts.health import SlowStart, after_refusal

# Of a session that holds no place: it has ended, or sleeps.
FREE = frozenset({State.ENDED, State.SUSPENDED})
# Problems that no other sandbox would solve.
HOPELESS = frozenset({Code.FAILED_PRECONDITION, Code.INVALID_ARGUMENT})


class Transitions:
    def __init__(self, inventory: Inventory, queues: PoolQueues, limits: FleetLimits) -> None:
        self._inventory = inventory
        self._queues = queues
        self._limits = limits
        # Why requests and sandboxes have ended.
        self.ended_claims = EndedClaims()
        self.ended_sandboxes: Recent[str, str] = Recent(REMEMBERED)

    def apply(self, sandbox: Sandbox, step: Step, now: float) -> list[Action]:
        """Records what the step makes of the sandbox; returns the step's actions and those of the claims concerned."""
        after, gone = step.sandbox, None
        if after is None:
            self._inventory.remove(sandbox.sandbox_id)
            self._queues.gone(sandbox)
            gone = next((one.sandbox for one in step.actions if isinstance(one, Gone)), None)
        else:
            self._inventory.put(after)
        if gone is not None and gone.keeps_workspace and self._limits.keeps_workspaces:
            self._inventory.kept_workspaces.add(gone.workspace_id)
        last = gone or after
        actions = list(step.actions)
        if sandbox.bound and last is not None and last.state is State.ENDED and sandbox.state is not State.ENDED:
            actions += self._session_ended(last, now)
        if sandbox.bound and last is not None and last.state in FREE and sandbox.state not in FREE:
            self._queues.released(last, now)
        if last is not None and last.state is State.ENDED:
            actions += self._refuse_resume(sandbox, last.ended_reason)
        if isinstance(step.outcome, SessionResumed) and after is not None:
            actions += self.answer(after)
        return [*actions, *self._without_sandbox(sandbox, step.outcome, now)]

    def _without_sandbox(self, sandbox: Sandbox, outcome: Outcome | None, now: float) -> list[Action]:
        """What becomes of the claim that has not got the sandbox."""
        match outcome:
            case Lost():
                return self._lost(sandbox, outcome, now)
            case Hindered():
                self._hindered(sandbox, outcome, now)
            case Taken(key):
                self._queues.requeue(key, failures=0)
            case Refused(key, problem):
                # It has no sandbox any more that would be undone with it.
                waiting = self._queues.requeue(key, failures=0)
                return self.refuse(waiting, problem, now) if waiting else []
        return []

    def begin_session(self, sandbox_id: str, now: float) -> list[Action]:
        """Answers the claim of the sandbox."""
        sandbox = self._inventory.get(sandbox_id)
        if sandbox is None or not sandbox.bound:
            return []
        if not sandbox.answered:
            return self.answer_gang(self._queues.bind(sandbox), now)
        return self._answer_first(sandbox, now)

    def answer_gang(self, sandbox_ids: list[str], now: float) -> list[Action]:
        """All sandboxes of a gang are bound."""
        actions: list[Action] = []
        for sandbox_id in sandbox_ids:
            sandbox = self._inventory.get(sandbox_id)
            assert sandbox is not None, "a gang whose sandbox ends is broken"
            self._inventory.put(answered := replace(sandbox, answered=True))
            actions += self._answer_first(answered, now)
        return actions

    def adopt_part(self, sandbox: Sandbox, now: float) -> list[Action]:
        """An earlier leader has bound this part of a gang, and had not answered."""
        state = self._queues.get(sandbox.pool)
        if state is None or sandbox.claim is None:
            return []
        gangs = state.queue.gangs
        complete = gangs.adopt(sandbox.claim, sandbox.sandbox_id, now)
        actions = self.answer_gang(complete, now)
        for name in complete:
            found = self._inventory.get(name)
            if found is not None and found.claim is not None:
                gangs.leave(found.claim)
        return actions

    def rejoin(self, sandbox: Sandbox, now: float) -> list[Action]:
        """The caller of such a part asks again."""
        assert sandbox.claim is not None
        if self._queues.get(sandbox.pool) is None:
            return self.answer_gang([sandbox.sandbox_id], now)
        self._queues.rejoin(sandbox.claim, sandbox.sandbox_id, now)
        return []

    def _answer_first(self, sandbox: Sandbox, now: float) -> list[Action]:
        """Answers the claim for the first time."""
        if sandbox.claim is not None:
            self._queues.served(sandbox.claim.key, sandbox.pool, now, warm=sandbox.warm)
        return self.answer(sandbox)

    def answer(self, sandbox: Sandbox) -> list[Action]:
        """Gives the sandbox to the callers that wait for it."""
        if sandbox.claim is None:
            return []
        self._queues.leave(sandbox.claim.key)
        return [Answer(sandbox.claim.key, sandbox)]

    def _refuse_resume(self, sandbox: Sandbox, reason: str) -> list[Action]:
        """The session has ended while a caller waited to resume it."""
        waiting = self._inventory.waiting.get(sandbox.claim.key) if sandbox.claim else None
        if waiting is None or waiting.resumes != sandbox.sandbox_id:
            return []
        self._queues.leave(waiting.claim.key)
        why = f"cannot resume the sandbox: it ended: {reason}"
        return [Answer(waiting.claim.key, ClaimReason.SANDBOX_NOT_FOUND.problem(why, sandbox.sandbox_id))]

    def refuse(self, waiting: Waiting, problem: Problem, now: float) -> list[Action]:
        """Refuses the claim, and those of its gang with it."""
        actions: list[Action] = []
        for key in self._queues.members(waiting.claim):
            actions += [*self._withdraw(key, now), Answer(key, problem)]
        return actions

    def withdraw(self, key: RequestKey, now: float) -> list[Action]:
        """The claim's callers have left: takes it out of the queue, and undoes what was on its way to it."""
        waiting = self._inventory.waiting.get(key)
        if waiting is None:
            return []
        others = [one for one in self._queues.members(waiting.claim) if one != key]
        actions = self._withdraw(key, now)
        why = AdmissionReason.GANG_BROKEN.problem("cannot claim: another claim of the gang was left")
        for one in others:
            actions += [*self._withdraw(one, now), Answer(one, why)]
        return actions

    def _withdraw(self, key: RequestKey, now: float) -> list[Action]:
        waiting = self._queues.leave(key)
        sandbox = self._inventory.get(waiting.sandbox_id) if waiting else None
        return self.apply(sandbox, lifecycle.undone(sandbox), now) if sandbox else []

    def _session_ended(self, sandbox: Sandbox, now: float) -> list[Action]:
        if sandbox.answered:
            self._remember_end(sandbox)
            return []
        assert sandbox.claim is not None
        waiting = self._inventory.waiting.get(sandbox.claim.key)
        if waiting is None:
            return []
        why = f"cannot claim: a sandbox of the gang ended: {sandbox.ended_reason}"
        return self.refuse(waiting, AdmissionReason.GANG_BROKEN.problem(why), now)

    def _remember_end(self, sandbox: Sandbox) -> None:
        assert sandbox.claim is not None
        why = f"cannot claim: the sandbox of this request ended: {sandbox.ended_reason}"
        if not sandbox.claim.object_uid:
            # A declared CodeSandbox says itself whether it wants another pod.
            problem = ClaimReason.CLAIM_ENDED.problem(why, sandbox.sandbox_id)
            self.ended_claims.put(sandbox.claim.key, problem)
        self.ended_sandboxes.put(sandbox.sandbox_id, sandbox.ended_reason)

    def start_made(self, pool: str) -> None:
        """The API server takes starts of the pool."""
        state = self._queues.get(pool)
        if state is not None:
            state.batches = state.batches.made()
            if state.trouble is not None and not state.trouble.binds:
                state.trouble = None

    def binding_works(self, pool: str) -> bool:
        """The API server takes claims of the pool; whether it did not before."""
        state = self._queues.get(pool)
        if state is None or state.trouble is None or not state.trouble.binds:
            return False
        state.trouble = None
        return True

    def _hindered(self, sandbox: Sandbox, hindered: Hindered, now: float, *, binds: bool = False) -> None:
        """The API server takes no start (or, with `binds`, no claim) of the pool: the pool waits, and so do claims."""
        if hindered.claim is not None:
            self._queues.requeue(hindered.claim.key, failures=0)
        state = self._queues.get(sandbox.pool)
        if state is not None:
            began, backoff = now if binds else sandbox.started, self._limits.start_backoff
            state.trouble = after_refusal(
                state.trouble, hindered.why, began=began, now=now, backoff=backoff, binds=binds
            )
            state.batches = SlowStart()

    def _lost(self, sandbox: Sandbox, lost: Lost, now: float) -> list[Action]:
        """A start or a binding failed: the claim waits again, and the pool's next start waits longer."""
        if sandbox.bound:
            # Of a session that was to be resumed, which says little about the pool.
            return self._requeue(lost.claim.key, lost.problem, now) if lost.claim else []
        if lost.problem.reason == ClaimReason.API_SERVER_FAILED.value:
            why = NotCreated(Cause.BUSY, lost.problem.message)
            self._hindered(sandbox, Hindered(lost.claim, why), now, binds=True)
            return []
        actions: list[Action] = []
        if lost.claim is not None:
            actions += self._requeue(lost.claim.key, lost.problem, now)
        # A failure that comes from the claim, such as from its workspace or image, says nothing about the pool.
        if lost.problem.code is Code.INVALID_ARGUMENT or (lost.claim is not None and lost.claim.alone):
            return actions
        limits, state = self._limits, self._queues.get(sandbox.pool)
        if state is None:
            return actions
        state.start_error = lost.problem.message
        # Of a sandbox that was claimed when it was lost, the start is no matter.
        began = sandbox.started if sandbox.state is State.STARTING else now
        state.health = state.health.after_loss(began, now, limits.start_backoff)
        if state.health.failures >= limits.start_attempts or lost.problem.code in HOPELESS:
            for waiting in list(state.queue):
                actions += self.refuse(waiting, lost.problem, now)
        return actions

    def _requeue(self, key: RequestKey, problem: Problem, now: float) -> list[Action]:
        waiting = self._queues.requeue(key, failures=1)
        if waiting is None:
            return []
        if waiting.failures >= self._limits.start_attempts or problem.code in HOPELESS:
            return self.refuse(waiting, problem, now)
        return []

"""Queues in a world that does anything at any time: quotas hold, borrowed quota comes back, and none starves."""

import itertools
import operator
from dataclasses import replace
from itertools import chain

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from sandfleet_operator.api.errors import Code, FleetError, Problem
from sandfleet_operator.api.kinds.queue import Preemption, PriorityClass, QueueSpec, Quota, StopPolicy
from sandfleet_operator.api.values import Amount, Exit, Gang, RequestKey, State, Template
from sandfleet_operator.plan.scheduler.actions import Admit, Answer, Bind, Resume, Start, Stop, Suspend
from sandfleet_operator.plan.scheduler.limits import FleetLimits
from sandfleet_operator.plan.scheduler.refill import Pool
from sandfleet_operator.plan.scheduler.scheduler import Scheduler
from sandfleet_operator.plan.scheduler.sessions.preemption import Idle
from support.examples import examples
from support.fleet.builders import NOW, a_claim
from support.operator.quotas import Books

LOST = Problem(Code.INTERNAL, "SandboxUnfit", "cannot hand out a sandbox: it is another one")
NAMES = ("a", "b", "c")
AMOUNTS = {
    "small": Amount(sandboxes=1, cpu=500),
    "large": Amount(sandboxes=1, cpu=2000),
}
CLASSES = (PriorityClass("high"), PriorityClass("low"))
COUNTS = st.integers(0, 4) | st.none()
CPUS = st.integers(1, 8).map(lambda one: one * 500) | st.none()
QUOTAS = st.builds(Quota, sandboxes=COUNTS, cpu=CPUS)
SPECS = st.builds(
    QueueSpec,
    weight=st.sampled_from([1.0, 2.0, 5.0]),
    cohort=st.just("all"),
    nominal=QUOTAS,
    borrowing=QUOTAS,
    lending=QUOTAS,
    priority_classes=st.sampled_from([(), CLASSES]),
    ageing=st.sampled_from([0.0, 30.0]),
    preemption=st.sampled_from(Preemption),
    stop=st.sampled_from([StopPolicy.NONE] * 8 + [StopPolicy.HOLD, StopPolicy.HOLD_AND_DRAIN]),
) | st.builds(QueueSpec, nominal=QUOTAS)


class QueuesInAnyWorld(RuleBasedStateMachine):
    """Each event goes to two schedulers, which have to decide alike."""

    def __init__(self):
        super().__init__()
        self.now, self.numbers = NOW, itertools.count(1)
        self.starting, self.binding, self.stopping = {}, {}, {}
        self.waiting, self.sessions, self.declared, self.admitted = set(), {}, set(), set()
        # Claim → its gang.
        self.gangs = {}
        limits = FleetLimits(max_sandboxes=12, max_starting=4)
        pools = [
            Pool(name=name, template=Template(name=name, amount=amount), target_warm=1)
            for name, amount in AMOUNTS.items()
        ]
        self.pair = [Scheduler(pools, limits, new_id=self.ids()) for _ in range(2)]
        self.scheduler = self.pair[0]
        self.do("tick")

    @initialize(specs=st.tuples(*[SPECS] * len(NAMES)))
    def queues_are_there(self, specs):
        for name, spec in zip(NAMES, specs, strict=True):
            self.queue_is_put(name, spec)

    @staticmethod
    def ids():
        numbers = itertools.count(1)
        return lambda pool: f"{pool}-{next(numbers)}"

    def do(self, event, *arguments, of="", **named):
        """The event at both, or at this part of them; then its actions are noted, and the books are checked."""
        before = Books.of(self.scheduler)
        results = []
        for scheduler in self.pair:
            target = getattr(scheduler, of) if of else scheduler
            try:
                results.append(getattr(target, event)(*arguments, now=self.now, **named))
            except FleetError as error:
                results.append(error.problem)
        assert results[0] == results[1], "the same events, another decision"
        if isinstance(results[0], Problem):
            return results[0]
        self.note(results[0])
        Books.of(self.scheduler).check_after(before)
        return None

    def note(self, actions):
        answered = [(one.key, isinstance(one.result, Problem)) for one in actions if isinstance(one, Answer)]
        for key, failed in answered:
            if name := self.gangs.get(key):
                # Nothing of it waits any more, and all are answered alike.
                others = {(one, failure) for one, failure in answered if self.gangs.get(one) == name}
                assert {failure for _, failure in others} == {failed}, "a gang in two parts"
                assert not {one for one in self.waiting if self.gangs.get(one) == name} - {one for one, _ in others}
        for action in actions:
            match action:
                case Start(sandbox) | Resume(sandbox):
                    self.starting[sandbox.sandbox_uid] = sandbox
                case Bind(sandbox):
                    self.binding[sandbox.sandbox_uid] = sandbox
                case Stop(sandbox) | Suspend(sandbox):
                    self.starting.pop(sandbox.sandbox_uid, None)
                    self.binding.pop(sandbox.sandbox_uid, None)
                    self.stopping[sandbox.sandbox_uid] = sandbox
                case Answer(key, result):
                    self.waiting.discard(key)
                    if not isinstance(result, Problem):
                        self.sessions[result.sandbox_id] = result
                case Admit(key):
                    assert key in self.declared - self.admitted, "admitted twice, or not declared"
                    self.admitted.add(key)

    @rule(name=st.sampled_from(NAMES), spec=SPECS)
    def queue_is_put(self, name, spec):
        self.do("put", name, spec, of="queues")

    @rule(name=st.sampled_from(NAMES))
    def queue_is_removed(self, name):
        self.do("remove", name, of="queues")

    @rule(
        queue=st.sampled_from([*NAMES, ""]),
        pool=st.sampled_from(sorted(AMOUNTS)),
        holder=st.sampled_from(["alice", "bob"]),
        priority=st.sampled_from(["", "high"]),
        max_wait=st.sampled_from([20.0, 3600.0]),
        many=st.integers(1, 4),
    )
    def callers_ask(self, queue, pool, holder, priority, max_wait, many):
        for _ in range(many):
            key = RequestKey(holder, f"r{next(self.numbers)}", pool)
            self.waiting.add(key)
            claim = replace(a_claim(pool=pool, queue=queue, priority=priority, max_wait=max_wait), key=key)
            problem = self.do("ask", claim)
            if problem is not None:
                assert problem.reason in {"QueueNotFound", "PriorityNotFound", "QuotaTooSmall"}
                self.waiting.discard(key)

    @rule(
        queue=st.sampled_from([*NAMES, ""]),
        pool=st.sampled_from(sorted(AMOUNTS)),
        size=st.integers(1, 3),
        missing=st.sampled_from([0, 0, 0, 1]),
    )
    def a_gang_asks(self, queue, pool, size, missing):
        name = f"g{next(self.numbers)}"
        for number in range(size - missing):
            key = RequestKey("alice", f"{name}-{number}", pool)
            self.waiting.add(key)
            self.gangs[key] = name
            claim = replace(a_claim(pool=pool, queue=queue, max_wait=60.0), key=key, gang=Gang(name, size))
            problem = self.do("ask", claim)
            if problem is not None:
                assert problem.reason in {"QueueNotFound", "QuotaTooSmall", "GangTooLarge"}
                self.waiting.discard(key)

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def a_caller_leaves(self, data):
        key = data.draw(st.sampled_from(sorted(self.waiting, key=repr)))
        self.waiting.discard(key)
        self.do("leave", key)

    @rule(queue=st.sampled_from(NAMES), amount=st.sampled_from(sorted(AMOUNTS)), age=st.sampled_from([0.0, 60.0]))
    def a_sandbox_is_declared(self, queue, amount, age):
        key = f"d{next(self.numbers)}"
        self.declared.add(key)
        self.do("declare", key, queue, AMOUNTS[amount], asked=self.now - age, of="queues")

    @precondition(lambda self: self.declared)
    @rule(data=st.data())
    def a_declared_sandbox_goes(self, data):
        key = data.draw(st.sampled_from(sorted(self.declared)))
        self.declared.discard(key)
        self.admitted.discard(key)
        self.do("withdraw", key, of="queues")

    @precondition(lambda self: self.sessions)
    @rule(data=st.data())
    def a_session_is_released(self, data):
        sandbox = self.sessions.pop(data.draw(st.sampled_from(sorted(self.sessions))))
        self.do("release", sandbox.sandbox_id)

    @precondition(lambda self: self.sessions)
    @rule(data=st.data(), kept=st.booleans())
    def owners_take_their_quota_back(self, data, kept):
        asked = [list(chain.from_iterable(one.preemptions.candidates(self.now))) for one in self.pair]
        assert asked[0] == asked[1]
        at_rest = data.draw(st.permutations(asked[0]))[: data.draw(st.integers(0, len(asked[0])))]
        idle = {one.sandbox_id: Idle(float(place), kept) for place, one in enumerate(at_rest)}
        chosen = [list(chain.from_iterable(one.preemptions.victims(idle, (), self.now))) for one in self.pair]
        assert chosen[0] == chosen[1]
        ledger = self.scheduler.inventory.ledger
        for victim in chosen[0]:
            assert victim.sandbox_id in idle, "a busy session was chosen"
            assert ledger.spec(victim.queue).preemption in (
                {Preemption.SUSPEND, Preemption.RELEASE} if kept else {Preemption.RELEASE}
            )
            assert any(map(operator.gt, ledger.usage(victim.queue), ledger.terms(victim.queue).nominal)), (
                "within its quota"
            )
            self.sessions.pop(victim.sandbox_id, None)
            self.do("preempt" if kept else "release", victim.sandbox_id, of="suspensions")

    @precondition(lambda self: self.binding)
    @rule(data=st.data(), fit=st.sampled_from([True] * 4 + [False]))
    def a_binding_is_over(self, data, fit):
        uid = data.draw(st.sampled_from(sorted(self.binding)))
        del self.binding[uid]
        self.do("bound", uid) if fit else self.do("unfit", uid, LOST)

    @rule()
    def all_goes_well_for_a_while(self):
        for uid in list(self.stopping):
            del self.stopping[uid]
            self.do("exited", uid, Exit(code=0))
        for uid in list(self.starting):
            if self.starting.pop(uid, None):
                self.do("ready", uid)
        for uid in list(self.binding):
            if self.binding.pop(uid, None):
                self.do("bound", uid)
        self.time_passes(1.0)

    @rule(seconds=st.sampled_from([0.25, 5.0, 40.0]))
    def time_passes(self, seconds):
        self.now += seconds
        self.do("tick")

    @invariant()
    def what_is_used_is_what_the_sandboxes_use(self):
        Books.of(self.scheduler, self.admitted_amounts()).check_usage()

    def admitted_amounts(self):
        declared = self.scheduler.queues._declared._admitted
        assert set(declared) == self.admitted
        return [(claim.queue, claim.amount) for claim in declared.values()]

    @invariant()
    def no_claim_waits_while_a_sandbox_and_quota_are_there_for_it(self):
        Books.of(self.scheduler).check_work_conserving()

    @invariant()
    def every_claim_waits_or_was_answered(self):
        assert self.waiting <= set(self.scheduler.inventory.waiting)

    def teardown(self):
        """When all others release and no quota is missing, every claim is served."""
        for name in NAMES:
            if self.scheduler.queues.spec(name) is not None:
                self.do("put", name, QueueSpec(nominal=Quota(sandboxes=1), priority_classes=CLASSES), of="queues")
        for _ in range(200):
            for sandbox in list(self.sessions.values()):
                del self.sessions[sandbox.sandbox_id]
                self.do("release", sandbox.sandbox_id)
            for key in sorted(self.admitted):
                self.a_declared_goes(key)
            self.all_goes_well_for_a_while()
            inventory = self.scheduler.inventory
            if not inventory.waiting and not inventory.count(State.CLAIMED) and not self.admitted:
                break
        assert not self.scheduler.inventory.waiting
        usages = {name: self.scheduler.inventory.ledger.usage(name) for name in NAMES}
        assert set(usages.values()) == {(0.0, 0.0, 0.0)}, usages

    def a_declared_goes(self, key):
        self.declared.discard(key)
        self.admitted.discard(key)
        self.do("withdraw", key, of="queues")


QueuesInAnyWorld.TestCase.settings = settings(
    max_examples=examples(40),
    stateful_step_count=40,
    deadline=None,
    phases=[phase for phase in Phase if phase is not Phase.explain],
)
test_quotas_hold_and_no_claim_waits_without_need = pytest.mark.slow(QueuesInAnyWorld.TestCase)

"""Preemption of borrowed quota: whom the policy chooses, and how owner and victim go on."""

from dataclasses import replace
from itertools import chain

from hypothesis import example, given
from hypothesis import strategies as st
from sandfleet_operator.api.kinds.queue import Preemption, QueueSpec, Quota
from sandfleet_operator.api.values import Exit, RequestKey, State
from sandfleet_operator.plan.scheduler.actions import Answer, Resume, Suspend
from sandfleet_operator.plan.scheduler.queues.ledger import Ledger
from sandfleet_operator.plan.scheduler.queues.preemption import Candidate, Levels, Need
from sandfleet_operator.plan.scheduler.queues.preemption.idle_longest import idle_longest
from sandfleet_operator.plan.scheduler.queues.quota import Verdict
from sandfleet_operator.plan.scheduler.sessions.preemption import Idle
from support.fleet.builders import NOW, a_claim, a_scheduler, answers, of_kind

CLOSED = Exit(code=0)
NAMES = ("a", "b", "c")
QUOTAS = st.builds(Quota, sandboxes=st.integers(0, 5) | st.none(), cpu=st.sampled_from([1000, 2000, 4000]) | st.none())
SPECS = st.builds(QueueSpec, cohort=st.just("all"), nominal=QUOTAS, lending=QUOTAS)
AMOUNTS = st.sampled_from([(1.0, 500.0, 0.0), (1.0, 1000.0, 0.0), (1.0, 2000.0, 0.0)])
USES = st.lists(st.tuples(st.sampled_from(NAMES), AMOUNTS, st.none() | st.integers(0, 5)), max_size=14)
NEEDS = st.lists(st.builds(Need, st.sampled_from(NAMES), AMOUNTS, st.integers(1, 4)), min_size=1, max_size=3)


def levels_of(specs, uses):
    """As many of the uses as the quotas admit, in this order; then which of them are idle, and for how long."""
    ledger, candidates = Ledger(), []
    for name, spec in zip(NAMES, specs, strict=True):
        ledger.put(name, spec)
    for number, (queue, amount, idle) in enumerate(uses):
        if ledger.judge(queue, amount).admits:
            ledger.charge(queue, amount)
            candidates += [Candidate(f"s{number}", queue, amount, float(idle))] if idle is not None else []
    terms, usage = ({one: of(one) for one in NAMES} for of in (ledger.terms, ledger.usage))
    return Levels(terms, usage, ledger.cohort("a").free), candidates


def admitted(needs, levels, victims):
    """How many claims get in once the victims have gone."""
    after, many = levels.copy(), 0
    for victim in victims:
        after.release(victim.queue, victim.amount)
    for need in needs:
        for _ in range(need.many):
            if after.verdict(need.queue, need.amount) is Verdict.WITHIN:
                after.use(need.queue, need.amount)
                many += 1
    return many


def _lends(sandboxes, cpu, lending=None):
    return QueueSpec(cohort="all", nominal=Quota(sandboxes=sandboxes, cpu=cpu), lending=Quota(sandboxes=lending))


@given(specs=st.tuples(*[SPECS] * 3), uses=USES, needs=NEEDS)
# The session that goes for the second claim gives enough for both.
@example(
    specs=(_lends(3, 4000, lending=0), _lends(None, 1000), _lends(None, 1000)),
    uses=[
        ("a", (1.0, 500.0, 0.0), None),
        ("b", (1.0, 500.0, 0.0), None),
        ("b", (1.0, 500.0, 0.0), 0),
        ("b", (1.0, 2000.0, 0.0), 0),
        ("b", (1.0, 2000.0, 0.0), None),
    ],
    needs=[Need("a", (1.0, 1000.0, 0.0), 2)],
)
def test_only_idle_sessions_of_borrowers_go_and_no_more_than_let_claims_in(specs, uses, needs):
    levels, candidates = levels_of(specs, uses)
    needs = [one for one in needs if levels.verdict(one.queue, one.amount) is Verdict.LENT]
    victims = idle_longest(needs, levels, candidates)
    assert len({one.sandbox_id for one in victims}) == len(victims)
    assert all(one in candidates for one in victims)
    after = levels.copy()
    for victim in victims:
        assert any(after.borrowed(victim.queue)), "a queue within its quota lost a session"
        after.release(victim.queue, victim.amount)
    without = admitted(needs, levels, ())
    assert bool(victims) == (admitted(needs, levels, victims) > without)
    if len(needs) == 1:
        for spared in victims:
            rest = [one for one in victims if one is not spared]
            assert admitted(needs, levels, rest) < admitted(needs, levels, victims), f"{spared} went in vain"


@given(uses=st.lists(st.integers(0, 9), min_size=1, max_size=8), many=st.integers(1, 8))
def test_of_equal_sessions_those_go_that_are_idle_longest(uses, many):
    owner, borrower = (
        QueueSpec(cohort="all", nominal=Quota(sandboxes=8)),
        QueueSpec(cohort="all", nominal=Quota(sandboxes=0)),
    )
    levels, candidates = levels_of((owner, borrower, borrower), [("b", (1.0, 0.0, 0.0), idle) for idle in uses])
    free = 8 - len(uses)
    victims = idle_longest([Need("a", (1.0, 0.0, 0.0), many)], levels, candidates)
    assert [one.idle for one in victims] == sorted(map(float, uses), reverse=True)[
        : max(0, min(many - free, len(uses)))
    ]


# In the scheduler.


def of_sandboxes(many, **changes):
    return QueueSpec(cohort="all", nominal=Quota(sandboxes=many), **changes)


def a_fleet(warm=2, **changes):
    """The queue `lent` owns two sandboxes, which the queue `guest` may borrow."""
    scheduler = a_scheduler(target_warm=warm, max_sandboxes=40, max_starting=20)
    scheduler.queues.put("lent", of_sandboxes(2), NOW)
    scheduler.queues.put("guest", of_sandboxes(0, **{"preemption": Preemption.SUSPEND, **changes}), NOW)
    scheduler.tick(NOW)
    fill(scheduler, NOW)
    return scheduler


def fill(scheduler, now):
    actions = []
    while starting := scheduler.inventory.in_state(State.STARTING):
        for sandbox in starting:
            actions += scheduler.ready(sandbox.sandbox_uid, now)
    served = []
    for sandbox in scheduler.inventory.in_state(State.CLAIMED):
        if not sandbox.bound:
            served += answers(scheduler.bound(sandbox.sandbox_uid, now))
    return served


def ask(scheduler, queue, request, now, **changes):
    claim = replace(a_claim(queue=queue, **changes), key=RequestKey("alice", request, "python"))
    scheduler.ask(claim, now)
    return fill(scheduler, now)


def asked_of(scheduler, now):
    return list(chain.from_iterable(scheduler.preemptions.candidates(now)))


def preempt(scheduler, now, **idle):
    """By request: the seconds that its session is idle. The requests whose sessions went."""
    sessions = {request: session(scheduler, request) for request in idle}
    asked = {one.sandbox_id for one in asked_of(scheduler, now)}
    facts = {sessions[request].sandbox_id: Idle(seconds) for request, seconds in idle.items()}
    victims = scheduler.preemptions.victims({one: facts[one] for one in facts if one in asked}, (), now)
    gone = []
    for victim in chain.from_iterable(victims):
        sandbox = scheduler.inventory.get(victim.sandbox_id)
        assert of_kind(scheduler.suspensions.preempt(victim.sandbox_id, now), Suspend)
        scheduler.exited(sandbox.sandbox_uid, CLOSED, now)
        gone.append(sandbox.claim.key.request_id)
    return gone


def session(scheduler, request):
    return scheduler.inventory.of_session(RequestKey("alice", request, "python"))


def release(scheduler, request, now):
    sandbox = session(scheduler, request)
    actions = scheduler.release(sandbox.sandbox_id, now)
    return [*actions, *scheduler.exited(sandbox.sandbox_uid, CLOSED, now)]


def test_the_session_idle_longest_goes_for_the_owner_and_returns_in_its_old_place():
    scheduler = a_fleet()
    assert ask(scheduler, "guest", "g1", NOW) == ["g1"]
    assert ask(scheduler, "guest", "g2", NOW + 1) == ["g2"]
    assert preempt(scheduler, NOW + 2, g1=5.0, g2=9.0) == []
    assert ask(scheduler, "lent", "o1", NOW + 3) == []
    # It came after g2, so it waits behind its return.
    assert ask(scheduler, "guest", "g3", NOW + 4, max_wait=3600.0) == []
    assert preempt(scheduler, NOW + 5, g1=5.0, g2=9.0) == ["g2"]
    assert fill(scheduler, NOW + 5) == ["o1"]
    assert (session(scheduler, "g2").state, session(scheduler, "g2").preempted) == (State.SUSPENDED, NOW + 5)
    assert scheduler.suspensions.is_preempted(session(scheduler, "g2"))
    scheduler.preemptions.candidates(NOW + 6)
    (resumed,) = of_kind([*release(scheduler, "o1", NOW + 7), *scheduler.tick(NOW + 7)], Resume)
    assert resumed.sandbox.claim.key.request_id == "g2"
    scheduler.ready(resumed.sandbox.sandbox_uid, NOW + 8)
    (back,) = of_kind(scheduler.bound(resumed.sandbox.sandbox_uid, NOW + 8), Answer)
    assert (back.result.state, back.result.preempted) == (State.CLAIMED, None)


def test_a_queue_that_forbids_it_and_a_busy_session_are_left_alone():
    scheduler = a_fleet(preemption=Preemption.NEVER)
    for request in ("g1", "g2"):
        ask(scheduler, "guest", request, NOW)
    ask(scheduler, "lent", "o1", NOW)
    assert asked_of(scheduler, NOW) == []
    scheduler.queues.put("guest", of_sandboxes(0, preemption=Preemption.SUSPEND), NOW)
    assert len(asked_of(scheduler, NOW)) == 2
    # No executor says that its session is idle.
    assert preempt(scheduler, NOW) == []


def test_quota_that_was_taken_back_is_not_borrowed_again_before_its_owner_has_it():
    scheduler = a_fleet(warm=0)
    for request in ("g1", "g2"):
        ask(scheduler, "guest", request, NOW)
    claim = replace(a_claim(queue="lent"), key=RequestKey("alice", "o1", "python"))
    scheduler.ask(claim, NOW)
    assert preempt(scheduler, NOW + 1, g1=1.0, g2=2.0) == ["g2"]
    scheduler.preemptions.candidates(NOW + 2)
    # The owner's sandbox is still being started.
    assert of_kind(scheduler.tick(NOW + 3), Resume) == []
    assert preempt(scheduler, NOW + 3, g1=9.0) == []
    assert fill(scheduler, NOW + 4) == ["o1"]


def test_a_caller_who_waits_for_the_return_may_leave_without_undoing_it():
    scheduler = a_fleet()
    for request in ("g1", "g2"):
        ask(scheduler, "guest", request, NOW)
    ask(scheduler, "lent", "o1", NOW)
    assert preempt(scheduler, NOW + 1, g1=9.0, g2=1.0) == ["g1"]
    fill(scheduler, NOW + 1)
    sleeping = session(scheduler, "g1")
    assert scheduler.suspensions.resume(sleeping, 10.0, NOW + 2) == []
    (answer,) = of_kind(scheduler.tick(NOW + 13), Answer)
    assert answer.result.reason == "NotBoundInTime"
    assert scheduler.suspensions.resume(sleeping, 100.0, NOW + 14) == []
    scheduler.leave(sleeping.claim.key, NOW + 15)
    assert scheduler.suspensions.is_preempted(sleeping)
    assert of_kind([*release(scheduler, "o1", NOW + 16), *scheduler.tick(NOW + 18)], Resume) == []
    scheduler.preemptions.candidates(NOW + 19)
    assert of_kind(scheduler.tick(NOW + 20), Resume)


def test_a_cohort_is_looked_at_by_itself_and_no_session_of_another_one_with_it(monkeypatch):
    """Ten thousand sessions were looked at for each of fifty cohorts, in one stretch."""
    cohorts = 4
    scheduler = a_scheduler(target_warm=4 * cohorts, max_sandboxes=100, max_starting=50)
    for number in range(cohorts):
        for name, own in (("lent", 2), ("guest", 0)):
            spec = QueueSpec(cohort=f"c{number}", nominal=Quota(sandboxes=own), preemption=Preemption.SUSPEND)
            scheduler.queues.put(f"{name}{number}", spec, NOW)
    scheduler.tick(NOW)
    fill(scheduler, NOW)
    for number in range(cohorts):
        for request in ("a", "b"):
            ask(scheduler, f"guest{number}", f"{request}{number}", NOW)
        ask(scheduler, f"lent{number}", f"o{number}", NOW)
    inventory, looked = scheduler.inventory, []
    serving, in_state = inventory.serving, inventory.in_state
    monkeypatch.setattr(inventory, "serving", lambda queue: [looked.append(queue), *serving(queue)][1:])

    def of_few(state):
        assert state is not State.CLAIMED, "all sessions are looked at"
        return in_state(state)

    monkeypatch.setattr(inventory, "in_state", of_few)
    monkeypatch.setattr(inventory, "all", lambda: of_few(State.CLAIMED))
    found = scheduler.preemptions.candidates(NOW + 1)
    assert looked == []
    first = next(found)
    assert (len(first), len(looked)) == (2, 1)
    asked = [*first, *chain.from_iterable(found)]
    assert sorted(looked) == [f"guest{number}" for number in range(cohorts)]
    victims = scheduler.preemptions.victims({one.sandbox_id: Idle(1.0) for one in asked}, (), NOW + 1)
    assert [len(one) for one in victims] == [1] * cohorts

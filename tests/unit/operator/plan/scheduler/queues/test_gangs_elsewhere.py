"""A gang that waits for quota is not passed, again and again, by claims of its queue that came later elsewhere."""

import itertools
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sandfleet_operator.api.kinds.queue import PriorityClass, QueueSpec, Quota
from sandfleet_operator.api.values import Amount, Exit, Gang, RequestKey, State, Template
from sandfleet_operator.plan.scheduler.actions import Admit, Bind, Start, Stop
from sandfleet_operator.plan.scheduler.limits import FleetLimits
from sandfleet_operator.plan.scheduler.refill import Pool
from sandfleet_operator.plan.scheduler.scheduler import Scheduler
from support.fleet.builders import NOW, a_claim

ONE = Amount(sandboxes=1)
HERE, THERE = "here", "there"


class Fleet:
    """Two pools whose sandboxes are ready at once; `admitted` has the claims in the order of their admission."""

    def __init__(self, quota=3, warm=6, **queue):
        numbers = itertools.count(1)
        pools = [Pool(name=name, template=Template(name=name), target_warm=warm) for name in (HERE, THERE)]
        limits = FleetLimits(max_sandboxes=40, max_starting=20)
        self.scheduler = Scheduler(pools, limits, new_id=lambda pool: f"{pool}-{next(numbers)}")
        self.now, self.admitted, self.declared = NOW, [], set()
        self.put("team", quota, **queue)
        self.do(self.scheduler.tick(NOW))

    def put(self, name, quota, **queue):
        spec = QueueSpec(nominal=Quota(sandboxes=quota), **queue)
        self.do(self.scheduler.queues.put(name, spec, self.now))

    def do(self, actions):
        for action in actions:
            match action:
                case Start(sandbox):
                    self.do(self.scheduler.ready(sandbox.sandbox_uid, self.now))
                case Bind(sandbox):
                    self.admitted.append(sandbox.claim.key.request_id)
                    self.do(self.scheduler.bound(sandbox.sandbox_uid, self.now))
                case Stop(sandbox):
                    self.do(self.scheduler.exited(sandbox.sandbox_uid, Exit(code=0), self.now))
                case Admit(key):
                    self.admitted.append(key)

    def ask(self, name, pool=HERE, queue="team", size=0, **changes):
        """A claim, or a gang of this size whose claims are NAME0, NAME1, …"""
        self.now += 1
        for number in range(size or 1):
            own = f"{name}{number}" if size else name
            claim = a_claim(pool=pool, queue=queue, max_wait=3000, gang=Gang(name, size) if size else None, **changes)
            self.do(self.scheduler.ask(replace(claim, key=RequestKey("alice", own, pool)), self.now))

    def declare(self, name, queue="team"):
        self.now += 1
        self.declared.add(name)
        self.do(self.scheduler.queues.declare(name, queue, ONE, asked=self.now, now=self.now))

    def ends(self, name):
        self.now += 1
        if name in self.declared:
            self.do(self.scheduler.queues.withdraw(name, self.now))
            return
        found = (one for one in self.scheduler.inventory.in_state(State.CLAIMED) if one.claim.key.request_id == name)
        self.do(self.scheduler.release(next(found).sandbox_id, self.now))

    def leave(self, name, pool=HERE):
        self.now += 1
        self.do(self.scheduler.leave(RequestKey("alice", name, pool), self.now))


def a_waiting_gang(**queue):
    """One of three is in use, and the gang needs all."""
    fleet = Fleet(**queue)
    fleet.ask("first", THERE)
    fleet.ask("g", size=3)
    assert fleet.admitted == ["first"]
    return fleet


@pytest.mark.parametrize("elsewhere", [lambda fleet: fleet.ask("later", THERE), lambda fleet: fleet.declare("later")])
def test_what_came_later_elsewhere_waits_behind_the_gang(elsewhere):
    fleet = a_waiting_gang()
    elsewhere(fleet)
    assert fleet.admitted == ["first"]
    fleet.ends("first")
    assert fleet.admitted == ["first", "g0", "g1", "g2"]
    fleet.ends("g1")
    assert fleet.admitted[4:] == ["later"]


def test_who_waits_for_a_gang_is_told_so():
    fleet = a_waiting_gang()
    fleet.ask("later", THERE)
    fleet.declare("object")
    why = "what queue team has left is kept for a gang that waits at pool here"
    found = fleet.scheduler.why_not(RequestKey("alice", "later", THERE)), fleet.scheduler.queues.why_declared("object")
    assert [(one.reason, one.message) for one in found] == [("QuotaReached", why)] * 2


@pytest.mark.parametrize(
    "goes",
    [
        pytest.param(lambda fleet: fleet.leave("g1"), id="a caller leaves"),
        pytest.param(lambda fleet: fleet.do(fleet.scheduler.remove_pool(HERE, fleet.now)), id="its pool goes"),
        pytest.param(
            lambda fleet: fleet.do(
                fleet.scheduler.set_pool(replace(fleet.scheduler.pool(HERE), closed="Broken"), fleet.now)
            ),
            id="its pool closes",
        ),
        pytest.param(lambda fleet: fleet.put("team", 10), id="it is admitted"),
    ],
)
def test_once_the_gang_does_not_wait_for_quota_the_others_go_at_once(goes):
    fleet = a_waiting_gang()
    fleet.ask("later", THERE)
    fleet.declare("object")
    goes(fleet)
    assert {"later", "object"} <= set(fleet.admitted)


def test_a_higher_class_and_other_queues_do_not_wait_for_it():
    fleet = a_waiting_gang(priority_classes=(PriorityClass("high"), PriorityClass("low")))
    fleet.put("other", 5)
    fleet.ask("other", THERE, queue="other")
    fleet.ask("high", THERE, priority="high")
    fleet.ask("low", THERE)
    assert fleet.admitted == ["first", "other", "high"]


EVENTS = st.lists(
    st.tuples(st.sampled_from(["here", "there", "declare"]), st.integers(0, 3))
    | st.tuples(st.just("ends"), st.integers(0, 9)),
    max_size=40,
)


def test_a_gang_behind_a_claim_of_its_pool_is_not_passed_from_another_pool_either():
    fleet = Fleet(quota=4)
    for name in ("a", "b", "c"):
        fleet.ask(name)
    fleet.ask("before", THERE, size=3)
    fleet.ask("single")
    fleet.ends("a")
    fleet.ask("gang", size=1)
    fleet.ask("later", THERE)
    fleet.ends("b")
    fleet.ends("c")
    assert fleet.admitted[-1] == "single"


@given(events=EVENTS)
def test_no_claim_that_came_after_a_gang_is_admitted_before_it(events):
    """In one class of one holder, with sandboxes for all."""
    fleet, came, gangs, names = Fleet(quota=4), {}, {}, (f"c{number}-" for number in itertools.count())
    before, admitted = set(), 0
    for number, (what, value) in enumerate(events):
        living = sorted(set(fleet.admitted) - set(came.get("over", ())))
        if what == "ends":
            if living:
                name = living[value % len(living)]
                came.setdefault("over", []).append(name)
                fleet.ends(name)
        elif what == "declare":
            came[name := next(names)] = number
            fleet.declare(name)
        else:
            name = next(names)
            own = [f"{name}{one}" for one in range(value)] or [name]
            came |= dict.fromkeys(own, number)
            gangs |= dict.fromkeys(own if value else (), number)
            fleet.ask(name, what, size=value)
        # Gangs that have waited since before the event.
        now_waiting = {came_at for name, came_at in gangs.items() if name not in fleet.admitted}
        if waiting := now_waiting & before:
            passed = [name for name in fleet.admitted[admitted:] if came[name] > min(waiting)]
            assert not passed, f"{passed} came after the gang of event {min(waiting)}"
        before, admitted = now_waiting, len(fleet.admitted)

"""Limits of queues: what is refused at once, what at the end of its wait, and when it is worth coming back."""

from dataclasses import replace

import pytest
from sandfleet_operator.api.errors import FleetError
from sandfleet_operator.api.kinds.queue import QueueSpec, Quota
from sandfleet_operator.api.values import Exit, Gang, RequestKey, State
from sandfleet_operator.plan.scheduler.actions import Bind
from sandfleet_operator.plan.scheduler.queues.standing.standings import Fate
from support.fleet.builders import NOW, a_claim, a_scheduler, answers, of_kind

CLOSED = Exit(code=0)


class Team:
    """A queue `team` of two sandboxes, all of them warm; sessions end one by one."""

    def __init__(self, **spec):
        self.now = NOW
        self.scheduler = a_scheduler(target_warm=4, max_sandboxes=40, max_starting=20)
        self.edit(**spec)
        self.do(self.scheduler.tick(self.now))

    def edit(self, **spec):
        self.do(self.scheduler.queues.put("team", QueueSpec(**{"nominal": Quota(sandboxes=2)} | spec), self.now))

    def do(self, actions):
        """The answers, after everything that follows at once."""
        found = answers(actions)
        for bind in of_kind(actions, Bind):
            found |= self.do(self.scheduler.bound(bind.sandbox.sandbox_uid, self.now))
        while starting := self.scheduler.inventory.in_state(State.STARTING):
            found |= self.do(self.scheduler.ready(starting[0].sandbox_uid, self.now))
        return found

    def ask(self, *requests, **changes):
        found = {}
        for request in requests:
            claim = replace(a_claim(queue="team", **changes), key=RequestKey("alice", request, "python"))
            found |= self.do(self.scheduler.ask(claim, self.now))
        return found

    def pass_time(self, seconds):
        self.now += seconds
        return self.do(self.scheduler.tick(self.now))

    def release(self, request):
        sandbox = self.scheduler.inventory.of_session(RequestKey("alice", request, "python"))
        actions = self.scheduler.release(sandbox.sandbox_id, self.now)
        return self.do([*actions, *self.scheduler.exited(sandbox.sandbox_uid, CLOSED, self.now)])

    def learn(self, every=5.0):
        """Of ten sessions one ends every so many seconds, so that the estimates know what waits are like."""
        self.ask("s0", "s1")
        for number in range(2, 12):
            self.ask(f"s{number}", max_wait=3600.0)
            self.pass_time(every)
            self.release(f"s{number - 2}")


def test_a_queue_that_lets_none_wait_serves_claims_that_find_a_warm_sandbox():
    team = Team(max_length=0)
    assert team.ask("r1", "r2").keys() == {"r1", "r2"}
    problem = team.ask("r3")["r3"]
    assert (problem.reason, problem.retryable, problem.subject) == ("QueueFull", True, "team")
    assert problem.message == "cannot claim: 0 claims wait in queue team, which lets no more wait"
    assert not team.scheduler.inventory.waiting


def test_a_claim_beyond_the_longest_queue_is_refused_with_the_time_until_a_place_is_free():
    team = Team(max_length=2)
    team.learn(every=5.0)
    assert team.ask("r1", "r2", max_wait=3600.0) == {}
    problem = team.ask("r3", max_wait=3600.0)["r3"]
    assert problem.reason == "QueueFull"
    first = team.scheduler.standings(team.now)[RequestKey("alice", "r1", "python")]
    assert problem.retry_after == pytest.approx(first.eta.p50, abs=1.0)


def test_a_full_queue_of_which_nothing_is_known_still_says_when_to_come_back():
    assert Team(max_length=0, nominal=Quota(sandboxes=1)).ask("r1", "r2")["r2"].retry_after == 5.0


def test_a_claim_that_cannot_be_served_within_its_own_wait_is_refused_at_once():
    team = Team()
    team.learn(every=20.0)
    # One session ends every 20 s or so: the third in line waits for about a minute.
    assert team.ask("r1", "r2", "r3", max_wait=3600.0) == {}
    problem = team.ask("r4", max_wait=10.0)["r4"]
    assert problem.reason == "WaitTooLong"
    assert problem.message.startswith("cannot claim: claims of queue team wait about ")
    assert problem.message.endswith("s, this one at most 10 s")
    # It comes back when ten seconds will do.
    assert 20.0 < problem.retry_after < 120.0
    assert team.ask("r5", max_wait=3600.0) == {}


def test_a_claim_that_cannot_be_served_within_the_wait_of_its_queue_is_refused_at_once():
    team = Team()
    team.learn(every=20.0)
    team.edit(max_wait=10.0)
    assert team.ask("r1", max_wait=3600.0)["r1"].reason == "WaitTooLong"


def test_estimates_that_have_not_turned_out_yet_refuse_no_claim():
    team = Team(max_wait=1.0)
    assert team.ask("r1", "r2", "r3", "r4").keys() == {"r1", "r2"}


def test_the_longest_wait_of_a_queue_ends_the_wait_of_its_claims():
    team = Team(max_wait=30.0)
    team.ask("r1", "r2", "r3", max_wait=600.0)
    assert team.pass_time(29.0) == {}
    problem = team.pass_time(2.0)["r3"]
    assert (problem.reason, problem.retryable, problem.retry_after) == ("WaitTooLong", True, 5.0)
    assert problem.message == "cannot claim: no sandbox within 30 s, the longest that queue team lets wait"


def test_an_edit_of_the_longest_wait_holds_for_claims_that_wait_already():
    team = Team()
    team.ask("r1", "r2", "r3", max_wait=600.0)
    team.pass_time(100.0)
    team.edit(max_wait=60.0)
    assert team.pass_time(0.25)["r3"].reason == "WaitTooLong"


def test_a_claim_whose_own_wait_is_over_is_told_when_to_come_back():
    team = Team(max_wait=600.0)
    team.ask("r1", "r2", "r3", max_wait=10.0)
    problem = team.pass_time(11.0)["r3"]
    assert (problem.reason, problem.retry_after) == ("NotBoundInTime", 5.0)


@pytest.mark.parametrize(
    ("spec", "gang", "refused"),
    [
        pytest.param(QueueSpec(nominal=Quota(sandboxes=2)), 2, False, id="all of its quota"),
        pytest.param(QueueSpec(nominal=Quota(sandboxes=2)), 3, True, id="more than its quota"),
        pytest.param(QueueSpec(nominal=Quota(sandboxes=2), cohort="all"), 5, False, id="all that the cohort lends"),
        pytest.param(QueueSpec(nominal=Quota(sandboxes=2), cohort="all"), 6, True, id="more than the cohort lends"),
        pytest.param(
            QueueSpec(nominal=Quota(sandboxes=2), cohort="all", borrowing=Quota(sandboxes=1)), 4, True,
            id="more than it may borrow",
        ),
    ],
)  # fmt: skip
def test_what_a_queue_may_never_use_is_refused_for_good(spec, gang, refused):
    team = Team()
    team.do(team.scheduler.queues.put("other", QueueSpec(nominal=Quota(sandboxes=3), cohort="all"), NOW))
    team.do(team.scheduler.queues.put("team", spec, NOW))
    claim = a_claim(queue="team", gang=Gang("g1", gang))
    if not refused:
        team.scheduler.ask(claim, NOW)
        return
    with pytest.raises(FleetError) as caught:
        team.scheduler.ask(claim, NOW)
    problem = caught.value.problem
    assert (problem.reason, problem.retryable, problem.retry_after) == ("GangTooLarge", False, None)


def test_what_would_become_of_a_claim_names_its_refusal():
    team = Team(max_length=1)
    team.ask("r1", "r2", "r3")
    found = team.scheduler.expect(a_claim("r9", queue="team"), team.now)
    assert (found.fate, found.reason) == (Fate.WOULD_BE_REFUSED, "QueueFull")
    assert not team.scheduler.standings(team.now, RequestKey("uid:1000", "r9", "python"))

"""The scheduler in a world that does anything at any time: no sandbox has two holders, and nothing is left."""

import itertools

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from sandfleet_operator.api.errors import Code, FleetError, Problem
from sandfleet_operator.api.values import Exit, State
from sandfleet_operator.plan.scheduler.actions import Answer, Bind, DropWorkspace, Resume, Start, Stop, Suspend
from sandfleet_operator.plan.scheduler.limits import FleetLimits
from sandfleet_operator.plan.scheduler.scheduler import Scheduler
from support.examples import examples
from support.fleet.builders import NOW, a_claim, a_pool

ENDS = st.sampled_from(
    [
        Exit(code=0),
        Exit(code=1),
        Exit(code=40),
        Exit(code=41),
        Exit(code=42),
        Exit(code=43),
        Exit(code=45),
        Exit(signal="SIGKILL"),
    ]
)
REQUESTS = st.sampled_from([f"r{number}" for number in range(8)])
# Mostly, so that sessions come about.
FIT = st.sampled_from([True] * 5 + [False])
UNFIT = Problem(Code.INTERNAL, "SandboxUnfit", "cannot hand out a sandbox: it is another one")


class FleetInAnyWorld(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.now = NOW
        # Incarnations that have a process: uid → workspace.
        self.processes = {}
        # What was asked of the world and not reported back yet.
        self.starting, self.binding, self.stopping = {}, {}, {}
        self.dropped = set()
        # What callers saw.
        self.holder_of, self.sandbox_of, self.failed = {}, {}, set()
        self.asked, self.left = set(), set()
        # Sessions that a caller waits for to be resumed: sandbox → request.
        self.resuming = {}

    @initialize(warm=st.integers(0, 3), most=st.integers(1, 5), starting=st.integers(1, 3))
    def begin(self, warm, most, starting):
        numbers = itertools.count(1)
        policy = FleetLimits(
            max_sandboxes=most,
            max_starting=starting,
            max_waiting=6,
            recovery_delays=(0.0, 0.5),
            longest_suspension=60.0,
            max_suspended=3,
        )
        self.pool = a_pool(target_warm=min(warm, most))
        self.scheduler = Scheduler([self.pool], policy, new_id=lambda _: f"id{next(numbers)}")

    def carry_out(self, actions):
        for action in actions:
            match action:
                case Start(sandbox) | Resume(sandbox):
                    assert sandbox.sandbox_uid not in self.processes
                    assert sandbox.workspace_id not in self.processes.values(), "two processes on one workspace"
                    assert sandbox.workspace_id not in self.dropped, "a start on a dropped workspace"
                    self.processes[sandbox.sandbox_uid] = sandbox.workspace_id
                    self.starting[sandbox.sandbox_uid] = sandbox
                case Bind(sandbox):
                    assert sandbox.sandbox_uid in self.processes
                    self.binding[sandbox.sandbox_uid] = sandbox
                case Stop(sandbox) | Suspend(sandbox):
                    self.stopping[sandbox.sandbox_uid] = sandbox
                case DropWorkspace(workspace_id):
                    assert workspace_id not in self.processes.values(), "a workspace dropped under a process"
                    self.dropped.add(workspace_id)
                case Answer(key, result):
                    self.answered(key.request_id, result)

    def answered(self, request, result):
        resumed = next((one for one, who in self.resuming.items() if who == request), None)
        if resumed is not None:
            del self.resuming[resumed]
            assert isinstance(result, Problem) or result.sandbox_id == resumed, "another session than was resumed"
            return
        assert request in self.asked
        if isinstance(result, Problem):
            assert request not in self.sandbox_of, "a claim failed after it was bound"
            self.failed.add(request)
            self.asked.discard(request)
            return
        assert self.holder_of.setdefault(result.sandbox_id, request) == request, "two holders"
        assert self.sandbox_of.setdefault(request, result.sandbox_id) == result.sandbox_id, "two sandboxes"

    @rule(request=REQUESTS, keep=st.booleans(), lease=st.sampled_from([5.0, 300.0]), data=st.data())
    def caller_asks(self, request, keep, lease, data):
        kept = sorted(self.scheduler.inventory.kept_workspaces)
        workspace = data.draw(st.sampled_from(["", *kept]))
        claim = a_claim(request, workspace_id=workspace, keep_workspace=keep, lease=lease, max_wait=20.0)
        self.asked.add(request)
        try:
            self.carry_out(self.scheduler.ask(claim, self.now))
        except FleetError as error:
            assert error.problem.reason in {"ClaimEnded", "QueueFull", "WorkspaceBusy", "SandboxNotFound"}
            self.asked.discard(request)

    @rule(request=REQUESTS)
    def caller_leaves(self, request):
        if request in self.asked and request not in self.sandbox_of:
            self.asked.discard(request)
        self.carry_out(self.scheduler.leave(a_claim(request).key, self.now))

    @precondition(lambda self: self.sandbox_of)
    @rule(data=st.data())
    def caller_releases(self, data):
        sandbox = data.draw(st.sampled_from(sorted(self.holder_of)))
        self.carry_out(self.scheduler.release(sandbox, self.now))

    @precondition(lambda self: self.sandbox_of)
    @rule(data=st.data(), seconds=st.sampled_from([None, 5.0]))
    def caller_suspends(self, data, seconds):
        sandbox = data.draw(st.sampled_from(sorted(self.holder_of)))
        suspensions = self.scheduler.suspensions
        try:
            suspensions.check_room(sandbox)
        except FleetError as error:
            assert error.problem.reason == "TooManySuspended"
        else:
            self.carry_out(suspensions.suspend(sandbox, seconds, self.now))

    @precondition(lambda self: self.sandbox_of)
    @rule(data=st.data())
    def caller_resumes(self, data):
        sandbox = self.scheduler.inventory.get(data.draw(st.sampled_from(sorted(self.holder_of))))
        if sandbox is None or sandbox.state in {State.ENDED, State.CLAIMED, State.RECOVERING}:
            return
        request = sandbox.claim.key.request_id
        if request not in self.asked - set(self.sandbox_of):
            self.resuming[sandbox.sandbox_id] = request
            self.carry_out(self.scheduler.suspensions.resume(sandbox, 20.0, self.now))

    @precondition(lambda self: self.resuming)
    @rule(data=st.data())
    def caller_stops_waiting_for_a_resume(self, data):
        sandbox = data.draw(st.sampled_from(sorted(self.resuming)))
        self.carry_out(self.scheduler.leave(a_claim(self.resuming.pop(sandbox)).key, self.now))

    @precondition(lambda self: self.starting)
    @rule(data=st.data(), fit=FIT)
    def a_start_is_over(self, data, fit):
        uid = data.draw(st.sampled_from(sorted(self.starting)))
        del self.starting[uid]
        self.carry_out(self.scheduler.ready(uid, self.now) if fit else self.scheduler.unfit(uid, UNFIT, self.now))

    @precondition(lambda self: self.binding)
    @rule(data=st.data(), fit=FIT)
    def a_binding_is_over(self, data, fit):
        uid = data.draw(st.sampled_from(sorted(self.binding)))
        del self.binding[uid]
        self.carry_out(self.scheduler.bound(uid, self.now) if fit else self.scheduler.unfit(uid, UNFIT, self.now))

    @precondition(lambda self: self.processes)
    @rule(data=st.data(), end=ENDS)
    def a_process_ends(self, data, end):
        self.exit(data.draw(st.sampled_from(sorted(self.processes))), end)

    @precondition(lambda self: self.stopping)
    @rule(data=st.data())
    def a_stop_is_over(self, data):
        self.exit(data.draw(st.sampled_from(sorted(self.stopping))), Exit(code=0))

    def exit(self, uid, end):
        # A ready or bound that was on its way may still come: that is why starting and binding keep it.
        del self.processes[uid]
        self.stopping.pop(uid, None)
        self.carry_out(self.scheduler.exited(uid, end, self.now))

    @rule()
    def all_goes_well_for_a_while(self):
        self.settle()

    @rule(seconds=st.sampled_from([0.25, 1.0, 6.0, 30.0, 70.0]))
    def time_passes(self, seconds):
        self.now += seconds
        self.carry_out(self.scheduler.tick(self.now))

    @invariant()
    def every_process_is_known_and_every_unwanted_one_is_being_stopped(self):
        if not hasattr(self, "scheduler"):
            return
        inventory = self.scheduler.inventory
        for uid in self.processes:
            known = inventory.of_incarnation(uid)
            assert known is not None, "an unknown process"
            unwanted = known.state in {State.ENDED, State.SUSPENDING}
            assert not unwanted or uid in self.stopping, "an unwanted process that is not being stopped"
        for one in inventory.all():
            assert one.running == (one.sandbox_uid in self.processes)

    @invariant()
    def limits_hold(self):
        if not hasattr(self, "scheduler"):
            return
        inventory, policy = self.scheduler.inventory, self.scheduler.limits
        assert len(inventory) - inventory.count(State.SUSPENDED) <= policy.max_sandboxes
        replacing = [one for one in inventory.in_state(State.RECOVERING) if one.running]
        begun = inventory.count(State.STARTING) + inventory.count(State.RESUMING)
        assert begun + len(replacing) <= policy.max_starting
        assert inventory.count(State.SUSPENDED) + inventory.count(State.SUSPENDING) <= policy.max_suspended

    @invariant()
    def counters_are_what_they_count(self):
        if not hasattr(self, "scheduler"):
            return
        inventory = self.scheduler.inventory
        for pool in [*(one.name for one in self.scheduler.pools), "removed"]:
            for state in State:
                counted = [one for one in inventory.all() if (one.pool, one.state) == (pool, state)]
                assert inventory.count_of(pool, state) == len(counted), (pool, state)

    @invariant()
    def a_suspended_session_keeps_its_workspace_and_has_an_end(self):
        if not hasattr(self, "scheduler"):
            return
        for one in self.scheduler.inventory.in_state(State.SUSPENDED):
            assert one.workspace_id not in self.dropped
            assert one.lease_expires is None
            assert one.suspended_until is not None

    @invariant()
    def every_claim_waits_or_was_answered(self):
        if not hasattr(self, "scheduler"):
            return
        waiting = {key.request_id for key in self.scheduler.inventory.waiting}
        assert self.asked - set(self.sandbox_of) <= waiting

    def teardown(self):
        if not hasattr(self, "scheduler"):
            return
        for request in [key.request_id for key in self.scheduler.inventory.waiting]:
            self.caller_leaves(request)
        for sandbox in list(self.holder_of):
            self.carry_out(self.scheduler.release(sandbox, self.now))
        inventory, target = self.scheduler.inventory, self.pool.target_warm
        for _ in range(30):
            self.settle()
            if inventory.count(State.WARM) == target == len(inventory):
                break
        assert [one.state for one in inventory.all()] == [State.WARM] * target
        assert len(self.processes) == target
        assert not self.dropped & inventory.kept_workspaces

    def settle(self):
        """Whatever was asked of the world happens, and time goes on."""
        for uid in list(self.stopping):
            self.exit(uid, Exit(code=0))
        for uid in list(self.starting):
            del self.starting[uid]
            self.carry_out(self.scheduler.ready(uid, self.now))
        for uid in list(self.binding):
            del self.binding[uid]
            self.carry_out(self.scheduler.bound(uid, self.now))
        self.now += 1.0
        self.carry_out(self.scheduler.tick(self.now))


FleetInAnyWorld.TestCase.settings = settings(max_examples=examples(100), stateful_step_count=60, deadline=None)
test_a_sandbox_never_has_two_holders_and_nothing_is_left_behind = pytest.mark.slow(FleetInAnyWorld.TestCase)

"""Values of the fleet for tests, with everything that a test does not care about filled in."""

import itertools
from dataclasses import replace

from sandfleet_operator.api.values import Claim, Isolation, RequestKey, Sandbox, State, Template
from sandfleet_operator.plan.scheduler.actions import Action, Answer, Start
from sandfleet_operator.plan.scheduler.claim_queue import Waiting
from sandfleet_operator.plan.scheduler.limits import FleetLimits
from sandfleet_operator.plan.scheduler.refill import Pool
from sandfleet_operator.plan.scheduler.scheduler import Scheduler

NOW = 1_000_000.0
TEMPLATE = Template()


def a_claim(request_id="r1", **changes):
    return replace(Claim(key=RequestKey("uid:1000", request_id, "python")), **changes)


def a_waiting(number=1, *, claim=None, **changes):
    waiting = Waiting(claim=claim or a_claim(f"r{number}"), number=number, asked=NOW, deadline=NOW + 60)
    return replace(waiting, **changes)


def a_pool(**changes):
    return replace(Pool(name="python", template=TEMPLATE, target_warm=2), **changes)


def a_sandbox(state=State.WARM, **changes):
    """A sandbox as it really is in that state; `changes` on top."""
    sandbox = Sandbox(
        sandbox_id="s1",
        sandbox_uid="u1",
        pool="python",
        template="python",
        workspace_id="w1",
        state=state,
        created=NOW - 10,
        started=NOW - 10,
        isolation=Isolation.NAMESPACE,
        ready=None if state is State.STARTING else NOW - 9,
    )
    if state in {State.CLAIMED, State.RECOVERING}:
        sandbox = replace(sandbox, claim=a_claim(), bound=True, lease_expires=NOW + 300)
    if state in {State.SUSPENDING, State.SUSPENDED, State.RESUMING}:
        asleep = {"running": state is not State.SUSPENDED, "suspended_until": NOW + 3600}
        sandbox = replace(sandbox, claim=a_claim(), bound=True, **asleep)
    if state is State.RECOVERING:
        sandbox = replace(sandbox, running=False, replace_at=NOW, crashes=1, restarts=1, last_restart_reason="Crashed")
    return replace(sandbox, **changes)


def a_scheduler(**policy):
    numbers = itertools.count(1)
    settings = {"max_sandboxes": 8, "max_starting": 4} | policy
    target = settings.pop("target_warm", 2)
    return Scheduler([a_pool(target_warm=target)], FleetLimits(**settings), new_id=lambda _: f"id{next(numbers)}")


def of_kind(actions: list[Action], kind):
    return [action for action in actions if isinstance(action, kind)]


def answers(actions: list[Action]):
    return {action.key.request_id: action.result for action in of_kind(actions, Answer)}


def a_cluster(*pools, **limits):
    numbers = itertools.count(1)
    settings = {"max_sandboxes": 1000, "max_starting": 10, "recovers": False, "keeps_workspaces": False} | limits
    return Scheduler(pools, FleetLimits(**settings), new_id=lambda pool: f"{pool}-{next(numbers)}")


def starts(actions):
    return [one.sandbox.sandbox_uid for one in of_kind(actions, Start)]


def starting(scheduler, pool):
    return scheduler.inventory.count_of(pool, State.STARTING)

"""What a cycle says of the claims that it does not admit."""

import pytest
from sandfleet_operator.plan.scheduler.claim_queue import Snapshot, why_not
from sandfleet_operator.plan.scheduler.limits import FleetLimits
from sandfleet_operator.plan.scheduler.queues.fair_queue import FairQueue
from sandfleet_operator.plan.scheduler.queues.ledger import Ledger
from sandfleet_operator.plan.scheduler.refill import Pool
from sandfleet_operator.plan.scheduler.scheduler import Scheduler
from support.fleet.builders import NOW, TEMPLATE, a_claim, a_waiting


@pytest.mark.parametrize(
    ("snapshot", "position", "reason"),
    [
        pytest.param(Snapshot(closed="PolicyMissing", full=True), 1, "PolicyMissing", id="a closed pool says why"),
        pytest.param(Snapshot(full=True, starting=1), 2, "SandboxLimit", id="beyond the starts of a full pool"),
        pytest.param(Snapshot(full=True, starting=1), 1, "PoolEmpty", id="a start of a full pool will serve it"),
        pytest.param(Snapshot(starting=2), 1, "PoolEmpty", id="an empty pool"),
    ],
)
def test_a_claim_waits_for_a_reason_and_a_message(snapshot, position, reason):
    why = why_not(position, a_waiting(1), snapshot)
    assert why.reason == reason
    assert why.message


def test_a_claim_with_a_start_of_its_own_waits_for_a_cold_start():
    assert why_not(1, a_waiting(1, sandbox_id="own"), Snapshot(starting=1)).reason == "ColdStart"


def test_without_queues_turns_go_by_arrival_and_a_claim_on_an_earlier_workspace_waits_beside():
    queue = FairQueue("python", Ledger())
    first, old, second = a_waiting(1), a_waiting(2, claim=a_claim("old", workspace_id="workspace-old")), a_waiting(3)
    for one in (second, old, first):
        queue.add(one)
    served = []
    for one in queue.turns(NOW):
        served.append(one.number)
        queue.discard(one)
    assert served == [1, 3]
    assert list(queue.alone_in_order(queue.demands(NOW))) == [old]


def test_a_cycle_keeps_why_it_admitted_no_claim_until_the_claim_leaves():
    pool = Pool(name="python", template=TEMPLATE, closed="PolicyMissing")
    scheduler = Scheduler([pool], FleetLimits(), new_id=str)
    claim = a_claim("waits", pool="python")
    scheduler.ask(claim, NOW)
    why = scheduler.why_not(claim.key)
    assert (why.reason, why.message) == ("PolicyMissing", "the pool hands out nothing now (PolicyMissing)")
    scheduler.leave(claim.key, NOW)
    assert scheduler.why_not(claim.key) is None

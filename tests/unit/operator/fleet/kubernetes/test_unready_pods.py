"""Which warm pods are not ready any more, from what the watch shows."""

import pytest
from sandfleet_operator.api.values import State
from sandfleet_operator.fleet.kubernetes.upkeep import UnreadyPods
from sandfleet_operator.plan.scheduler.inventory import Inventory
from support.fleet.builders import NOW, a_sandbox

KEY = "team/fast-1"


def a_pod(ready):
    status = {"conditions": [{"type": "Ready", "status": "True" if ready else "False"}]}
    return {"metadata": {"namespace": "team", "name": "fast-1", "uid": "u"}, "status": status}


@pytest.fixture
def unready():
    inventory = Inventory()
    inventory.put(a_sandbox(State.STARTING, sandbox_id=KEY, sandbox_uid=KEY))
    made = UnreadyPods(inventory)
    made.inventory = inventory
    return made


def warm(unready):
    unready.inventory.put(a_sandbox(State.WARM, sandbox_id=KEY, sandbox_uid=KEY))


def test_the_time_counts_from_when_a_pod_is_warm_and_not_ready(unready):
    unready.saw(a_pod(False), gone=False)
    assert unready.longer_than(15, NOW) == []
    warm(unready)
    # A pod that is starting may take as long as it needs.
    assert unready.longer_than(15, NOW + 100) == []
    assert unready.longer_than(15, NOW + 115) == [KEY]


def test_a_pod_that_is_ready_again_begins_anew(unready):
    warm(unready)
    unready.saw(a_pod(False), gone=False)
    assert unready.longer_than(15, NOW) == []
    unready.saw(a_pod(True), gone=False)
    assert unready.longer_than(15, NOW + 20) == []
    unready.saw(a_pod(False), gone=False)
    assert unready.longer_than(15, NOW + 30) == []
    assert unready.longer_than(15, NOW + 45) == [KEY]


def test_a_pod_that_is_gone_is_forgotten(unready):
    warm(unready)
    unready.saw(a_pod(False), gone=False)
    assert unready.longer_than(0, NOW) == [KEY]
    unready.saw(a_pod(False), gone=True)
    assert unready.longer_than(0, NOW) == []

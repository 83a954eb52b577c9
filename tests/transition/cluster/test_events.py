"""Events: their content, and the limits on their number."""

import pytest
from sandfleet_operator.api.conditions import Reason
from sandfleet_operator.api.kinds.meta import Condition
from sandfleet_operator.api.kube import failure
from sandfleet_operator.cluster import events as module
from sandfleet_operator.cluster.events import BURST, REFILL_SECONDS, Events
from support.fakes.kube_memory import Before, MemoryKube
from support.operator.builders import a_sandbox


class Bed:
    def __init__(self) -> None:
        self.kube, self.now = MemoryKube(), 1_700_000_000.0
        self.events = Events(self.kube, lambda: self.now, "operator-1")

    async def tell(self, reason: Reason = Reason.POD_DELETED, name: str = "demo", uid: str = "") -> None:
        sandbox = a_sandbox(name)
        if uid:
            object.__setattr__(sandbox.meta, "uid", uid)
        self.now += 0.001
        await self.events.tell(sandbox, Condition(type="Ready", status="False", reason=reason.value, message="why"))

    def told(self) -> list:
        return [obj for ref, obj in self.kube.cluster.objects.items() if ref.kind.kind == "Event"]


@pytest.fixture
async def bed() -> Bed:
    made = Bed()
    await made.kube.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team-a"}})
    return made


@pytest.mark.parametrize(
    ("reason", "type_"),
    [
        (Reason.POD_STARTING, "Normal"),
        (Reason.EXECUTOR_ANSWERS, "Normal"),
        (Reason.SUSPENDED, "Normal"),
        (Reason.IDLE_TIMEOUT_OVER, "Normal"),
        (Reason.QUOTA_EXCEEDED, "Warning"),
        (Reason.EXECUTOR_CRASHED, "Warning"),
        (Reason.TOO_MANY_RESTARTS, "Warning"),
    ],
)
async def test_an_event_names_the_sandbox_the_reason_and_its_type(bed: Bed, reason, type_):
    await bed.tell(reason)
    (event,) = bed.told()
    assert (event["reason"], event["message"], event["type"]) == (reason.value, "why", type_)
    about = event["involvedObject"]
    assert (about["kind"], about["namespace"], about["name"], about["uid"]) == (
        "CodeSandbox",
        "team-a",
        "demo",
        a_sandbox().meta.uid,
    )


async def test_events_of_one_sandbox_do_not_flood_and_do_not_silence_another(bed: Bed):
    for _ in range(5 * BURST):
        await bed.tell()
    assert len(bed.told()) == BURST
    await bed.tell(name="other", uid="another")
    assert len(bed.told()) == BURST + 1


async def test_after_the_burst_events_are_rare(bed: Bed):
    for _ in range(2 * BURST):
        await bed.tell()
    for _ in range(4):
        bed.now += REFILL_SECONDS / 2
        await bed.tell()
    assert len(bed.told()) == BURST + 2


async def test_a_long_silence_refills_one_burst(bed: Bed):
    await bed.tell()
    bed.now += 1000 * REFILL_SECONDS
    for _ in range(5 * BURST):
        await bed.tell()
    assert len(bed.told()) == 1 + BURST


async def test_an_event_that_cannot_be_written_is_no_error(bed: Bed):
    bed.kube.fault = lambda _write: Before(failure("create it", 403, {}))
    await bed.tell()
    assert bed.told() == []


async def test_remembered_sandboxes_are_bounded(bed: Bed, monkeypatch):
    monkeypatch.setattr(module, "MAX_KNOWN", 3)
    for number in range(10):
        await bed.tell(uid=f"uid-{number}")
    assert len(bed.events._left) == 3

"""A sandbox and its queue: what the fleet has decided → whether there is a pod, and the condition Admitted."""

from dataclasses import replace

import pytest
from sandfleet_operator.api.conditions import ConditionType
from sandfleet_operator.api.kinds.sandbox import AdmissionState, AdmissionStatus, SandboxStatus
from sandfleet_operator.plan.sandbox.actions import CreatePod
from transition.builders import (
    CLAIM,
    NOW,
    SUSPENDED,
    WARM,
    actions,
    condition,
    exited,
    observed,
    on_record,
    planned,
    ready,
    sandbox,
    with_spec,
    with_status,
    without_pod,
)

TEAM = frozenset({"team"})
DEFAULT = frozenset({"team", "default"})
ADMITTED = AdmissionStatus(queue="team", state=AdmissionState.ADMITTED, time=NOW, cpu="100", memory="1Ti")
PENDING = AdmissionStatus(queue="team", time=NOW, message="1 more sandbox of quota, or 40 s")


def new(admission: AdmissionStatus | None = None, queue: str = "", **changes):
    """Everything exists except the pod."""
    status = SandboxStatus(admission=admission, workspace_claim=CLAIM)
    return without_pod(**{"sandbox": sandbox(status, queue=queue), "queues": TEAM, **changes})


def runs(admission: AdmissionStatus | None = None, queue: str = "", **changes):
    return with_spec(with_status(observed(queues=TEAM, **changes), admission=admission), queue=queue)


# Observation → why the sandbox is not Ready, the actions, and the status and reason of Admitted.
TABLE = {
    "no queue": (new(queues=frozenset()), "PodStarting", ["CreatePod"], None),
    "only queues that it does not name": (new(), "PodStarting", ["CreatePod"], None),
    "a queue that has not looked": (new(queue="team"), "WaitingForAdmission", [], ("False", "WaitingForAdmission")),
    "the default queue": (new(queues=DEFAULT), "WaitingForAdmission", [], ("False", "WaitingForAdmission")),
    "it waits": (new(PENDING, "team"), "WaitingForAdmission", [], ("False", "WaitingForAdmission")),
    "it is admitted": (new(ADMITTED, "team"), "PodStarting", ["CreatePod"], ("True", "Admitted")),
    "it names no queue of the namespace": (new(queue="other"), "QueueNotFound", [], ("False", "QueueNotFound")),
    "it waited in a queue that is gone": (new(PENDING, "other"), "QueueNotFound", [], ("False", "QueueNotFound")),
    "it waited in the default queue, which is gone": (new(PENDING), "PodStarting", ["CreatePod"], None),
    "its queue has gone after the admission": (new(ADMITTED, "other"), "PodStarting", ["CreatePod"], ("True", "Admitted")),
    "it runs": (runs(ADMITTED, "team"), "Ready", [], ("True", "Admitted")),
    "it runs from before the queue": (runs(queue="team"), "Ready", [], ("False", "WaitingForAdmission")),
    "it ran from before the queue": (runs(queue="team", pod=exited(1)), "ExecutorCrashed", ["DeletePod"], ("False", "WaitingForAdmission")),
    "it is to make room": (runs(PENDING, "team"), "WaitingForAdmission", ["DeletePod"], ("False", "WaitingForAdmission")),
    "it made room": (runs(PENDING, "team", pod=None, pod_gone=True), "WaitingForAdmission", [], ("False", "WaitingForAdmission")),
    "its pod crashed": (runs(ADMITTED, "team", pod=exited(1)), "ExecutorCrashed", ["DeletePod"], ("True", "Admitted")),
    "it is suspended": (with_spec(runs(PENDING, "team"), operating_mode=SUSPENDED), "Suspending", ["DeletePod"], ("False", "WaitingForAdmission")),
    "a claim waits for its pool": (replace(new(), sandbox=sandbox(pool="warm", queue="team")), "WaitingForAdmission", [], ("False", "WaitingForAdmission")),
}  # fmt: skip


@pytest.mark.parametrize("name", TABLE)
def test_a_pod_is_made_only_after_the_admission(name):
    seen, why, doing, admitted = TABLE[name]
    made = planned(seen)
    found = {one.type: (one.status, one.reason) for one in made.status.conditions}
    assert (ready(made), actions(made), found.get("Admitted")) == (why, doing, admitted)


def test_a_waiting_sandbox_says_what_would_let_it_in():
    made = planned(new(PENDING, "team"))
    for kind in (ConditionType.ADMITTED, ConditionType.READY):
        assert condition(made, kind).message == "1 more sandbox of quota, or 40 s"


def test_a_claim_that_the_fleet_has_bound_was_admitted_with_it():
    seen = replace(new(queue="team"), sandbox=sandbox(bound=WARM, settled=True, queue="team"), pod_gone=True)
    assert condition(planned(seen), ConditionType.ADMITTED).message == "admitted with its claim"


def test_the_condition_keeps_the_time_of_its_last_change():
    waiting = new(PENDING, "team")
    later = replace(waiting, sandbox=on_record(waiting, at=NOW - 50))
    assert condition(planned(later), ConditionType.ADMITTED).changed == NOW - 50
    admitted = with_status(later, admission=ADMITTED)
    assert condition(planned(admitted), ConditionType.ADMITTED).changed == NOW


def test_without_a_queue_the_condition_goes():
    waited = replace(new(PENDING), queues=DEFAULT)
    gone = replace(waited, sandbox=on_record(waited), queues=frozenset())
    made = planned(gone)
    assert "Admitted" not in {one.type for one in made.status.conditions}
    assert [type(one) for one in made.actions] == [CreatePod]

"""Properties that every plan has, for any observation, however unlikely."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sandfleet_operator.api.conditions import Reason
from sandfleet_operator.api.kinds.sandbox import (
    AdmissionState,
    AdmissionStatus,
    CodeSandbox,
    OperatingMode,
    SandboxStatus,
    ServiceState,
    ServiceStatus,
)
from sandfleet_operator.api.kinds.template import Retention, Workspace
from sandfleet_operator.plan.pods import names
from sandfleet_operator.plan.sandbox.actions import (
    AdoptPod,
    CreatePod,
    CreateVolume,
    DeletePod,
    EnsurePolicy,
    Greet,
    Plan,
)
from sandfleet_operator.plan.sandbox.admission import queue_of
from sandfleet_operator.plan.sandbox.binding import claims_own, current_uid, settled_binding
from sandfleet_operator.plan.sandbox.dependencies import is_own
from sandfleet_operator.plan.sandbox.observed import Contact, Heard, Observed, Pod, Trouble
from sandfleet_operator.plan.sandbox.status import is_unchanged
from support.examples import examples
from support.operator.builders import opens
from transition.builders import (
    META,
    NOW,
    TEMPLATE,
    WARM,
    WARM_CLAIM,
    booked,
    exited,
    node,
    observed,
    on_record,
    planned,
    pod,
    policies,
    record,
    sandbox,
    true,
    volume,
    warm_pod,
    warm_volume,
    with_status,
    without_pod,
)

# Statuses, whether or not they fit the observation.
STATUSES = [
    SandboxStatus(),
    observed().sandbox.status,
    on_record(observed(pod=exited(41))).status,
    on_record(observed(pod=pod(deleting=True))).status,
    booked("ExecutorCrashed"),
    booked("PodDeleted", crashes=0, ago=100),
    booked(*["OutOfMemory"] * 9),
    with_status(without_pod(), pod_uid="uid-0", pod="demo").sandbox.status,
    on_record(without_pod(template=None)).status,
    SandboxStatus(restarts=1, workspace_claim=WARM_CLAIM),
    with_status(
        observed(), services=(ServiceStatus(name="db", state=ServiceState.FAILED),), services_ready="0/1"
    ).sandbox.status,
]


@st.composite
def pods(draw) -> Pod:
    others = [warm_pod(owner="other"), warm_pod(labels={**warm_pod().labels, names.STATE: "warm"})]
    own = [pod(), pod(), pod(uid="uid-2"), pod(owner=""), warm_pod(), warm_pod()]
    made = draw(st.sampled_from([*own, pod(owner="other"), *others]))
    changes = st.fixed_dictionaries(
        {},
        optional={
            "deleting": st.booleans(),
            "node": st.just(""),
            "address": st.just(""),
            "ready": st.booleans(),
            "labels": st.just({}),
            "annotations": st.sampled_from([{names.SPEC_HASH: "of-another"}, {names.SERVICES: "db,web"}]),
            "waiting": st.sampled_from(["ContainerCreating", "ErrImagePull", "CreateContainerConfigError"]),
            "waiting_message": st.just('secret "tokens" not found'),
            "unschedulable": st.just("no node fits"),
            "disruption": st.sampled_from(["Evicted", "DeletionByTaintManager"]),
            "ended": st.sampled_from([exited(code).ended for code in (None, 0, 1, 40, 41, 137)]),
        },
    )
    return replace(made, **draw(changes))


ADMISSIONS = [None, None, *(AdmissionStatus(queue="team", state=state, time=NOW) for state in AdmissionState)]
WORKSPACES = [Workspace(size=1 << 50), Workspace(retention=Retention.RETAIN), Workspace(claim_name="workspace-left")]


@st.composite
def sandboxes(draw) -> CodeSandbox:
    bound = draw(st.sampled_from([None, None, WARM, (WARM[0], "uid-of-another"), ("demo", "uid-1")]))
    spec = st.fixed_dictionaries(
        {},
        optional={
            "pool": st.just("warm"),
            "operating_mode": st.sampled_from(OperatingMode),
            "lifetime": st.sampled_from([10.0, 1000.0, 5000.0]),
            "egress": st.sampled_from([opens(), opens(("203.0.113.0/25", 443)), opens("0.0.0.0/0")]),
            "workspace": st.sampled_from(WORKSPACES),
            "queue": st.just("team"),
        },
    )
    claim = draw(st.sampled_from(["", record(), record(META.uid), "broken"])) if bound else ""
    settled = draw(st.booleans())
    status = replace(draw(st.sampled_from(STATUSES)), admission=draw(st.sampled_from(ADMISSIONS)))
    made = sandbox(status, bound=bound, claim=claim, settled=settled, **draw(spec))
    return replace(made, meta=replace(made.meta, deleting=draw(st.integers(0, 9)) == 9))


REASONS = [None, Reason.EXECUTOR_UNREACHABLE, Reason.EXECUTOR_IDENTITY_INVALID, Reason.RUNTIME_MISMATCH]
CONTACTS = st.builds(
    Contact,
    pod_uid=st.sampled_from(["uid-1", "uid-2", WARM[1]]),
    at=st.sampled_from([NOW, NOW - 5, NOW - 500]),
    reason=st.sampled_from(REASONS),
    runtime=st.just("gvisor"),
)
TROUBLES = st.builds(
    Trouble, reason=st.just(Reason.QUOTA_EXCEEDED), message=st.just("no"), at=st.sampled_from([NOW, NOW - 5])
)
VOLUMES = st.sampled_from(
    [
        volume(),
        warm_volume(),
        warm_volume(pod_owner="uid-of-another"),
        volume(owner="other"),
        volume(deleting=True),
        volume(phase="Lost"),
        volume(labels={}),
        volume(name="workspace-left", owner="", retention="Retain"),
    ]
)
NODES = st.sampled_from([node(), node(ready=False, silent_since=NOW - 5), node(ready=False), node(out_of_service=True)])
SERVICES = tuple(ServiceStatus(name=name, state=ServiceState.READY) for name in ("db", "web", "stranger"))
HEARD = st.builds(
    Heard,
    pod_uid=st.sampled_from(["uid-1", "uid-2", WARM[1]]),
    services=st.sampled_from([SERVICES, SERVICES[:1]]),
    problem=st.sampled_from(["", "", "it is silent"]),
)
SEEN = st.builds(
    Observed,
    sandbox=sandboxes(),
    template=st.sampled_from([TEMPLATE, TEMPLATE, TEMPLATE, None]),
    template_problem=st.sampled_from(["", "", "", "cannot read it"]),
    pod=st.none() | pods(),
    pod_gone=st.booleans(),
    volume=st.none() | VOLUMES,
    policies=st.sets(st.sampled_from(sorted(policies()))).map(lambda kept: {name: policies()[name] for name in kept}),
    queues=st.sampled_from([frozenset(), frozenset(), frozenset({"team"}), frozenset({"default"})]),
    keys=st.booleans(),
    workspace_users=st.sampled_from([(), (), ("pod other",)]),
    storage_problem=st.sampled_from(["", "", "cannot make a workspace: no class"]),
    node=st.none() | NODES,
    contact=st.none() | CONTACTS,
    heard=st.none() | HEARD,
    trouble=st.none() | TROUBLES,
)
# Each takes an observation.
INVARIANTS: list[Callable[[Observed], None]] = []


def invariant(check: Callable[[Observed], None]) -> Callable[[Observed], None]:
    INVARIANTS.append(check)
    return check


def asked(made: Plan, kind: type) -> list:
    return [one for one in made.actions if isinstance(one, kind)]


@invariant
def no_pod_is_created_while_an_earlier_one_may_exist(seen):
    if asked(planned(seen), CreatePod):
        assert seen.pod is None
        assert seen.pod_gone or not (current_uid(seen.sandbox, seen.binding) or seen.claimed_pod)
        assert not {"Expired", "Suspended"} & true(planned(seen))


@invariant
def no_pod_is_created_against_its_queue(seen):
    if asked(planned(seen), CreatePod) and queue_of(seen.sandbox, seen.queues):
        said = seen.sandbox.status.admission
        assert said.state is AdmissionState.ADMITTED if said else seen.binding
        assert "Admitted" in true(planned(seen))


@invariant
def no_pod_is_created_without_default_deny_or_its_volume(seen):
    made = planned(seen)
    for create in asked(made, CreatePod):
        before = made.actions[: made.actions.index(create)]
        closed = {one.manifest["metadata"]["name"] for one in before if isinstance(one, EnsurePolicy)} | set(
            seen.policies
        )
        labels = create.manifest["metadata"]["labels"]
        assert names.DEFAULT_DENY in closed
        assert names.EGRESS_CLASS not in labels or names.class_policy(labels[names.EGRESS_CLASS]) in closed
        assert names.EGRESS_OWN not in labels or names.own_policy(labels[names.EGRESS_OWN]) in closed
        assert seen.volume is not None or [one for one in before if isinstance(one, CreateVolume)]


@invariant
def a_ready_sandbox_is_isolated_and_has_a_live_pod(seen):
    made = planned(seen)
    if "Ready" in true(made) and not seen.sandbox.meta.deleting:
        assert "Isolated" in true(made)
        assert seen.pod is not None
        assert not seen.pod.deleting
        assert seen.pod.ended is None
        assert made.status.pod_uid == seen.pod.uid


@invariant
def only_the_sandboxs_own_pod_is_deleted_or_greeted(seen):
    made = planned(seen)
    for one in asked(made, DeletePod):
        assert (one.name, one.uid) == (seen.pod.name, seen.pod.uid)
        assert is_own(seen.pod, seen)
    for one in asked(made, Greet):
        assert one.pod_uid == seen.pod.uid
        assert is_own(seen.pod, seen)


@invariant
def no_pod_is_taken_from_another_sandbox_or_a_pool(seen):
    taken = asked(planned(seen), AdoptPod)
    on_record = seen.pod is not None and seen.pod.uid == seen.sandbox.status.pod_uid
    for one in taken:
        assert one.owner is None or seen.pod.owner == ""
        assert on_record or seen.pod.owner == META.uid or seen.pod.labels.get(names.STATE) == "claimed"
    for one in asked(planned(seen), Greet):
        assert one.first == (seen.claimed_pod != (seen.pod.name, one.pod_uid))


@invariant
def an_object_of_an_ended_claim_gets_no_pod(seen):
    made, status = planned(seen), seen.sandbox.status
    claims = claims_own(seen.sandbox) is not None and settled_binding(seen.sandbox) is None
    unrecorded = not (status.pod_uid or status.restarts or status.workspace_claim)
    if claims and unrecorded and not seen.sandbox.meta.deleting:
        assert not asked(made, CreatePod)


@invariant
def a_second_round_changes_nothing_and_counts_nothing_twice(seen):
    made = planned(seen)
    assert made == planned(seen)
    assert made.status.restarts - seen.sandbox.status.restarts in {0, 1}
    assert made.status.restarts == seen.sandbox.status.restarts or made.status_first
    again = planned(replace(seen, sandbox=replace(seen.sandbox, status=made.status)))
    assert again.status.restarts == made.status.restarts
    # A claim whose pod is gone may first be told that it waits for its queue, and then that it is over.
    last = planned(replace(seen, sandbox=replace(seen.sandbox, status=again.status)))
    at_rest = is_unchanged(again.status, made.status) or is_unchanged(last.status, again.status)
    assert not again.status_first or at_rest


@invariant
def no_pod_is_created_on_a_workspace_in_use(seen):
    made, status = planned(seen), seen.sandbox.status
    if seen.workspace_users and not status.workspace_claim and seen.volume and seen.volume.owner != META.uid:
        assert not asked(made, CreatePod)
    if seen.sandbox.spec.workspace.claim_name:
        assert not asked(made, CreateVolume)


@invariant
def services_are_polled_only_from_a_ready_sandboxs_own_pod(seen):
    made = planned(seen)
    if made.ask is not None:
        assert "Ready" in true(made)
        assert made.ask.pod_uid == seen.pod.uid == made.status.pod_uid
        assert is_own(seen.pod, seen)
        assert names.SERVICES in seen.pod.annotations
    shown = made.status.services
    if shown and not seen.sandbox.meta.deleting:
        assert made.status.pod_uid
        assert {one.name for one in shown} <= {"db", "web"}
        assert "Ready" in true(made) or {one.state for one in shown} == {ServiceState.UNKNOWN}


@invariant
def the_egress_targets_are_bounded(seen):
    made = planned(seen)
    assert len(made.actions) <= 8
    assert made.requeue_after is None or made.requeue_after >= 0
    for one in made.status.conditions:
        assert one.message
        assert len(one.message) <= 1024
    assert not seen.sandbox.meta.deleting or not made.actions


@pytest.mark.slow
@settings(max_examples=examples(300))
@given(SEEN)
def test_every_plan_keeps_the_invariants(seen):
    # To draw an observation costs more than all of them.
    for holds in INVARIANTS:
        holds(seen)


def test_the_recorded_status_belongs_to_this_sandbox():
    """Otherwise the strategies above would never draw the recorded values."""
    assert {one.pod_uid for one in STATUSES} == {"", "uid-0", "uid-1"}
    assert META.uid == pod().owner

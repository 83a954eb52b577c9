"""Builders of observations. Values that a test does not set are those of a healthy sandbox."""

from dataclasses import replace
from typing import TypeVar

from sandfleet_operator.api.conditions import ConditionType, Reason
from sandfleet_operator.api.kinds.sandbox import (
    BindingStatus,
    CodeSandbox,
    OperatingMode,
    Restart,
    SandboxSpec,
    SandboxStatus,
)
from sandfleet_operator.api.settings import Settings
from sandfleet_operator.plan.claims.record import Record, record_text
from sandfleet_operator.plan.pods import names, networkpolicy
from sandfleet_operator.plan.pods.merge import Refusal, effective
from sandfleet_operator.plan.pods.podspec import PodRequest, sandbox_pod
from sandfleet_operator.plan.sandbox.actions import EnsurePolicy, Plan
from sandfleet_operator.plan.sandbox.observed import Contact, Ended, Node, Observed, Pod, Volume
from sandfleet_operator.plan.sandbox.plan import plan
from support.operator.builders import SETTINGS, a_meta, a_sandbox_template, opens

A = TypeVar("A")
NOW = 1_700_000_000.0
AGE = 1000.0
WARM = ("warm-1", "uid-of-warm-1")
CLAIM, WARM_CLAIM = "workspace-demo", "workspace-warm-1"
TEMPLATE = a_sandbox_template(egress=opens(("203.0.113.0/24", 443)))
META = a_meta(created=NOW - AGE, generation=1)
SUSPENDED = OperatingMode.SUSPENDED


def record(uid: str = "") -> str:
    """The record of a claim on this object. With a UID, a user created the object before the claim."""
    return record_text(Record(object="demo", request="r", holder="h", fencing=1, at=NOW - AGE, lease=300.0, uid=uid))


def sandbox(
    status: SandboxStatus | None = None,
    *,
    bound: tuple[str, str] | None = None,
    claim: str = "",
    settled: bool = False,
    **spec,
) -> CodeSandbox:
    """`bound` is the warm pod that the fleet has bound, `claim` the record of the claim.

    `settled`: the fleet has written the binding into the status.
    """
    annotations = {names.BOUND_POD: "/".join(bound), names.CLAIM: claim or record()} if bound else {}
    meta = replace(META, annotations=annotations)
    status = status or SandboxStatus()
    if bound and settled:
        binding = BindingStatus(pod=bound[0], pod_uid=bound[1], claim=claim or record())
        status = replace(status, binding=binding)
    return CodeSandbox(meta=meta, spec=SandboxSpec(template="python", **spec), status=status)


def labels_of(made: CodeSandbox) -> dict[str, str]:
    """The labels that the sandbox's pod should have."""
    wanted = effective(TEMPLATE.spec, made.spec, SETTINGS)
    assert not isinstance(wanted, Refusal)
    request = PodRequest(namespace=made.meta.namespace, name=made.meta.name, wanted=wanted, pool=made.spec.pool)
    return dict(sandbox_pod(request, SETTINGS)["metadata"]["labels"])


def pod(**changes) -> Pod:
    """A running pod whose port is open."""
    made = Pod(
        name="demo",
        uid="uid-1",
        labels=labels_of(sandbox()),
        owner=META.uid,
        node="node-1",
        address="10.0.0.1",
        ready=True,
        image_digest="sha256:1",
        workspace_claim=CLAIM,
    )
    return replace(made, **changes)


def warm_pod(**changes) -> Pod:
    """A warm pod right after a claim: it has the sandbox's labels and no owner yet."""
    labels = labels_of(sandbox(pool="warm"))
    made = pod(name=WARM[0], uid=WARM[1], version="7", owner="", labels=labels, workspace_claim=WARM_CLAIM)
    return replace(made, **{"annotations": {names.CLAIM: record()}, **changes})


def warm_volume(**changes) -> Volume:
    """The volume claim of a warm pod, as the fleet creates it."""
    labels = names.own_labels(**{names.SANDBOX: WARM[0]})
    owners = ({"apiVersion": "v1", "kind": "Pod", "name": WARM[0], "uid": WARM[1]},)
    return replace(volume(name=WARM_CLAIM, owner="", pod_owner=WARM[1], labels=labels, owners=owners), **changes)


def exited(code: int | None, reason: str = "Error", message: str = "", **changes) -> Pod:
    return pod(ended=Ended(code, reason, message), ready=False, **changes)


def volume(**changes) -> Volume:
    labels = names.own_labels(**{names.SANDBOX: "demo"})
    made = Volume(name=CLAIM, uid="uid-of-claim", phase="Bound", owner=META.uid, labels=labels, retention="Delete")
    return replace(made, **changes)


def policies() -> dict:
    made = (
        networkpolicy.default_deny("team-a", SETTINGS),
        networkpolicy.template_egress(TEMPLATE, SETTINGS),
    )
    return {one["metadata"]["name"]: one["spec"] for one in made if one}


def greeted(uid: str = "uid-1", at: float = NOW - 100, not_preloaded: str = "") -> Contact:
    return Contact(pod_uid=uid, at=at, runtime="gvisor", not_preloaded=not_preloaded)


def failed(reason: Reason, at: float = NOW, uid: str = "uid-1") -> Contact:
    return Contact(pod_uid=uid, at=at, reason=reason, message="cannot greet it: why")


def node(**changes) -> Node:
    return replace(Node(name="node-1"), **changes)


def observed(**changes) -> Observed:
    """A Ready sandbox, observed by the operator that has greeted it."""
    start = Observed(
        sandbox=sandbox(),
        template=TEMPLATE,
        pod=pod(),
        volume=volume(),
        policies=policies(),
        keys=True,
        node=node(),
        contact=greeted(),
    )
    made = replace(start, **{"sandbox": on_record(start, at=NOW - 100), **changes})
    claim = made.sandbox.meta.annotations.get(names.CLAIM, "")
    if made.pod and claim and made.pod.annotations.get(names.CLAIM) == record():
        # The pod has the record of the same claim.
        made = replace(made, pod=replace(made.pod, annotations={**made.pod.annotations, names.CLAIM: claim}))
    return made


def on_record(seen: Observed, at: float = NOW) -> CodeSandbox:
    """The sandbox with the status of this round."""
    return replace(seen.sandbox, status=plan(seen, at, SETTINGS).status)


def booked(*reasons: str, ago: float = 0.0, crashes: int | None = None, **status) -> SandboxStatus:
    """A status with ends for these reasons, the last one `ago` seconds ago."""
    history = tuple(Restart(reason=reason, time=NOW - ago, message="why") for reason in reasons)
    return SandboxStatus(
        restarts=len(reasons),
        restart_history=history,
        crashes=len(reasons) if crashes is None else crashes,
        workspace_claim=CLAIM,
        **status,
    )


def with_status(seen: Observed, **changes) -> Observed:
    return replace(seen, sandbox=replace(seen.sandbox, status=replace(seen.sandbox.status, **changes)))


def with_spec(seen: Observed, **changes) -> Observed:
    return replace(seen, sandbox=replace(seen.sandbox, spec=replace(seen.sandbox.spec, **changes)))


def without_pod(**changes) -> Observed:
    """A new sandbox: everything exists except the pod."""
    return observed(**{"sandbox": sandbox(), "pod": None, "node": None, "contact": None, **changes})


def new_pod(**changes) -> Observed:
    """The pod has been created, and the status does not name it yet."""
    given = {"sandbox": sandbox(SandboxStatus(workspace_claim=CLAIM)), "contact": None}
    return observed(**given, pod=pod(**{"ready": False, **changes}))


# What a plan says.


def planned(seen: Observed, now: float = NOW, settings: Settings = SETTINGS) -> Plan:
    """The plan of one round."""
    return plan(seen, now, settings)


def only(made: Plan, kind: type[A]) -> A:
    """The one action of this kind."""
    (found,) = [one for one in made.actions if isinstance(one, kind)]
    return found


def condition(made: Plan, kind: ConditionType):
    return next(one for one in made.status.conditions if one.type == kind.value)


def ready(made: Plan) -> str:
    """`Ready`, or the reason why it is not."""
    one = condition(made, ConditionType.READY)
    return "Ready" if one.status == "True" else one.reason


def actions(made: Plan) -> list[str]:
    """The kinds of the actions; policies with their name."""
    return [
        f"EnsurePolicy {one.manifest['metadata']['name']}" if isinstance(one, EnsurePolicy) else type(one).__name__
        for one in made.actions
    ]


def true(made: Plan) -> set[str]:
    """The conditions that hold."""
    return {one.type for one in made.status.conditions if one.status == "True"}

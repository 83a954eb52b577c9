"""Declared services in the status, the executor that is polled, and the Events."""

import pytest
from sandfleet_operator.api.kinds.sandbox import ServiceState, ServiceStatus
from sandfleet_operator.plan.pods import names
from sandfleet_operator.plan.sandbox.actions import AskServices
from sandfleet_operator.plan.sandbox.observed import Heard, Observed
from sandfleet_operator.plan.sandbox.services.status import MAX_NOTE, declared_by, notes
from transition.builders import (
    NOW,
    SUSPENDED,
    exited,
    node,
    observed,
    on_record,
    planned,
    pod,
    with_spec,
    with_status,
)

DECLARED = {names.SERVICES: "db,web"}


def a_service(name="db", state=ServiceState.READY, **changes) -> ServiceStatus:
    return ServiceStatus(name=name, state=state, **changes)


WELL = (a_service("db", ports=(6379,)), a_service("web", restarts=1))
WITH = pod(annotations=DECLARED)


def heard(*services: ServiceStatus, problem: str = "", uid: str = "uid-1") -> Heard:
    return Heard(pod_uid=uid, services=services, problem=problem)


def serving(**changes) -> Observed:
    """A Ready sandbox with two services in its status."""
    start = observed(pod=WITH, heard=heard(*WELL))
    return observed(**{"pod": WITH, "heard": heard(*WELL), "sandbox": on_record(start, NOW - 50), **changes})


def states(seen: Observed) -> dict[str, str]:
    return {one.name: one.state.value for one in planned(seen).status.services}


def test_reported_services_are_shown_in_the_order_of_declaration():
    seen = observed(pod=WITH, heard=heard(*reversed(WELL)))
    assert planned(seen).status.services == WELL
    assert planned(seen).status.services_ready == "2/2"


@pytest.mark.parametrize(
    ("services", "ready"),
    [
        ((a_service(state=ServiceState.COMPLETED), a_service("web", ServiceState.RUNNING)), "1/2"),
        ((a_service(state=ServiceState.FAILED), a_service("web", ServiceState.BACK_OFF)), "0/2"),
        ((), ""),
    ],
)
def test_the_status_counts_ready_services(services, ready):
    assert planned(observed(pod=WITH, heard=heard(*services))).status.services_ready == ready


def test_services_that_the_pod_does_not_declare_are_not_shown():
    seen = observed(pod=WITH, heard=heard(*WELL, a_service("stranger")))
    assert [one.name for one in planned(seen).status.services] == ["db", "web"]


def test_the_executor_of_a_ready_sandbox_is_asked_also_when_its_template_is_gone():
    whom = AskServices("team-a", "demo", "uid-1", "10.0.0.1:50051", node="node-1")
    assert planned(serving()).ask == whom
    refused = planned(serving(template=None))
    assert (refused.ask, refused.status.services) == (whom, WELL)


NOT_ASKED = {
    "a sandbox without declared services": observed(),
    "one that has no pod": serving(pod=None, pod_gone=True),
    "one whose pod goes": serving(pod=pod(annotations=DECLARED, deleting=True)),
    "one whose pod has ended": serving(pod=exited(1, annotations=DECLARED)),
    "one whose port is silent": serving(pod=pod(annotations=DECLARED, ready=False)),
    "one that is to be suspended": with_spec(serving(), operating_mode=SUSPENDED),
    "a pod that was not greeted yet": observed(pod=WITH, contact=None, sandbox=observed().sandbox.__class__(
        meta=observed().sandbox.meta, spec=observed().sandbox.spec)),
    "a pod of another sandbox": serving(pod=pod(annotations=DECLARED, owner="other", uid="uid-2", name="demo")),
}  # fmt: skip


@pytest.mark.parametrize("who", NOT_ASKED)
def test_no_executor_is_asked_for(who):
    assert planned(NOT_ASKED[who]).ask is None


@pytest.mark.parametrize(
    ("seen", "shown"),
    [
        # The executor's report counts while it answers; an answer of an earlier pod does not.
        (serving(heard=None), {"db": "Ready", "web": "Ready"}),
        (serving(heard=heard(a_service(state=ServiceState.FAILED), uid="uid-0")), {"db": "Ready", "web": "Ready"}),
        (serving(heard=heard(problem="silent")), {"db": "Unknown", "web": "Unknown"}),
        (observed(pod=WITH, heard=heard(problem="silent")), {"db": "Unknown", "web": "Unknown"}),
        # Unknown while the sandbox is not Ready.
        (serving(pod=pod(annotations=DECLARED, ready=False)), {"db": "Unknown", "web": "Unknown"}),
        (serving(pod=pod(annotations=DECLARED, deleting=True)), {"db": "Unknown", "web": "Unknown"}),
        (serving(pod=pod(annotations=DECLARED, ready=False), node=node(ready=False)), {"db": "Unknown", "web": "Unknown"}),
        # A pod that is not observed may still exist.
        (serving(pod=None), {"db": "Unknown", "web": "Unknown"}),
        (with_spec(serving(), operating_mode=SUSPENDED), {"db": "Unknown", "web": "Unknown"}),
        # Without a pod there are no services.
        (serving(pod=None, pod_gone=True), {}),
        (serving(pod=exited(1, annotations=DECLARED)), {}),
        (serving(pod=exited(41, annotations=DECLARED)), {"db": "Unknown", "web": "Unknown"}),
        (with_spec(serving(pod=None, pod_gone=True), operating_mode=SUSPENDED), {}),
        # A service that was never reported, and one that the pod no longer declares.
        (observed(pod=WITH), {}),
        (with_status(observed(), services=WELL), {}),
    ],
)  # fmt: skip
def test_the_shown_services(seen, shown):
    assert states(seen) == shown
    assert planned(seen).status.services_ready == (
        "" if not shown else f"{sum(s == 'Ready' for s in shown.values())}/2"
    )


def test_unknown_services_say_why_and_keep_only_their_restarts():
    silent = planned(serving(heard=heard(problem="cannot list: " + "x" * 500))).status.services[1]
    assert (silent.reason, silent.restarts, silent.ports) == ("ExecutorUnreachable", 1, ())
    assert silent.message.startswith("cannot list: x")
    assert len(silent.message) == 256
    going = planned(serving(pod=pod(annotations=DECLARED, deleting=True))).status.services[0]
    assert (going.reason, going.message, going.ports) == ("PodDeleted", "", ())


@pytest.mark.parametrize(
    ("annotation", "found"),
    [
        ("db,web", ("db", "web")),
        ("", ()),
        ("db,db", ("db",)),
        ("a b,../x,,.dot,ok", ("ok",)),
        (",".join(f"s{number}" for number in range(99)), tuple(f"s{number}" for number in range(16))),
    ],
)
def test_service_names_of_the_annotation_are_bounded_and_fit_the_schema(annotation, found):
    assert declared_by(pod(annotations={names.SERVICES: annotation})) == found


LOOP = a_service(state=ServiceState.BACK_OFF, restarts=3, reason="ExitCode", message="it exited with 1")
GIVEN_UP = a_service(state=ServiceState.FAILED, reason="CrashLoop", message="ten times")
STARTING = a_service(state=ServiceState.STARTING)


@pytest.mark.parametrize(
    ("course", "told"),
    [
        # Starting, waiting, running and not ready: no trouble yet.
        ((STARTING, a_service(state=ServiceState.RUNNING, reason="NotReady"), a_service()), []),
        ((a_service(), a_service(state=ServiceState.BACK_OFF, restarts=1), a_service()), []),
        # A crash loop and its end are each reported once.
        ((LOOP, STARTING, LOOP, STARTING, LOOP), ["ServiceCrashLoop"]),
        ((LOOP, STARTING, a_service(), LOOP), ["ServiceCrashLoop", "ServiceReady", "ServiceCrashLoop"]),
        ((LOOP, STARTING, GIVEN_UP), ["ServiceCrashLoop", "ServiceFailed"]),
        ((GIVEN_UP, GIVEN_UP), ["ServiceFailed"]),
        ((GIVEN_UP, STARTING, a_service(), a_service()), ["ServiceFailed", "ServiceReady"]),
        ((GIVEN_UP, a_service(state=ServiceState.COMPLETED)), ["ServiceFailed", "ServiceReady"]),
        # A stopped service is no longer reported.
        ((GIVEN_UP, a_service(state=ServiceState.STOPPED), a_service()), ["ServiceFailed"]),
        # Unknown for a while, or in another pod: what was reported is remembered.
        ((GIVEN_UP, a_service(state=ServiceState.UNKNOWN), GIVEN_UP), ["ServiceFailed"]),
        ((GIVEN_UP, None, STARTING, a_service()), ["ServiceFailed", "ServiceReady"]),
    ],
)
def test_trouble_and_its_end_are_reported_once(course, told):
    found, known, old = [], frozenset(), ()
    for one in course:
        new = (one,) if one else ()
        said, known = notes(known, old, new)
        found += [note.reason for note in said]
        old = new
    assert found == told


def test_a_later_operator_does_not_repeat_what_the_status_says():
    assert notes(frozenset(), (GIVEN_UP,), (GIVEN_UP,))[0] == ()
    assert [note.reason for note in notes(frozenset(), (GIVEN_UP,), (a_service(),))[0]] == ["ServiceReady"]


def test_several_troubles_at_once_are_one_bounded_event():
    many = tuple(
        a_service(f"s{number}", ServiceState.FAILED, reason="ExitCode", message="x" * 256) for number in range(16)
    )
    (note,), known = notes(frozenset(), (), (*many, LOOP)[:16])
    assert note.reason == "ServiceFailed"
    assert note.message.startswith("service s0 has failed and is not restarted (ExitCode: xxx")
    assert len(note.message) == MAX_NOTE
    assert len(known) == 16
    both, _ = notes(frozenset(), (), (GIVEN_UP, a_service("web", ServiceState.BACK_OFF, restarts=2)))
    assert [one.message for one in both] == [
        "service db has failed and is not restarted (CrashLoop: ten times)",
        "service web ended again, after 2 restarts",
    ]

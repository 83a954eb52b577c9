"""Services that a template declares, in the status of a sandbox, on the real cluster."""

import time

import pytest
from cluster.harness.layout import ClusterError
from cluster.operators import Json, Sandboxes, template

WEB = {
    "name": "web",
    "command": ["python3", "-m", "http.server", "8000", "--bind", "127.0.0.1"],
    "readinessProbe": {"tcpSocket": {"port": 8000}},
}
# No process listens there: it is never ready, and ends at once, again and again.
BAD = {
    "name": "bad",
    "command": ["python3", "-c", "raise SystemExit(3)"],
    "readinessProbe": {"tcpSocket": {"port": 8001}},
    "restartPolicy": "Always",
}


@pytest.fixture(scope="module")
def serving(bed):
    """The template `serving` has both, the template `web` the one that works."""
    namespace = bed.namespaces[0]
    bed.cluster.api.create(template(namespace, "serving", services=[WEB, BAD]))
    bed.cluster.api.create(template(namespace, "web", services=[WEB]))


def services(sandboxes: Sandboxes, name: str) -> dict[str, Json]:
    return {one["name"]: one for one in sandboxes.get(name).get("status", {}).get("services", [])}


def until(sandboxes: Sandboxes, name: str, holds, what: str, seconds: float = 240) -> dict[str, Json]:
    deadline = time.monotonic() + seconds
    while not holds(found := services(sandboxes, name)):
        if time.monotonic() > deadline:
            raise ClusterError(f"cannot wait for {what}: {found}, {sandboxes.said(name)}")
        time.sleep(0.5)
    return found


def one_is_ready_and_one_loops(found: dict[str, Json]) -> bool:
    return (
        found.keys() == {"web", "bad"}
        and found["web"]["state"] == "Ready"
        and found["bad"]["restarts"] >= 2
        and found["bad"]["state"] != "Ready"
    )


def reasons(sandboxes: Sandboxes, name: str) -> list[str]:
    events = sandboxes.cluster.api.list("Event", sandboxes.namespace)
    return [one["reason"] for one in events if one["involvedObject"]["name"] == name]


def test_the_status_shows_declared_services_and_they_come_back_with_the_next_pod(sandboxes, bed, serving):
    sandboxes.create("served", templateRef={"name": "serving"})
    first = sandboxes.ready("served")
    found = until(sandboxes, "served", one_is_ready_and_one_loops, "one that is ready and one that loops")
    # Where the kernel does not tell whose a port is, none is shown.
    assert found["web"].get("ports", [8000]) == [8000]
    assert found["web"]["restarts"] == 0
    assert list(found) == ["web", "bad"]
    status = sandboxes.get("served")["status"]
    # What becomes of services is no end of the sandbox.
    assert (status["servicesReady"], status["restarts"], sandboxes.said("served")[0]) == ("1/2", 0, "True")
    bed.cluster.api.wait("an Event", lambda: "ServiceCrashLoop" in reasons(sandboxes, "served"), 120)
    wide = bed.cluster.kubectl("get", "csb", "served", "-n", sandboxes.namespace, "-o", "wide").splitlines()
    assert "SERVICES" in wide[0].split()
    assert "1/2" in wide[1].split()
    bed.cluster.api.delete("Pod", "served", sandboxes.namespace)
    again = sandboxes.ready("served", other_than=first["podUID"])
    assert [one["reason"] for one in again["restartHistory"]] == ["PodDeleted"]
    found = until(sandboxes, "served", lambda found: found.get("web", {}).get("state") == "Ready", "the next pod's")
    assert found["web"]["restarts"] == 0


def test_a_service_that_is_given_up_says_why_and_causes_no_further_writes(sandboxes, bed, serving):
    once = {**BAD, "restartPolicy": "Never"}
    bed.cluster.api.create(template(sandboxes.namespace, "once", services=[once]))
    sandboxes.create("given-up", templateRef={"name": "once"})
    sandboxes.ready("given-up")
    found = until(sandboxes, "given-up", lambda found: found.get("bad", {}).get("state") == "Failed", "its failure")
    assert "3" in found["bad"]["message"]
    bed.cluster.api.wait("an Event", lambda: "ServiceFailed" in reasons(sandboxes, "given-up"), 30)
    before = sandboxes.get("given-up")["metadata"]["resourceVersion"]
    # Longer than between two questions.
    time.sleep(40)
    assert sandboxes.get("given-up")["metadata"]["resourceVersion"] == before


def test_without_a_pod_the_status_lists_no_services(sandboxes, serving):
    sandboxes.create("paused", templateRef={"name": "web"})
    sandboxes.ready("paused")
    until(sandboxes, "paused", lambda found: found.get("web", {}).get("state") == "Ready", "one that is ready")
    sandboxes.patch("paused", {"operatingMode": "Suspended"})
    sandboxes.wait("paused", "Suspended")
    status = sandboxes.get("paused")["status"]
    assert "services" not in status
    assert "servicesReady" not in status
    sandboxes.patch("paused", {"operatingMode": "Running"})
    until(sandboxes, "paused", lambda found: found.get("web", {}).get("state") == "Ready", "one that is ready again")


def test_asking_for_services_does_not_count_as_use(sandboxes, serving):
    sandboxes.create("idle", templateRef={"name": "web"}, idleTimeoutSeconds=10)
    sandboxes.ready("idle")
    sandboxes.wait("idle", "IdleTimeoutOver", "Expired", 90)


def test_a_sandbox_without_declared_services_lists_none(sandboxes, serving):
    sandboxes.create("plain")
    sandboxes.ready("plain")
    time.sleep(5)
    assert "services" not in sandboxes.get("plain")["status"]

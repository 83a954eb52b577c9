"""SandboxQueues on a real cluster: kubectl, operator and fleet, and quotas that the watch of a bystander proves."""

import json
import secrets
import time
from collections import Counter

import pytest
from cluster.access_bed import fleet_bed
from cluster.harness.api import has_condition
from cluster.many import watched
from cluster.operators import RESTRICTED_LABELS, OperatorProcess, sandbox, template
from sandfleet_operator.api.kube import CODE_SANDBOX, POD


@pytest.fixture(scope="module")
def bed(images, kinds, tmp_path_factory):
    """Operator and fleet for one namespace."""
    api = images.api
    work = f"queue-work-{secrets.token_hex(4)}"
    api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": work, "labels": RESTRICTED_LABELS}})
    with fleet_bed(images, tmp_path_factory.mktemp("fleet"), (work,)) as made:
        operator = OperatorProcess(images, tmp_path_factory.mktemp("operator"), made.namespace, (work,)).start()
        api.create(template(work))
        yield made
        operator.end()
    api.delete("Namespace", work)


def queue(namespace, name="default", **quota):
    meta = {"namespace": namespace, "name": name}
    spec = {"nominalQuota": quota}
    return {"apiVersion": "sandfleet.io/v1alpha1", "kind": "SandboxQueue", "metadata": meta, "spec": spec}


class Levels:
    """How many sandboxes were admitted, and how many pods of theirs were there, at any instant, as a watch shows it."""

    def __init__(self):
        self.admitted, self.pods = set(), set()
        self.most = Counter()

    def saw_sandbox(self, event, obj, _at):
        state = ((obj.get("status") or {}).get("admission") or {}).get("state")
        self._put(self.admitted, obj, event != "DELETED" and state in {"Admitted", "Ending"}, "admitted")

    def saw_pod(self, event, obj, _at):
        self._put(self.pods, obj, event != "DELETED", "pods")

    def _put(self, level, obj, counts, what):
        (level.add if counts else level.discard)(obj["metadata"]["uid"])
        self.most[what] = max(self.most[what], len(level))


@pytest.fixture
def levels(bed):
    seen = Levels()
    work = bed.namespaces[0]
    with watched(bed.cluster, CODE_SANDBOX, work, seen.saw_sandbox), watched(bed.cluster, POD, work, seen.saw_pod):
        yield seen
    # What a test that fails leaves behind is no matter of the next one.
    bed.cluster.kubectl("delete", "csb,sbq", "--all", "-n", work)
    bed.cluster.api.wait("its pods to be gone", lambda: not bed.cluster.api.list("Pod", work), 60)


def rows(bed, *words):
    """What `kubectl get` shows, by the name of the object."""
    lines = [line.split() for line in bed.cluster.kubectl("get", *words, "-n", bed.namespaces[0]).splitlines()]
    return {line[0]: dict(zip(lines[0], line, strict=False)) for line in lines[1:]}


def condition(bed, name, kind):
    found = bed.cluster.api.get("CodeSandbox", name, bed.namespaces[0]).get("status") or {}
    return next((one for one in found.get("conditions", ()) if one["type"] == kind), {"reason": "", "message": ""})


def ready(bed, *names):
    def look():
        found = {one["metadata"]["name"]: one for one in bed.cluster.api.list("CodeSandbox", bed.namespaces[0])}
        return all(name in found and has_condition(found[name], "Ready") for name in names)

    bed.cluster.api.wait(f"{', '.join(names)} to be ready", look, 90)


@pytest.mark.timeout(280)
def test_three_sandboxes_under_a_quota_of_two(bed, levels):
    """By kubectl: the queue and the objects in one file; the third waits, is told why, and gets in."""
    work, api = bed.namespaces[0], bed.cluster.api
    names = ("one", "two", "three")
    objects = [queue(work, sandboxes=2), *(sandbox(work, name) for name in names)]
    bed.cluster.kubectl("apply", "-f", "-", given=json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))

    def waiting():
        return [name for name in names if condition(bed, name, "Admitted")["reason"] == "QuotaReached"]

    api.wait("one to wait", waiting, 60)
    (third,) = waiting()
    ready(bed, *(name for name in names if name != third))
    assert rows(bed, "csb")[third]["REASON"] == "QuotaReached"
    assert "2 of 2 sandboxes" in condition(bed, third, "Admitted")["message"]

    def full():
        row = rows(bed, "sbq")["default"]
        return (row["QUOTA"], row["ADMITTED"], row["PENDING"], row["USED"]) == ("2", "2", "1", "100%") and row

    api.wait("the queue's row", full, 30)
    assert rows(bed, "sbq")["default"]["REASON"] == "QuotaReached"
    # Suspended by its owner: the quota is free when the pod is gone.
    first, second = (name for name in names if name != third)
    bed.cluster.kubectl(
        "patch", f"csb/{first}", "--type=merge", "-p", '{"spec":{"operatingMode":"Suspended"}}', "-n", work
    )
    ready(bed, third)
    bed.cluster.kubectl(
        "patch", f"csb/{first}", "--type=merge", "-p", '{"spec":{"operatingMode":"Running"}}', "-n", work
    )
    api.wait("it to wait again", lambda: condition(bed, first, "Admitted")["reason"] == "QuotaReached", 60)
    bed.cluster.kubectl("delete", f"csb/{second}", "-n", work)
    ready(bed, first, third)
    assert levels.most == {"admitted": 2, "pods": 2}


@pytest.mark.timeout(280)
def test_the_quota_holds_while_the_fleet_is_killed(bed, levels):
    work, api = bed.namespaces[0], bed.cluster.api
    api.create(queue(work, sandboxes=1))
    names = [f"box-{number}" for number in range(3)]
    for name in names:
        api.create(sandbox(work, name))
    left = set(names)
    for _ in names:
        admitted = []
        deadline = time.monotonic() + 90
        while not admitted:
            assert time.monotonic() < deadline
            admitted = [name for name in left if condition(bed, name, "Admitted")["reason"] == "Admitted"]
            time.sleep(0.1)
        bed.fleet.kill()
        api.delete("CodeSandbox", admitted[0], work)
        left.discard(admitted[0])
        bed.fleet.start()
    assert levels.most == {"admitted": 1, "pods": 1}

"""The file of queues of a fleet on one machine: it takes what the API server takes, and refuses what that refuses."""

from pathlib import Path

import pytest
import yaml
from sandfleet_operator.api.kinds.queue import Quota
from sandfleet_operator.fleet.local.queues import BOUNDS, MAX_BYTES, MAX_CLASSES, QueueFileError, read_queues
from support.operator.crd_schemas import SCHEMAS

SCHEMA = SCHEMAS["SandboxQueue"]["properties"]["spec"]["properties"]


def queue(name="one", **spec):
    head = {"apiVersion": "sandfleet.io/v1alpha1", "kind": "SandboxQueue", "metadata": {"name": name}}
    return head | {"spec": {"nominalQuota": {"sandboxes": 3}} | spec}


def written(tmp_path: Path, *objects: object) -> Path:
    path = tmp_path / "q.yaml"
    path.write_text(yaml.safe_dump_all(objects))
    return path


def test_a_file_has_any_number_of_queues(tmp_path):
    full = queue("two", nominalQuota={"cpu": "1500m", "memory": "2Gi"}, cohort="all", lendingLimit={"cpu": 1})
    found = read_queues(written(tmp_path, queue(), None, full))
    assert found["one"].nominal == Quota(sandboxes=3)
    assert found["two"].nominal == Quota(cpu=1500, memory=2 << 30)
    assert found["two"].lending == Quota(cpu=1000)


@pytest.mark.parametrize(
    ("objects", "why"),
    [
        ([], "there is none in it"),
        ([queue(), queue()], "two queues are called one"),
        (["text"], "document 1: a text stands where an object should be"),
        (
            [queue(), queue() | {"kind": "SandboxPool"}],
            "document 2: it is SandboxPool (sandfleet.io/v1alpha1), not SandboxQueue",
        ),
        (
            [queue() | {"apiVersion": "v1"}],
            "document 1: it is SandboxQueue (v1), not SandboxQueue (sandfleet.io/v1alpha1)",
        ),
        ([{"a": 1}], "it is an object without a kind"),
        ([queue() | {"metadata": {}}], "metadata.name: it is missing"),
        ([queue("One_")], "document 1, metadata.name: write at most 63"),
        ([queue(wieght=2)], "queue one, spec.wieght: there is no such field, only weight, cohort,"),
        ([queue(nominalQuota={"pods": 2})], "spec.nominalQuota.pods: there is no such field"),
        ([queue(priorityClasses=[{"name": "a", "weight": 1}])], "spec.priorityClasses[0].weight: there is no such"),
        ([queue(priorityClasses=[{"name": "A"}])], "name 'A': write at most 63"),
        ([queue(priorityClasses=[{"name": f"c{n}"} for n in range(17)])], "there are more than 16"),
        ([queue(cohort="A")], "name 'A': write at most 63"),
        ([queue(weight=0)], "spec.weight: 0 is not between 1 and 1000"),
        ([queue(weight="2")], "spec.weight: a text stands where a whole number should be"),
        ([queue(nominalQuota={"sandboxes": -1})], "spec.nominalQuota.sandboxes: -1 is not between 0 and 100000"),
        ([queue(nominalQuota=None)], "spec.nominalQuota: it is missing"),
        ([queue(nominalQuota={"cpu": "much"})], "spec.nominalQuota.cpu"),
        ([queue(borrowingLimit={"sandboxes": 1})], "a queue without a cohort"),
        ([queue(cohort="a", lendingLimit={"sandboxes": 4})], "spec.lendingLimit.sandboxes: it is above nominalQuota"),
        ([queue(stopPolicy="Stop")], "spec.stopPolicy"),
    ],
)
def test_what_the_api_server_would_refuse_is_refused_with_its_place(tmp_path, objects, why):
    with pytest.raises(QueueFileError, match=r"^cannot use the queues of .*/q.yaml: ") as caught:
        read_queues(written(tmp_path, *objects))
    assert why in str(caught.value)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"a: [", "while parsing"),
        (b"\xff", "codec can't decode"),
        (None, "No such file or directory"),
        (b"#" * (MAX_BYTES + 1), "it is longer than"),
    ],
)
def test_a_file_that_cannot_be_read_says_why_in_a_line(tmp_path, content, why):
    path = tmp_path / "q.yaml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(QueueFileError, match=r"^cannot (read|use) the queues of .*/q.yaml: ") as caught:
        read_queues(path)
    assert why in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_bounds_are_those_of_the_kind():
    for path, bounds in BOUNDS.items():
        outer, _, inner = path.partition(".")
        schema = SCHEMA[outer]["properties"][inner] if inner else SCHEMA[outer]
        assert (schema["minimum"], schema["maximum"]) == bounds
    assert SCHEMA["priorityClasses"]["maxItems"] == MAX_CLASSES
    numbers = {name for name, schema in SCHEMA.items() if schema.get("type") == "integer"}
    assert numbers <= set(BOUNDS)

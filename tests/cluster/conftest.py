"""What several files of this folder share: operators, the order of the files, and which tests run alone."""

import time
from contextlib import nullcontext

import pytest
from cluster.fixtures import exclusively
from cluster.operators import RESTRICTED_LABELS, OperatorProcess, Sandboxes, install_kinds, template

# A file goes to one worker: the longest ones begin first, so that none is left over at the end.
LONGEST = (
    "test_operator_services",
    "test_chart",
    "test_fleet",
    "test_operator_faults",
    "test_operator_recovery",
    "test_operator",
    "test_fleet_egress",
    "test_operator_network",
    "test_policies",
)


def pytest_collection_modifyitems(items):
    places = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path.stem, len(LONGEST)))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    """Tests alone on the cluster run one at a time, fixtures included; tests that start clusters run beside them."""
    mark = item.get_closest_marker("alone")
    with exclusively("alone-on-the-cluster") if mark and mark.kwargs["on"] == "cluster" else nullcontext():
        return (yield)


@pytest.fixture(scope="session")
def kinds(cluster):
    """Our kinds in the cluster. They stay: other tests need them, and they are the product's own."""
    install_kinds(cluster.api)


@pytest.fixture(scope="module")
def bed(images, kinds, tmp_path_factory):
    """An operator for one namespace that enforces PodSecurity `restricted`."""
    api = images.api
    names = [f"operator-{kind}-{time.time_ns() % 10**9}" for kind in ("home", "work")]
    for name, labels in zip(names, ({}, RESTRICTED_LABELS), strict=True):
        metadata = {"name": name, "labels": labels}
        api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    quick = {"recovery": {"backoffBase": 0.5, "backoffMax": 2.0, "maxCrashes": 2}}
    folder = tmp_path_factory.mktemp("operator")
    operator = OperatorProcess(images, folder, names[0], (names[1],), settings=quick).start()
    api.create(template(names[1]))
    yield operator
    operator.end()
    for name in names:
        api.delete("Namespace", name)


@pytest.fixture
def sandboxes(bed):
    made = Sandboxes(bed.cluster, bed.namespaces[0])
    yield made
    for one in bed.cluster.api.list("CodeSandbox", made.namespace):
        made.delete(one["metadata"]["name"])
    bed.cluster.api.wait("the pods to be gone", lambda: made.count("Pod") == 0, 60)

"""What the platform team decides, and what it hears when that cannot be."""

import pytest
from sandfleet_operator.api.errors import FleetError
from sandfleet_operator.api.kinds.template import Contract
from sandfleet_operator.api.settings import Settings, image_allowed

GIVEN = {
    "controlPlaneNamespace": "sandfleet-system",
    "watchNamespaces": ["team-a"],
    "allowedImages": ["registry.example:5000/executor:*"],
    "blockedCidrs": ["10.96.0.0/12"],
    "executorPort": 50052,
    "recovery": {"backoffBase": 2, "maxCrashes": 3},
    "dns": {"namespace": "dns", "labels": {"app": "resolver"}, "ports": [53, 5353]},
    "inline": {"resources": {"limits": {"cpu": 4}}, "contracts": ["Reviewed"], "runtimeClassName": "gvisor-strict"},
}


def test_settings_are_read_by_their_helm_names() -> None:
    result = Settings.parse(GIVEN)
    assert (result.watch_namespaces, result.executor_port) == (("team-a",), 50052)
    assert (result.inline.resources.cpu, result.inline.runtime_class) == (4.0, "gvisor-strict")
    assert result.inline.contracts == (Contract.REVIEWED,)
    assert (result.recovery.backoff_base, result.recovery.max_crashes, result.recovery.backoff_max) == (2.0, 3, 300.0)
    assert (result.dns.labels, result.dns.ports) == ({"app": "resolver"}, (53, 5353))


WRONG = [
    ({"controlPlaneNamespace": "Not A Name"}, "'Not A Name' is no name of a namespace"),
    ({"image": "x"}, "unknown image"),
    ({"recovery": {"base": 1}}, "unknown recovery.base"),
    ({"recovery": 5}, "recovery is no object"),
    ({"recovery": {"backoffBase": 0}}, "recovery.backoffBase is not above 0"),
    ({"recovery": {"backoffBase": 500}}, "recovery.backoffBase is above recovery.backoffMax"),
    ({"executorPort": "50051"}, "executorPort is '50051'"),
    ({"executorPort": True}, "executorPort is True"),
    ({"executorPort": 0}, "0 is no port"),
    ({"watchNamespaces": "team-a"}, "watchNamespaces is 'team-a'"),
    ({"dns": {"labels": ["a"]}}, "dns.labels is ['a']"),
    ({"dns": {"ports": 53}}, "dns.ports is 53"),
    ({"allowedImages": ["*"]}, "'*' is neither an image nor"),
    ({"allowedImages": ["registry.example/*:1"]}, "'registry.example/*:1' is neither an image nor"),
    ({"copiedLabels": ["sandfleet.io/client"]}, "copied label 'sandfleet.io/client' opens executors"),
    ({"inline": 5}, "inline is no object"),
    ({"snapshotter": "yes"}, "snapshotter is 'yes'"),
    ({"memoryReserve": -1}, "the memory reserve is below 0"),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "why"), WRONG)
def test_settings_that_cannot_be_say_why(changes, why) -> None:
    with pytest.raises(FleetError) as error:
        Settings.parse({"controlPlaneNamespace": "sandfleet-system"} | changes)
    assert str(error.value).startswith(f"cannot take the settings: {why}")


def test_a_control_plane_needs_a_namespace_and_networks_have_to_be_networks() -> None:
    with pytest.raises(FleetError, match="controlPlaneNamespace is missing"):
        Settings.parse({})
    with pytest.raises(FleetError, match=r"cannot read '10\.0\.0\.0/99' as a network"):
        Settings(control_plane_namespace="x", blocked_cidrs=("10.0.0.0/99",))


DIGEST = "sha256:" + "a" * 64
IMAGES = [
    ("r.example/a:1", "r.example/a:1", True),
    ("r.example/a:2", "r.example/a:1", False),
    ("r.example/a:2", "r.example/a:*", True),
    (f"r.example/a:2@{DIGEST}", "r.example/a:*", True),
    (f"r.example/a@{DIGEST}", "r.example/a:*", False),
    (f"r.example/a@{DIGEST}", "r.example/a@sha256:*", True),
    (f"r.example/a:2@{DIGEST}", "r.example/a@sha256:*", True),
    ("r.example/a:2", "r.example/a@sha256:*", False),
    ("r.example/a@sha256:abc", "r.example/a@sha256:*", False),
    ("r.example/a", "r.example/a:*", False),
    ("r.example/a", "r.example/a", True),
    ("r.example/a/b:1", "r.example/a:*", False),
    ("r.example/ab:1", "r.example/a:*", False),
    ("r.example:5000/evil:1", "r.example:*", False),
    ("r.example/a:*", "r.example/a:*", False),
    ("r.example/a:1 ", "r.example/a:*", False),
    ("", "", False),
]  # fmt: skip


@pytest.mark.parametrize(("image", "pattern", "allowed"), IMAGES)
def test_which_images_a_pattern_allows(image, pattern, allowed) -> None:
    assert image_allowed(image, (pattern,)) is allowed
    assert not image_allowed(image, ())

"""Pods whose container has another image, and the executor beside it."""

from dataclasses import replace

import pytest
from sandfleet_executor.core.config import ExecutorConfig
from sandfleet_executor.core.session import foreign
from sandfleet_operator.api.conditions import Reason
from sandfleet_operator.api.errors import FleetError
from sandfleet_operator.api.kinds.template import ExecutorPlace
from sandfleet_operator.api.settings import Executor, Settings
from sandfleet_operator.plan.pods import delivery
from sandfleet_operator.plan.pods.merge import Effective, Refusal, effective
from sandfleet_operator.plan.pods.podspec import PodRequest, sandbox_pod
from support.operator.builders import SETTINGS, a_spec, a_template
from support.pod_security import restricted_violations

OWN = "registry.example:5000/sandfleet/executor:1"
DEBIAN = "registry.example:5000/debian:12"
BESIDE = replace(SETTINGS, allowed_images=(OWN, DEBIAN), executor=Executor(image=OWN))


def wanted(settings: Settings = BESIDE, image: str = DEBIAN, **changes) -> Effective | Refusal:
    return effective(a_template(image=image, **changes), a_spec(), settings)


def pod(settings: Settings = BESIDE, **changes) -> dict:
    found = wanted(settings, **changes)
    assert isinstance(found, Effective)
    return sandbox_pod(PodRequest(namespace="team-a", name="demo", wanted=found), settings)["spec"]


def test_an_image_of_the_executor_s_repository_has_it_and_others_do_not() -> None:
    assert "command" not in pod(image=OWN)["containers"][0]
    assert pod()["containers"][0]["command"][0] == "/opt/sandfleet/bin/busybox"
    assert "command" not in pod(executor=ExecutorPlace.IN_IMAGE)["containers"][0]
    assert "command" in pod(image=OWN, executor=ExecutorPlace.BESIDE)["containers"][0]
    # Without an executor to bring, every image has its own.
    assert "command" not in pod(replace(BESIDE, executor=Executor()))["containers"][0]


@pytest.mark.parametrize(
    ("own", "other", "same"),
    [
        ("sandfleet/executor:1", "docker.io/sandfleet/executor:2", True),
        ("sandfleet/executor:1", "sandfleet/executor@sha256:" + "0" * 64, True),
        ("sandfleet/executor:1", "registry.example/sandfleet/executor:1", False),
        ("localhost:5000/executor", "localhost:5000/executor:1", True),
        ("sandfleet/executor:1", "sandfleet/executor-of-mine:1", False),
    ],
)
def test_repositories_are_compared_as_docker_names_them(own: str, other: str, *, same: bool) -> None:
    assert Executor(image=own).is_in(other) is same


def test_by_an_image_volume_the_executor_is_a_folder_of_its_image_that_nothing_writes() -> None:
    spec = pod()
    assert {"name": "executor", "image": {"reference": OWN, "pullPolicy": "IfNotPresent"}} in spec["volumes"]
    first = spec["containers"][0]["volumeMounts"][0]
    assert first == {"name": "executor", "mountPath": foreign.RUNTIME, "readOnly": True, "subPath": "opt/sandfleet"}
    assert "initContainers" not in spec


def test_where_no_volume_can_be_an_image_a_container_without_rights_copies_it() -> None:
    spec = pod(replace(BESIDE, executor=Executor(image=OWN, delivery="InitContainer")), user="7")
    (copying,) = spec["initContainers"]
    assert (copying["image"], copying["volumeMounts"]) == (OWN, [{"name": "executor", "mountPath": "/bundle"}])
    first = spec["containers"][0]["volumeMounts"][0]
    assert first == {"name": "executor", "mountPath": foreign.RUNTIME, "readOnly": True}
    assert restricted_violations({"metadata": {}, "spec": spec}) == ()


def test_everything_of_the_executor_is_where_the_session_has_an_empty_folder() -> None:
    mounts = [one["mountPath"] for one in pod()["containers"][0]["volumeMounts"]]
    places = {path for path in mounts if path not in {foreign.RUNTIME, "/workspace"}}
    assert places == {f"{foreign.POD}/{name}" for name in foreign.PLACES_OF_A_POD}
    found = wanted()
    assert isinstance(found, Effective)
    config = pod()["containers"][0]["env"][1]["value"]
    parsed = ExecutorConfig.from_environment(
        {"SANDFLEET_EXECUTOR_CONFIG": config, "SANDFLEET_POD_UID": "u", "SANDFLEET_KEYS_AUTHORITY": "x"}, 7
    )
    assert parsed.rootfs is not None
    assert parsed.rootfs.user == 7
    paths = (parsed.workspace, str(parsed.state_dir), parsed.private_dir, parsed.keys_file)
    assert all(path.startswith(f"{foreign.POD}/") for path in paths)


def test_folders_that_the_template_mounts_are_there_for_a_user_without_rights() -> None:
    mounts = pod(user="7", mounts={"/app": "", "/logs": "out"})["containers"][0]["volumeMounts"]
    assert [one["mountPath"] for one in mounts if one["name"] == "scratch"][1:] == ["/workspace", "/app", "/logs"]


@pytest.mark.parametrize("user", ["", "root", "0"])
def test_a_root_of_the_session_has_the_capabilities_that_the_executor_passes_on(user: str) -> None:
    spec = pod(user=user)
    assert spec["containers"][0]["securityContext"]["capabilities"] == {
        "drop": ["ALL"],
        "add": [name.removeprefix("CAP_") for name in foreign.CAPABILITIES],
    }
    assert spec["securityContext"].get("runAsUser") == (0 if user else None)


def test_a_user_with_a_number_fits_the_level_restricted() -> None:
    spec = pod(user="1234")
    assert spec["securityContext"]["runAsUser"] == 1234
    assert restricted_violations({"metadata": {}, "spec": spec}) == ()
    assert restricted_violations({"metadata": {}, "spec": pod()}) != ()


@pytest.mark.parametrize("user", ["app", "-1", "65536", "007 ", "root:root", "99999"])
def test_another_user_is_the_template_s_mistake(user: str) -> None:
    refused = wanted(user=user)
    assert isinstance(refused, Refusal)
    assert (refused.reason, "has to be root, a number up to 65535" in refused.message) == (
        Reason.TEMPLATE_INVALID,
        True,
    )


def test_a_template_cannot_have_an_executor_beside_that_the_installation_does_not_name() -> None:
    refused = wanted(replace(BESIDE, executor=Executor()), executor=ExecutorPlace.BESIDE)
    assert isinstance(refused, Refusal)
    assert "names no executor to bring (Helm value settings.executor.image)" in refused.message


@pytest.mark.parametrize("wrong", [{"image": "a b"}, {"delivery": "Auto"}, {"delivery": ""}])
def test_settings_name_an_image_and_a_way(wrong: dict) -> None:
    with pytest.raises(FleetError):
        Settings.parse({"controlPlaneNamespace": "sandfleet", "executor": {"image": OWN, **wrong}})


def test_places_and_command_are_those_of_the_executor_s_image() -> None:
    assert delivery.BUNDLE == foreign.RUNTIME

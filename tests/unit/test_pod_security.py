"""The checker names the violations of each pod."""

from copy import deepcopy

import pytest
from sandfleet_operator.plan.pods.merge import effective
from sandfleet_operator.plan.pods.podspec import PodRequest, sandbox_pod
from support.operator.builders import SETTINGS, a_spec, a_template
from support.operator.pod_violations import ALL
from support.pod_security import RESTRICTED, STRICTER, restricted_violations, violations

GOOD = sandbox_pod(
    PodRequest(namespace="team-a", name="demo", wanted=effective(a_template(), a_spec(), SETTINGS)), SETTINGS
)


def test_a_valid_pod_has_no_violations() -> None:
    assert violations(GOOD) == ()


@pytest.mark.parametrize("worse", ALL, ids=[one.said for one in ALL])
def test_violations_are_named(worse) -> None:
    pod = worse.of(GOOD)
    assert worse.said in violations(pod)
    ephemeral = worse.said == "the pod has ephemeralContainers"
    assert bool(restricted_violations(pod)) is worse.restricted or ephemeral


def test_every_check_is_tried() -> None:
    silent = [check.__name__ for check in (*RESTRICTED, *STRICTER) if not any(list(check(one.of(GOOD))) for one in ALL)]
    assert silent == []


def test_an_empty_pod_has_violations() -> None:
    assert "the pod names no runtime class" in violations({})
    assert violations({"spec": None, "metadata": None}) == violations({})


ALLOWED = [
    ("NET_BIND_SERVICE", lambda pod, own: own["capabilities"].update(add=["NET_BIND_SERVICE"])),
    ("a profile of the container's own", lambda pod, own: (pod.pop("seccompProfile"), own.update(seccompProfile={"type": "Localhost", "localhostProfile": "x"}))),
    ("non-root said by the container alone", lambda pod, own: (pod.pop("runAsNonRoot"), own.update(runAsNonRoot=True))),
    ("a safe sysctl", lambda pod, own: pod.update(sysctls=[{"name": "net.ipv4.tcp_rmem", "value": "1 2 3"}])),
    ("an SELinux type of containers", lambda pod, own: pod.update(seLinuxOptions={"type": "container_engine_t"})),
    ("AppArmor's default", lambda pod, own: own.update(appArmorProfile={"type": "RuntimeDefault"})),
]  # fmt: skip


@pytest.mark.parametrize(("what", "change"), ALLOWED, ids=[row[0] for row in ALLOWED])
def test_restricted_allows(what, change) -> None:
    pod = deepcopy(GOOD)
    change(pod["spec"]["securityContext"], pod["spec"]["containers"][0]["securityContext"])
    assert pod != GOOD
    assert restricted_violations(pod) == ()

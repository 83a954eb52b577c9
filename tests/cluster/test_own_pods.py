"""The policy on the control plane's own pods on the real API server, beside the one in memory."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterator

import pytest
import yaml
from chart.helm_chart import CHART
from cluster.access_bed import a_grant
from cluster.harness.api import Api, ApiError, path_of
from cluster.harness.testing import Cluster
from sandfleet_operator.plan.pods import names
from support.kubernetes.own_pods import ATTACKS, pod

ALL = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]
OWN = names.own_labels()
TENANT = "tenant"


@pytest.fixture
def places(cluster: Cluster, helm: Callable[..., str], new_namespace: Callable[..., str]) -> Iterator[tuple[str, str]]:
    """The account of a release whose policy is in force, and a namespace in which it and a tenant may do everything."""
    release, home, place = f"box-{secrets.token_hex(3)}", new_namespace(), new_namespace()
    account = f"system:serviceaccount:{home}:{release}-sandfleet-fleet"
    for namespace in (place, "kube-system"):
        for user in (TENANT, account):
            grant = a_grant("", f"{release}-{user.rpartition(':')[2]}", ALL, ("", ""), namespace)
            grant[1]["subjects"] = [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}]
            for one in grant:
                cluster.kubectl("apply", "-f", "-", given=json.dumps(one))
    text = helm("template", release, str(CHART), "--namespace", home, "--show-only", "templates/admission/pods.yaml")
    objects = [one for one in yaml.safe_load_all(text) if one]
    cluster.kubectl("apply", "-f", "-", given=text)
    try:
        cluster.api.wait("the policy to be in force", lambda: not may(cluster, account, pod(place, {})), 30)
        yield account, place
    finally:
        for one in objects:
            cluster.kubectl("delete", one["kind"], one["metadata"]["name"], "--ignore-not-found")


def may(cluster: Cluster, user: str, wanted: dict) -> bool:
    """Whether the API server would take it."""
    config = json.loads(cluster.kubectl("config", "view", "--raw", "--minify", "--flatten", "-o", "json"))
    api = Api(config)
    api._headers["Impersonate-User"] = user
    try:
        api.call("POST", f"{path_of('Pod', wanted['metadata']['namespace'])}?dryRun=All", wanted)
    except ApiError as error:
        assert error.status == 403, error
        return False
    return True


def test_the_control_plane_makes_no_pod_that_is_more_than_a_sandbox(cluster: Cluster, places: tuple[str, str]):
    account, place = places
    assert may(cluster, account, pod(place, OWN))
    refused = {name for name, spec in ATTACKS.items() if not may(cluster, account, pod(place, OWN, **spec))}
    passes = {name for name, spec in ATTACKS.items() if may(cluster, TENANT, pod(place, OWN, **spec))}
    assert (refused, passes) == (set(ATTACKS), set(ATTACKS))
    assert not may(cluster, account, pod("kube-system", OWN))
    assert may(cluster, TENANT, pod("kube-system", OWN))

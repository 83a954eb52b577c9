"""Who gets which rights: all of them are in golden files, and what must never be among them is said here."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from chart.helm_chart import NAMESPACE, named, rendered, rights

GOLDEN = Path(__file__).parent / "golden"
NAMESPACED = 'settings.watchNamespaces=["team-a","team-b"]'
MODES = {"rbac": (), "rbac-namespaced": (NAMESPACED,)}
# What has no namespace, so that no Role can grant it.
CLUSTER_SCOPED = {"namespaces", "runtimeclasses", "storageclasses", "nodes", "tokenreviews", "subjectaccessreviews"} | {
    "validatingadmissionpolicies",
    "validatingadmissionpolicybindings",
}
CONTROL_PLANE = ("sandfleet-operator", "sandfleet-fleet")


@pytest.mark.parametrize("mode", MODES)
def test_all_rights_are_in_a_golden_file(mode: str) -> None:
    """SANDFLEET_GOLDEN=write writes it anew: read the difference before it is committed."""
    text = yaml.safe_dump_all(rights(rendered(*MODES[mode])), sort_keys=False)
    path = GOLDEN / f"{mode}.yaml"
    if os.environ.get("SANDFLEET_GOLDEN") == "write":
        path.write_text(text)
    assert text == path.read_text()


def rules(mode: str) -> list[tuple[str, dict]]:
    roles = [one for kind in ("Role", "ClusterRole") for one in named(rendered(*MODES[mode]), kind)]
    return [(one["metadata"]["name"], rule) for one in roles for rule in one["rules"]]


NEVER = [
    ("a wildcard", lambda rule: "*" in str(rule)),
    ("a look at Secrets but by their name", lambda rule: "secrets" in rule["resources"] and not (set(rule["verbs"]) <= {"get", "update", "patch"} and rule.get("resourceNames"))),
    ("commands in pods, their logs or their ports", lambda rule: any(one.startswith(("pods/", "nodes/", "services/")) for one in rule["resources"])),
    ("a way to more rights", lambda rule: {"escalate", "bind", "impersonate", "approve", "sign"} & set(rule["verbs"])),
    ("roles, accounts and their tokens", lambda rule: any(one.split("/")[0] in {"roles", "clusterroles", "rolebindings", "clusterrolebindings", "serviceaccounts"} for one in rule["resources"])),
    ("admission webhooks, API services and CRDs", lambda rule: any("webhook" in one or one in {"apiservices", "customresourcedefinitions"} for one in rule["resources"])),
    ("URLs that are no resources", lambda rule: "nonResourceURLs" in rule),
]  # fmt: skip
# The one exception: people bind it in the control plane's namespace, and no account of the release has it.
TO_THE_GATEWAY = ("sandfleet-remote", {"apiGroups": [""], "resources": ["pods/portforward"], "verbs": ["create"]})

# This verb gives a right to more rights on Kubernetes' own kinds alone; people bind the role, and no account has it.
TO_REVIEWS = (
    "sandfleet-reviewer",
    {"apiGroups": ["sandfleet.io"], "resources": ["codesandboxes/reviews"], "verbs": ["get", "list", "approve"]},
)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("what", "is_it"), NEVER, ids=[what for what, _ in NEVER])
def test_no_role_gives(mode: str, what: str, is_it) -> None:
    assert [
        (name, rule) for name, rule in rules(mode) if is_it(rule) and (name, rule) not in (TO_THE_GATEWAY, TO_REVIEWS)
    ] == []


def test_people_outside_the_cluster_reach_ports_of_the_control_plane_and_no_other_pods() -> None:
    for mode in MODES.values():
        (role,) = [one for one in named(rendered(*mode), "Role") if TO_THE_GATEWAY[1] in one["rules"]]
        assert (role["metadata"]["name"], role["metadata"]["namespace"]) == (TO_THE_GATEWAY[0], NAMESPACE)
        assert {verb for rule in role["rules"][:-1] for verb in rule["verbs"]} == {"get", "list", "watch"}
    assert named(rendered("userRoles.enabled=false"), "Role", TO_THE_GATEWAY[0]) == []


def test_the_gateway_may_ask_for_its_certificate_and_nothing_else() -> None:
    for mode in MODES:
        granted = [rule for name, rule in rules(mode) if name == "sandfleet-gateway"]
        assert granted == [{"apiGroups": ["sandfleet.io"], "resources": ["codesandboxes/gateway"], "verbs": ["create"]}]


def test_the_control_finds_each_forbidden_rule() -> None:
    bad = [
        {"verbs": ["*"], "resources": ["pods"]},
        {"verbs": ["get"], "resources": ["secrets"]},
        {"verbs": ["create"], "resources": ["pods/exec"]},
        {"verbs": ["bind"], "resources": ["x"]},
        {"verbs": ["create"], "resources": ["serviceaccounts/token"]},
        {"verbs": ["get"], "resources": ["mutatingwebhookconfigurations"]},
        {"verbs": ["get"], "resources": [], "nonResourceURLs": ["/metrics"]},
    ]
    assert [bool(is_it(rule)) for (_, is_it), rule in zip(NEVER, bad, strict=True)] == [True] * len(NEVER)


@pytest.mark.parametrize("name", CONTROL_PLANE)
def test_with_named_namespaces_only_cluster_scoped_rights_are_granted_everywhere(name: str) -> None:
    (role,) = named(rendered(NAMESPACED), "ClusterRole", name)
    assert {resource for rule in role["rules"] for resource in rule["resources"]} <= CLUSTER_SCOPED


@pytest.mark.parametrize("name", CONTROL_PLANE)
def test_the_namespaces_roles_together_equal_the_cluster_wide_rights(name: str) -> None:
    (everywhere,) = named(rendered(), "ClusterRole", name)
    (cluster,) = named(rendered(NAMESPACED), "ClusterRole", name)
    roles = named(rendered(NAMESPACED), "Role", name)
    assert [role["metadata"]["namespace"] for role in roles] == ["team-a", "team-b"]
    assert all(role["rules"] + cluster["rules"] == everywhere["rules"] for role in roles)


@pytest.mark.parametrize("watched", [["team-a", "team-b"], ["team-a", NAMESPACE]])
def test_the_operator_sees_its_own_pod_in_a_namespace_without_sandboxes(watched: list[str]) -> None:
    objects = rendered(f"settings.watchNamespaces={json.dumps(watched)}")
    roles = [one for one in named(objects, "Role") if one["metadata"]["namespace"] == NAMESPACE]
    mine = [rule for one in roles if one["metadata"]["name"].startswith("sandfleet-operator") for rule in one["rules"]]
    on_pods = {verb for rule in mine if "pods" in rule["resources"] for verb in rule["verbs"]}
    assert {"get", "list", "watch", "patch"} <= on_pods
    assert ("create" in on_pods) == (NAMESPACE in watched)


def is_for_users(role: dict[str, Any]) -> bool:
    """People get it from Kubernetes' own roles, or bind it themselves."""
    return "aggregate" in str(role) or role["metadata"]["name"].endswith(
        ("-connect", "-agent", "-queue-admin", "-reviewer", "-remote", "-snapshot-mover")
    )


def test_every_role_but_the_users_is_bound_to_one_account_of_the_release() -> None:
    for mode in MODES.values():
        objects = rendered(*mode)
        bindings = [one for kind in ("RoleBinding", "ClusterRoleBinding") for one in named(objects, kind)]
        bound = {(one["metadata"].get("namespace"), one["roleRef"]["name"]) for one in bindings}
        roles = [one for kind in ("Role", "ClusterRole") for one in named(objects, kind)]
        assert bound == {
            (one["metadata"].get("namespace"), one["metadata"]["name"]) for one in roles if not is_for_users(one)
        }
        accounts = {(one["metadata"]["namespace"], one["metadata"]["name"]) for one in named(objects, "ServiceAccount")}
        for binding in bindings:
            (subject,) = binding["subjects"]
            assert (subject["namespace"], subject["name"]) in accounts


def test_kubernetes_own_roles_learn_the_kinds_each_beyond_the_one_before() -> None:
    learned = {}
    for role in named(rendered(), "ClusterRole"):
        for target in [key.rpartition("-to-")[2] for key in role["metadata"]["labels"] if "/aggregate-to-" in key]:
            learned[target] = {
                (resource, "create" in rule["verbs"])
                for rule in role["rules"]
                for resource in rule["resources"]
                if rule["verbs"] != ["claim"]
            }
    assert learned == {
        "view": {(one, False) for one in ("codesandboxes", "sandboxpools", "sandboxqueues", "sandboxtemplates")},
        # To run code in a sandbox is a right of its own, which no right to look gives.
        "edit": {("codesandboxes", True), ("codesandboxes/connect", True), ("sandboxsnapshots", True)},
        "admin": {(one, True) for one in ("sandboxpools", "sandboxtemplates")},
    }
    assert [one for one in named(rendered("userRoles.enabled=false"), "ClusterRole") if "aggregate" in str(one)] == []


def test_an_agent_may_do_what_a_claim_asks_for_and_change_nothing() -> None:
    (role,) = named(rendered(), "ClusterRole", "sandfleet-agent")
    granted = {(resource, verb) for rule in role["rules"] for resource in rule["resources"] for verb in rule["verbs"]}
    lives = {("codesandboxes", verb) for verb in ("get", "list", "watch", "create", "delete")}
    saves = {("sandboxsnapshots", verb) for verb in ("create", "get", "list", "delete")}
    assert granted == lives | saves | {("codesandboxes/connect", "create"), ("sandboxqueues", "claim")}


# What each of Kubernetes' own roles contains: each the ones before.
CONTAINS = {"view": {"view"}, "edit": {"view", "edit"}, "admin": {"view", "edit", "admin"}}
WRITES = {"create", "update", "patch", "delete", "deletecollection"}


def on_queues(role: str) -> set[str]:
    """The verbs that a holder of Kubernetes' own role, or of the chart's, has on SandboxQueues."""
    found = set()
    for one in named(rendered(), "ClusterRole"):
        labels = one["metadata"]["labels"]
        into = {key.rpartition("-to-")[2] for key in labels if "/aggregate-to-" in key}
        if into & CONTAINS.get(role, set()) or one["metadata"]["name"] == role:
            found |= {
                verb
                for rule in one["rules"]
                if any(resource.startswith("sandboxqueues") for resource in rule["resources"])
                for verb in rule["verbs"]
            }
    return found


def test_teams_use_queues_and_do_not_grant_quota_to_themselves() -> None:
    look = {"get", "list", "watch"}
    assert {role: on_queues(role) for role in CONTAINS} == {
        "view": look,
        "edit": look | {"claim"},
        "admin": look | {"claim"},
    }
    assert on_queues("sandfleet-agent") == {"claim"}
    # The control: the same look finds the rights where they are.
    assert on_queues("sandfleet-queue-admin") == look | WRITES | {"claim", "prioritize"}


def test_without_the_fleet_no_account_has_its_rights() -> None:
    assert "fleet" not in {
        one["metadata"].get("name", "").rpartition("-")[2] for one in rendered("fleet.enabled=false")
    }

"""The chart on a real API server: its objects are accepted, grant the golden file's rights, and go at an uninstall."""

from __future__ import annotations

import asyncio
import re
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest
from chart.helm_chart import Json, named
from cluster.access_bed import an_object
from cluster.harness.api import has_condition, path_of
from cluster.harness.layout import ClusterError
from cluster.harness.testing import Cluster
from cluster.operators import RESTRICTED_LABELS, template
from cluster.releases import IMAGE, SANDBOX_IMAGE, STILL, Release
from sandfleet import AsyncSandbox
from sandfleet_operator.executors.authority import Authority
from sandfleet_operator.executors.signing import Material, ca_config_map
from sandfleet_operator.executors.tokens import KeyRing, TokenKey

pytestmark = pytest.mark.usefixtures("kinds")
COMPONENTS = ("operator", "fleet")


@pytest.fixture
def release(cluster: Cluster, helm: Callable[..., str], namespace: str) -> Iterator[Release]:
    """Of a name of its own, not installed yet; it goes after the test."""
    made = Release(cluster, helm, f"box-{secrets.token_hex(3)}", namespace)
    yield made
    with suppress(ClusterError):
        made.uninstall()


@pytest.mark.parametrize(
    "values",
    [
        "nameOverride=other",
        "crds.keep=false",
        "runtimeClass.create=true,runtimeClass.name=other,runtimeClass.nodeSelector.gvisor=yes",
        "operator.podDisruptionBudget.enabled=true,fleet.podDisruptionBudget.enabled=true,operator.replicas=2",
        "settings.watchNamespaces={default,kube-system},fleet.enabled=false",
        "operator.affinity.podAntiAffinity.preferredDuringSchedulingIgnoredDuringExecution={},operator.tolerations[0].operator=Exists",
        "operator.topologySpreadConstraints[0].maxSkew=1,operator.topologySpreadConstraints[0].topologyKey=zone,operator.topologySpreadConstraints[0].whenUnsatisfiable=ScheduleAnyway",
        "fleet.env[0].name=A,fleet.env[0].value=b,imagePullSecrets[0].name=registry,userRoles.enabled=false",
    ],
)  # fmt: skip
def test_the_api_server_accepts_the_charts_objects(release: Release, values: str):
    said = release.install("--dry-run=server", "--take-ownership", "--hide-secret", "--set", values)
    assert "STATUS: pending-install" in said


def test_the_notes_say_what_is_there_and_what_is_missing(release: Release):
    said = release.install(
        "--dry-run=server", "--take-ownership", "--hide-secret", "--set", "runtimeClass.name=nowhere"
    )
    assert "[x] the custom resources" in said
    assert "[ ] the RuntimeClass nowhere" in said
    assert "runtimeClass.create=true" in said
    assert "[ ] networks that stay closed whatever an egress list says" in said
    said = release.install(
        "--dry-run=server", "--take-ownership", "--hide-secret", "--set", "settings.blockedCidrs={10.96.0.0/12}"
    )
    assert "[x] networks that stay closed whatever an egress list says" in said


Grant = tuple[str, str, str]
ROW = re.compile(r"(?P<resource>\S+)\s+\[\]\s+\[(?P<names>.*?)\]\s+\[(?P<verbs>.*?)\]")


def granted(cluster: Cluster, account: str, namespace: str) -> set[Grant]:
    """Resource, name ("": any) and verb, as the API server lists them."""
    said = cluster.kubectl("auth", "can-i", "--list", f"--as=system:serviceaccount:{account}", "--namespace", namespace)
    rows = [row for line in said.splitlines() if (row := ROW.fullmatch(line.strip()))]
    return {
        (row["resource"], name, verb)
        for row in rows
        for name in row["names"].split() or [""]
        for verb in row["verbs"].split()
    }


def of_rules(rules: list[Json]) -> set[Grant]:
    return {
        (f"{resource.partition('/')[0]}{group and f'.{group}'}{''.join(resource.partition('/')[1:])}", name, verb)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for name in rule.get("resourceNames", [""])
        for verb in rule["verbs"]
    }


def rules_in(objects: tuple[Json, ...], name: str, namespace: str) -> list[Json]:
    roles = [one for one in named(objects, "Role") if one["metadata"]["namespace"] == namespace]
    mine = [one for one in (*named(objects, "ClusterRole"), *roles) if one["metadata"]["name"] in (name, f"{name}-own")]
    return [rule for role in mine for rule in role["rules"]]


@pytest.mark.parametrize("namespaced", [False, True], ids=["everywhere", "in one namespace"])
def test_an_account_can_do_exactly_what_its_roles_say(
    cluster: Cluster, release: Release, new_namespace: Callable[..., str], namespaced: bool
):
    """Which the golden file holds for the same templates. The rights that every account has are left out."""
    watched, other = new_namespace(), new_namespace()
    release.install(*STILL, *(("--set", f"settings.watchNamespaces={{{watched}}}") if namespaced else ()))
    objects = release.objects()
    everybody = granted(cluster, f"{release.namespace}:stranger", release.namespace)
    for component in COMPONENTS:
        name = f"{release.prefix}-{component}"
        for where in (release.namespace, watched, other):
            seen = granted(cluster, f"{release.namespace}:{name}", where) - everybody
            assert seen == of_rules(rules_in(objects, name, where)), (name, where)
        read = ("codesandboxes.sandfleet.io", "", "get")
        reads = [read in granted(cluster, f"{release.namespace}:{name}", one) for one in (watched, other)]
        assert reads == [True, not namespaced]


def allowed(cluster: Cluster, user: str, namespace: str, verb: str, what: str) -> bool:
    """Of an account of `NAMESPACE:NAME`, or a person. `what`: RESOURCE[.GROUP][/SUBRESOURCE][:NAME]."""
    resource, _, name = what.partition(":")
    resource, _, subresource = resource.partition("/")
    resource, _, group = resource.partition(".")
    attributes = {
        "namespace": namespace, "verb": verb, "group": group, "resource": resource, "subresource": subresource, "name": name,
    }  # fmt: skip
    home, _, account = user.partition(":")
    who = {"user": user}
    if account:
        groups = ["system:authenticated", "system:serviceaccounts", f"system:serviceaccounts:{home}"]
        who = {"user": f"system:serviceaccount:{user}", "groups": groups}
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {**who, "resourceAttributes": attributes},
    }
    return cluster.api.call("POST", "apis/authorization.k8s.io/v1/subjectaccessreviews", review)["status"]["allowed"]


LEADS_FURTHER = [
    ("list", "secrets"), ("watch", "secrets"), ("create", "secrets"), ("get", "secrets:other"), ("create", "pods/exec"),
    ("get", "pods/exec"), ("create", "pods/attach"), ("create", "pods/portforward"), ("get", "pods/log"), ("get", "pods/proxy"),
    ("patch", "pods/ephemeralcontainers"), ("update", "codesandboxes.sandfleet.io"),
    ("create", "sandboxtemplates.sandfleet.io"), ("create", "serviceaccounts/token"), ("impersonate", "users"),
    ("impersonate", "serviceaccounts"), ("escalate", "roles.rbac.authorization.k8s.io"), ("patch", "nodes"),
    ("bind", "clusterroles.rbac.authorization.k8s.io"), ("create", "rolebindings.rbac.authorization.k8s.io"),
    ("get", "nodes/proxy"), ("get", "configmaps:other"), ("list", "configmaps"), ("update", "deployments.apps"),
    ("deletecollection", "pods"), ("update", "leases.coordination.k8s.io:other"),
]  # fmt: skip


@pytest.mark.parametrize("component", COMPONENTS)
def test_requests_beyond_the_rights_are_refused(
    cluster: Cluster, release: Release, new_namespace: Callable[..., str], component: str
):
    other = new_namespace()
    release.install(*STILL)
    account = f"{release.namespace}:{release.prefix}-{component}"
    places = (release.namespace, other, "kube-system")
    # The fleet ends what it has claimed; the operator only looks.
    more = [] if component == "fleet" else [("delete", "codesandboxes.sandfleet.io")]
    asked = [*LEADS_FURTHER, *more]
    may = [(where, *what) for where in places for what in asked if allowed(cluster, account, where, *what)]
    assert may == []
    assert allowed(cluster, account, release.namespace, "get", "secrets:sandfleet-signing")
    assert not allowed(cluster, account, other, "get", "secrets:sandfleet-signing")
    assert allowed(cluster, account, other, "get", "codesandboxes.sandfleet.io")


def test_the_control_sees_a_right_that_is_granted(cluster: Cluster, namespace: str):
    """Who may do everything may do each of these."""
    cluster.api.call(
        "POST",
        f"apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings",
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": {"name": "all"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": namespace}],
        },
    )

    def all_allowed() -> bool:
        return all(allowed(cluster, f"{namespace}:default", namespace, *what) for what in LEADS_FURTHER)

    # The API server learns of the binding by a watch.
    cluster.api.wait("what was granted to be allowed", all_allowed, 30)


def test_kubernetes_own_roles_learn_the_kinds(cluster: Cluster, release: Release):
    release.install(*STILL)
    queue_admin = f"{release.prefix}-queue-admin"
    for role in ("view", "edit", "admin", queue_admin):
        binding = {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": {"name": role, "namespace": release.namespace},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": role}],
        }
        place = f"apis/rbac.authorization.k8s.io/v1/namespaces/{release.namespace}/rolebindings"
        cluster.api.call("POST", place, binding)

    def can(user: str, verb: str, resource: str) -> bool:
        return allowed(cluster, user, release.namespace, verb, f"{resource}.sandfleet.io")

    cluster.api.wait("the roles", lambda: can("admin", "create", "sandboxpools"), 30)
    expected = {
        "view": ([], ["codesandboxes", "sandboxtemplates", "sandboxpools", "sandboxqueues"]),
        "edit": (["codesandboxes"], ["sandboxtemplates", "sandboxpools", "sandboxqueues"]),
        "admin": (["codesandboxes", "sandboxtemplates", "sandboxpools"], ["sandboxqueues"]),
    }
    for user, (may, may_not) in expected.items():
        assert all(can(user, "list", resource) for resource in (*may, *may_not))
        assert all(can(user, "create", resource) for resource in may), user
        assert not any(can(user, "create", resource) for resource in may_not), user
        assert not allowed(cluster, user, release.namespace, "patch", "codesandboxes.sandfleet.io/status")
        connects = allowed(cluster, user, release.namespace, "create", "codesandboxes.sandfleet.io/connect")
        assert connects == (user != "view")
        # To use a queue is a right of its own; quota is the platform's to grant.
        assert can(user, "claim", "sandboxqueues") == (user != "view")
        assert not any(can(user, verb, "sandboxqueues") for verb in ("update", "patch", "delete", "prioritize"))
    # The control: the platform team's role has these rights.
    assert all(can(queue_admin, verb, "sandboxqueues") for verb in ("create", "patch", "delete", "prioritize"))


LEASES = ("sandfleet-operator", "sandfleet-fleet")
LED: Json = {"holderIdentity": "one", "leaseTransitions": 7}


def filled(release: Release) -> tuple[Json, ...]:
    api, namespace = release.cluster.api, release.namespace
    return (
        api.get("Secret", "sandfleet-signing", namespace).get("data", {}),
        api.get("ConfigMap", "sandfleet-ca", namespace).get("data", {}),
    )


def fill(release: Release, **more: Json) -> None:
    """As the processes do: the ConfigMap that they apply, a patch of the Secret, and Leases (`more`: metadata)."""
    api, namespace = release.cluster.api, release.namespace
    material = Material(Authority.new(time.time()), KeyRing((TokenKey.new(time.time()),)), "")
    path = path_of("ConfigMap", namespace, "sandfleet-ca")
    api.call(
        "PATCH",
        f"{path}?fieldManager=process&force=true",
        ca_config_map(namespace, material.authority.pem.decode()),
        "application/apply-patch+yaml",
    )
    path = path_of("Secret", namespace, "sandfleet-signing")
    change = {"data": {"key": "c2VjcmV0"}}
    api.call("PATCH", f"{path}?fieldManager=process", change, "application/merge-patch+json")
    for name in LEASES:
        metadata = {"namespace": namespace, "name": name}
        api.create({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata | more, "spec": LED})


@pytest.mark.parametrize("how", [(), ("--server-side=false",)], ids=["server-side", "client-side"])
def test_upgrades_and_rollbacks_leave_keys_and_leadership_as_they_are(release: Release, how: tuple[str, ...]):
    release.install(*STILL, *how)
    assert filled(release) == ({}, {})
    fill(release)
    before = filled(release)
    assert all(before)
    release.upgrade(*STILL, *how, "--set", "settings.recovery.maxCrashes=3,operator.podLabels.a=b")
    assert filled(release) == before
    release.helm("rollback", release.name, "1", "--namespace", release.namespace)
    assert filled(release) == before


def test_an_uninstall_keeps_the_keys_and_the_leases_for_the_next_install(release: Release):
    release.install(*STILL)
    fill(release)
    api, namespace = release.cluster.api, release.namespace
    secret = api.get("Secret", "sandfleet-signing", namespace)["data"]
    release.uninstall()
    release.install(*STILL)
    assert api.get("Secret", "sandfleet-signing", namespace)["data"] == secret
    assert [api.get("Lease", name, namespace)["spec"] for name in LEASES] == [LED, LED]


def test_leases_that_helm_made_outlive_an_upgrade_a_rollback_and_an_uninstall(release: Release):
    release.install(*STILL)
    mine = {"meta.helm.sh/release-name": release.name, "meta.helm.sh/release-namespace": release.namespace}
    fill(release, labels={"app.kubernetes.io/managed-by": "Helm"}, annotations=mine)

    def specs() -> list[Json]:
        return [release.cluster.api.get("Lease", name, release.namespace)["spec"] for name in LEASES]

    release.upgrade(*STILL)
    assert {one["metadata"]["name"] for one in named(release.objects(), "Lease")} == set(LEASES)
    assert specs() == [LED, LED]
    # The first revision has no Leases: without the policy Helm would delete them.
    release.helm("rollback", release.name, "1", "--namespace", release.namespace)
    assert specs() == [LED, LED]
    release.upgrade(*STILL)
    release.uninstall()
    assert specs() == [LED, LED]


# What an uninstall leaves in the release's namespace, for the next install.
KEPT = {"secret/sandfleet-signing", *(f"lease.coordination.k8s.io/{name}" for name in LEASES)}


def everything(cluster: Cluster, namespace: str) -> set[str]:
    kinds = cluster.kubectl("api-resources", "--verbs=list", "--namespaced", "--output=name").split()
    listed = [one for one in kinds if not one.startswith("events")]
    found = cluster.kubectl("get", ",".join(listed), "--namespace", namespace, "--output=name")
    return set(found.split())


def cluster_wide(cluster: Cluster, release: str) -> set[str]:
    kinds = cluster.kubectl("api-resources", "--verbs=list", "--namespaced=false", "--output=name").split()
    selector = f"app.kubernetes.io/instance={release}"
    return set(cluster.kubectl("get", ",".join(kinds), "--selector", selector, "--output=name").split())


def test_an_uninstall_leaves_nothing_but_the_keys_and_the_leases(
    cluster: Cluster, release: Release, new_namespace: Callable[..., str]
):
    watched = new_namespace()
    before = everything(cluster, release.namespace), everything(cluster, watched)
    release.install(
        *STILL,
        "--set",
        f"settings.watchNamespaces={{{watched}}},runtimeClass.create=true,runtimeClass.name={release.name},"
        "admissionPolicy.enabled=true",
    )
    fill(release)
    assert everything(cluster, watched) > before[1]
    assert len(cluster_wide(cluster, release.name)) > 5
    release.uninstall()
    assert (everything(cluster, release.namespace) - KEPT, everything(cluster, watched)) == before
    assert cluster_wide(cluster, release.name) == set()


async def runs_a_cell(pool: str, namespace: str) -> tuple[str, str]:
    """In a sandbox of the pool, of the fleet that the environment leads to: what isolates it, and the cell's result."""
    async with await AsyncSandbox.create(pool=pool, namespace=namespace) as sandbox:
        return (await sandbox.get_info()).isolation, (await sandbox.run_code("6 * 7")).text


@pytest.mark.timeout(300)
def test_helm_test_and_a_client_claim_from_the_release_and_leave_nothing(
    images: Cluster, release: Release, new_namespace: Callable[..., str], monkeypatch: pytest.MonkeyPatch
):
    """With everything as it comes but the namespaces: another operator may be on the same cluster."""
    api, watched = images.api, new_namespace(RESTRICTED_LABELS)
    before = everything(images, watched), everything(images, release.namespace)
    release.install(
        *IMAGE, *SANDBOX_IMAGE, "--set", f"settings.watchNamespaces={{{watched}}},crds.enabled=false", "--wait"
    )
    said = release.helm("test", release.name, "--namespace", release.namespace)
    assert said.count("Phase:          Succeeded") == len(re.findall(r"Phase:", said))

    made_of, pool = template(watched), {"templateRef": {"name": "python"}, "replicas": 1}
    api.create(made_of)
    api.create(an_object("sandfleet.io/v1alpha1", "SandboxPool", "fast", watched, spec=pool))
    role, account = f"--clusterrole={release.prefix}-agent", f"--serviceaccount={watched}:default"
    images.kubectl("create", "rolebinding", "agents", role, account, "--namespace", watched)
    api.wait("the pool", lambda: has_condition(api.get("SandboxPool", "fast", watched), "Ready"), 60)
    monkeypatch.setenv("KUBECONFIG", str(images.kubeconfig))
    monkeypatch.setenv("SANDFLEET_KUBECTL", str(images.programs["kubectl"]))
    monkeypatch.setenv("SANDFLEET_NAMESPACE", release.namespace)
    assert asyncio.run(runs_a_cell("fast", watched)) == ("gvisor", "42")

    images.kubectl("delete", "sbp/fast", "rolebinding/agents", "--namespace", watched)
    own = {
        f"role.rbac.authorization.k8s.io/{release.prefix}",
        f"rolebinding.rbac.authorization.k8s.io/{release.prefix}",
    }

    def left() -> tuple[set[str], set[str]]:
        return everything(images, watched), everything(images, release.namespace)

    def others() -> set[str]:
        return {one for one in everything(images, watched) if one.rpartition("-")[0] not in own}

    api.wait("the pool's pods to be gone", lambda: not api.list("Pod", watched), 60)
    images.kubectl("delete", "sandboxtemplate/python", "--namespace", watched)
    # The kept spec of the template would stay for a quarter of an hour; docs/howto/install.md deletes it so.
    images.kubectl("delete", "controllerrevisions", "-l", "app.kubernetes.io/managed-by=sandfleet", "-n", watched)
    api.wait("the namespace to be as it was", lambda: others() == before[0], 90)
    release.uninstall()
    # Helm does not wait for pods that end.
    api.wait("nothing but KEPT to be left", lambda: left() == (before[0], before[1] | KEPT), 60)
    assert cluster_wide(images, release.name) == set()


def test_helm_test_fails_without_an_operator_and_leaves_nothing(images: Cluster, release: Release):
    release.install(*STILL, *IMAGE, "--set", "test.timeoutSeconds=2")
    before = everything(images, release.namespace)
    with pytest.raises(ClusterError, match="helm test"):
        release.helm("test", release.name, "--namespace", release.namespace)
    assert everything(images, release.namespace) == before

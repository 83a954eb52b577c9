"""The admission policy on the real API server: each attack with and without it, and what has to pass all the same."""

from __future__ import annotations

import copy
import json
import secrets
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
import yaml
from chart.helm_chart import CHART, Json
from cluster.access_bed import a_grant
from cluster.harness.api import Api, ApiError, path_of
from cluster.harness.layout import ClusterError
from cluster.harness.testing import Cluster, probe_pod
from cluster.operators import sandbox
from sandfleet_operator.api.kube import Ref
from sandfleet_operator.plan.pods import names
from support.fakes.kube_admission import GUARDED, written

pytestmark = pytest.mark.usefixtures("kinds")
TENANT = "tenant"
ALL = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]
# No node has it: pods stay Pending, and no kubelet writes to them.
NOWHERE = {"nodeSelector": {"sandfleet.io/test": "nowhere"}}
MERGE = "application/merge-patch+json"
OWN = {names.MANAGED_BY: names.PRODUCT, names.COMPONENT: names.SANDBOX_COMPONENT}


@dataclass(frozen=True)
class Site:
    """A namespace with one bound sandbox, and the two accounts that write there."""

    cluster: Cluster
    namespace: str
    account: str

    def acting(self, user: str) -> Api:
        config = json.loads(self.cluster.kubectl("config", "view", "--raw", "--minify", "--flatten", "-o", "json"))
        api = Api(config)
        api._headers["Impersonate-User"] = user
        return api

    def as_tenant(self, *arguments: str, given: str | None = None) -> str:
        return self.cluster.kubectl("--as", TENANT, "--namespace", self.namespace, *arguments, given=given)

    def path(self, kind: str, name: str, subresource: str = "") -> str:
        return path_of(kind, self.namespace, name) + (f"/{subresource}" if subresource else "")

    def pod(self, name: str, labels: Json, **spec: object) -> Json:
        return probe_pod(self.namespace, name, labels=labels, **NOWHERE, **spec)

    def volume_claim(self, name: str, **metadata: Json) -> Json:
        spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}}
        meta = {"namespace": self.namespace, "name": name, **metadata}
        return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta, "spec": spec}

    def furnish(self) -> None:
        """What the control plane writes for one claim."""
        control = self.acting(self.account)
        labels = {**OWN, names.SANDBOX: "mine", names.STATE: "claimed", names.POOL: "fast"}
        made = control.create(self.pod("warm-1", labels))
        bound = {names.BOUND_POD: f"warm-1/{made['metadata']['uid']}", names.CLAIM: "{}"}
        mine = sandbox(self.namespace, "mine")
        mine["metadata"]["annotations"] = bound
        owner = control.create(mine)["metadata"]
        reference = {"apiVersion": "sandfleet.io/v1alpha1", "kind": "CodeSandbox", "name": "mine", "uid": owner["uid"]}
        control.create(
            self.volume_claim(
                "workspace-warm-1",
                labels={**OWN, names.SANDBOX: "mine"},
                annotations={names.RETENTION: "Delete"},
                ownerReferences=[reference],
            )
        )
        # Not bound by the control plane: a tenant's own.
        control.create(self.pod("own", {"app": "web"}))
        control.create(self.volume_claim("own"))
        control.create(sandbox(self.namespace, "own"))


def rendered(helm: Callable[..., str], namespace: str, name: str, places: list[str]) -> list[Json]:
    """The policies of a release, as the chart makes them."""
    files = (part for file in ("policy", "queues") for part in ("--show-only", f"templates/admission/{file}.yaml"))
    text = helm(
        "template", name, str(CHART), "--namespace", namespace, *files,
        "--set-json", f"settings.watchNamespaces={json.dumps(places)}",
    )  # fmt: skip
    return [one for one in yaml.safe_load_all(text) if one]


@pytest.fixture
def sites(cluster: Cluster, helm: Callable[..., str], new_namespace: Callable[..., str]) -> Iterator[tuple[Site, Site]]:
    """With the policy, and without it: two namespaces, one release speaks for the first."""
    release, home = f"box-{secrets.token_hex(3)}", new_namespace()
    places = new_namespace(), new_namespace()
    account = f"system:serviceaccount:{home}:{release}-sandfleet-fleet"
    made = [Site(cluster, place, account) for place in places]
    for place in places:
        for user in (TENANT, account):
            grant = a_grant("", user.rpartition(":")[2], ALL, ("", ""), place)
            grant[1]["subjects"] = [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}]
            for one in grant:
                cluster.kubectl("apply", "-f", "-", given=json.dumps(one))
    objects = rendered(helm, home, release, [places[0]])
    cluster.kubectl("apply", "-f", "-", given=yaml.safe_dump_all(objects))
    try:
        in_force(made[0])
        for one in made:
            one.furnish()
        yield made[0], made[1]
    finally:
        for one in objects:
            cluster.kubectl("delete", one["kind"], one["metadata"]["name"], "--ignore-not-found")


def in_force(site: Site) -> None:
    """Until the API server, which learns of policies by a watch, refuses a forged pod."""
    tenant, forged = site.acting(TENANT), site.pod("probe", dict(OWN))

    def refused() -> bool:
        try:
            tenant.call("POST", f"{path_of('Pod', site.namespace)}?dryRun=All", forged)
        except ApiError as error:
            return error.status == 403 and names.COMPONENT in str(error)
        return False

    site.cluster.api.wait("the policy to be in force", refused, 30)


def labelled(site: Site, kind: str, name: str, subresource: str = "", **labels: str | None) -> Callable[[Api], Json]:
    written = {f"sandfleet.io/{key.replace('_', '-')}": value for key, value in labels.items()}
    path = site.path(kind, name, subresource)
    return lambda api: api.call("PATCH", path, {"metadata": {"labels": written}}, MERGE)


def annotated(site: Site, kind: str, name: str, subresource: str = "", **notes: str | None) -> Callable[[Api], Json]:
    written = {f"sandfleet.io/{key.replace('_', '-')}": value for key, value in notes.items()}
    path = site.path(kind, name, subresource)
    return lambda api: api.call("PATCH", path, {"metadata": {"annotations": written}}, MERGE)


def forged_sandbox(site: Site) -> Callable[[Api], Json]:
    value = sandbox(site.namespace, "forged")
    value["metadata"]["annotations"] = {names.BOUND_POD: "warm-1/u"}
    return lambda api: api.create(value)


def forged_binding(site: Site) -> Callable[[Api], Json]:
    """A scheduler's way to write on a pod that has no node."""
    value = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "own", "namespace": site.namespace, "annotations": {names.CLAIM: "{}"}},
        "target": {"apiVersion": "v1", "kind": "Node", "name": "nowhere"},
    }
    return lambda api: api.call("POST", site.path("Pod", "own", "binding"), value)


# Each attack with a key that the refusal names.
ATTACKS: dict[str, tuple[str, Callable[[Site], Callable[[Api], Json]]]] = {
    "a forged warm pod": (names.STATE, lambda s: lambda a: a.create(s.pod("forged", {**OWN, names.STATE: "warm"}))),
    "a pod that says it is a sandbox": (names.COMPONENT, lambda s: labelled(s, "Pod", "own", component="sandbox")),
    "a sandbox's pod that leaves its walls": (names.COMPONENT, lambda s: labelled(s, "Pod", "warm-1", component=None)),
    "a pod that opens egress": (names.EGRESS_CLASS, lambda s: labelled(s, "Pod", "warm-1", egress_class="python")),
    "a claimed pod made warm": (names.STATE, lambda s: labelled(s, "Pod", "warm-1", state="warm")),
    "a pod for another sandbox": (names.SANDBOX, lambda s: labelled(s, "Pod", "warm-1", sandbox="own")),
    "a label through the status": (names.POOL, lambda s: labelled(s, "Pod", "warm-1", "status", pool="other")),
    "a forged record of a claim": (names.CLAIM, lambda s: annotated(s, "Pod", "warm-1", claim='{"holder": ["h"]}')),
    "a record through a binding": (names.CLAIM, forged_binding),
    "a forged bound sandbox": (names.BOUND_POD, forged_sandbox),
    "a sandbox bound to another's pod": (names.BOUND_POD, lambda s: annotated(s, "CodeSandbox", "own", bound_pod="w/u")),
    "a sandbox's claim changed": (names.CLAIM, lambda s: annotated(s, "CodeSandbox", "mine", claim="[]")),
    "a volume that is kept": (
        names.RETENTION,
        lambda s: annotated(s, "PersistentVolumeClaim", "workspace-warm-1", retention="Retain"),
    ),
    "a volume of another sandbox": (names.SANDBOX, lambda s: labelled(s, "PersistentVolumeClaim", "own", sandbox="x")),
    "a volume's owner through the status": (
        names.SANDBOX,
        lambda s: labelled(s, "PersistentVolumeClaim", "own", "status", sandbox="y"),
    ),
}  # fmt: skip


def stored(site: Site) -> dict[Ref, Json]:
    """What the policy guards, as it is now."""
    kinds = {kind: site.cluster.api.list(kind.kind, site.namespace) for kind in GUARDED}
    return {
        Ref(kind, site.namespace, one["metadata"]["name"]): one for kind, objects in kinds.items() for one in objects
    }


def judged_in_memory(before: dict[Ref, Json], after: dict[Ref, Json]) -> set[str]:
    """The keys that the policy of the API server in memory refuses."""
    return {key for ref, obj in after.items() for key in written(ref.kind, before.get(ref), obj)}


def test_each_attack_is_refused_with_the_policy_and_succeeds_without_it(sites: tuple[Site, Site]):
    guarded, free = sites
    tenant = guarded.acting(TENANT)
    let_in, refused_without, differ = [], [], []
    for name, (key, attack) in ATTACKS.items():
        try:
            attack(guarded)(tenant)
            let_in.append(name)
        except ApiError as error:
            assert (error.status, key in str(error)) == (403, True), f"{name}: {error}"
        before = stored(free)
        try:
            attack(free)(tenant)
        except ApiError as error:
            refused_without.append(f"{name}: {error}")
        if key not in judged_in_memory(before, stored(free)):
            differ.append(name)
    assert let_in == []
    assert refused_without == []
    assert differ == []


def test_a_controller_makes_no_forged_pods_for_a_tenant(sites: tuple[Site, Site]):
    for site in sites:
        labels = {"app": "forged", names.COMPONENT: names.SANDBOX_COMPONENT, names.STATE: "warm"}
        template = site.pod("x", labels)
        deployment = {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"namespace": site.namespace, "name": "forged"},
            "spec": {
                "selector": {"matchLabels": {"app": "forged"}},
                "template": {"metadata": {"labels": labels}, "spec": template["spec"]},
            },
        }
        deployment["spec"]["template"]["spec"].pop("terminationGracePeriodSeconds")
        site.acting(TENANT).create(deployment)
    api, (guarded, free) = sites[0].cluster.api, sites

    def pods(site: Site) -> int:
        return len([one for one in api.list("Pod", site.namespace) if one["metadata"]["labels"].get("app") == "forged"])

    def refused() -> bool:
        said = api.get("Deployment", "forged", guarded.namespace).get("status", {}).get("conditions", [])
        return any(one["type"] == "ReplicaFailure" and "control plane" in one["message"] for one in said)

    api.wait("the controller to be refused", refused, 30)
    api.wait("the control's pod", lambda: pods(free) == 1, 30)
    assert pods(guarded) == 0


def test_the_control_plane_and_everyday_edits_pass(sites: tuple[Site, Site], monkeypatch: pytest.MonkeyPatch):
    site, _ = sites
    control, tenant = site.acting(site.account), site.acting(TENANT)
    labelled(site, "Pod", "warm-1", state="retiring")(control)
    annotated(site, "CodeSandbox", "mine", bound_pod="warm-2/u")(control)
    before = stored(site)
    # Clients open the executor's port to themselves.
    labelled(site, "Pod", "own", client="true")(tenant)
    annotated(site, "CodeSandbox", "own", traceparent="00-1")(tenant)
    # The control plane's own pods have another component.
    tenant.create(site.pod("operator", {names.COMPONENT: "operator"}))
    site.as_tenant("label", "pod/warm-1", "csb/mine", "pvc/workspace-warm-1", "team=a")
    site.as_tenant("annotate", "pod/warm-1", "csb/mine", "note=b")
    site.as_tenant("patch", "csb/mine", "--type=merge", "-p", '{"spec":{"operatingMode":"Suspended"}}')
    monkeypatch.setenv("KUBE_EDITOR", "sed -i s/Suspended/Running/")
    site.as_tenant("edit", "csb/mine")
    spec = site.cluster.api.get("CodeSandbox", "mine", site.namespace)["spec"]
    assert spec["operatingMode"] == "Running"
    manifest = json.dumps(sandbox(site.namespace, "mine", lifetimeSeconds=600))
    for how in ((), ("--server-side", "--force-conflicts")):
        site.as_tenant("apply", *how, "-f", "-", given=manifest)
        meta = site.cluster.api.get("CodeSandbox", "mine", site.namespace)["metadata"]
        assert meta["annotations"][names.BOUND_POD] == "warm-2/u"
    # As a GitOps tool does with Replace=true: the manifest says no key, and a second time changes nothing.
    for _ in range(2):
        site.as_tenant("replace", "-f", "-", given=manifest)
    assert names.BOUND_POD not in site.cluster.api.get("CodeSandbox", "mine", site.namespace)["metadata"].get(
        "annotations", {}
    )
    assert judged_in_memory(before, stored(site)) == set()
    annotated(site, "CodeSandbox", "mine", bound_pod="warm-2/u")(control)


@pytest.mark.parametrize("policy", ["background", "orphan"])
def test_the_garbage_collector_passes(sites: tuple[Site, Site], policy: str):
    site, _ = sites
    api = site.cluster.api
    site.as_tenant("delete", "csb/mine", f"--cascade={policy}")

    def volume() -> list[Json]:
        found = api.list("PersistentVolumeClaim", site.namespace)
        return [one["metadata"] for one in found if one["metadata"]["name"] == "workspace-warm-1"]

    if policy == "background":
        api.wait("the volume claim to be collected", lambda: not volume(), 60)
    else:
        api.wait("the owner to be taken off", lambda: not volume()[0].get("ownerReferences"), 60)
        assert volume()[0]["labels"][names.SANDBOX] == "mine"


def test_a_backup_is_refused_until_its_keys_are_removed(sites: tuple[Site, Site]):
    """An export by kubectl, and what Velero restores: labels and annotations as they were, and a label of its own."""
    site, free = sites
    api, tenant = site.cluster.api, site.acting(TENANT)
    for kind, name, keys in (
        ("PersistentVolumeClaim", "workspace-warm-1", {names.COMPONENT, names.SANDBOX, names.RETENTION}),
        ("Pod", "warm-1", {names.COMPONENT, names.SANDBOX, names.STATE, names.POOL}),
        # Last, because its volume claim goes with it.
        ("CodeSandbox", "mine", {names.BOUND_POD, names.CLAIM}),
    ):
        exported = json.loads(site.as_tenant("get", kind, name, "-o", "json"))
        restored = _restored(exported)
        control = {**_restored(exported), "metadata": {**_restored(exported)["metadata"], "namespace": free.namespace}}
        control["metadata"]["name"] += "-again"
        tenant.create(control)
        api.delete(kind, name, site.namespace, grace=0)
        api.wait("it to be gone", lambda kind=kind, name=name: _gone(api, kind, name, site.namespace), 60)
        with pytest.raises(ClusterError, match="Remove it from metadata") as caught:
            site.as_tenant("create", "-f", "-", given=json.dumps(exported))
        with pytest.raises(ApiError, match="cannot write") as again:
            tenant.create(restored)
        for refusal in (caught, again):
            assert all(key in str(refusal.value) for key in keys)
        for field in ("labels", "annotations"):
            kept = restored["metadata"].get(field, {})
            restored["metadata"][field] = {key: kept[key] for key in kept.keys() - keys}
        tenant.create(restored)


def _restored(exported: Json) -> Json:
    value = copy.deepcopy(exported)
    value.pop("status", None)
    for field in ("uid", "resourceVersion", "creationTimestamp", "ownerReferences", "generation"):
        value["metadata"].pop(field, None)
    if value["kind"] == "PersistentVolumeClaim":
        value["spec"].pop("volumeName", None)
    value["metadata"]["labels"] = {**value["metadata"].get("labels", {}), "velero.io/restore-name": "one"}
    return value


def _gone(api: Api, kind: str, name: str, namespace: str) -> bool:
    return name not in {one["metadata"]["name"] for one in api.list(kind, namespace)}


def test_two_releases_do_not_block_each_other(
    sites: tuple[Site, Site], helm: Callable[..., str], new_namespace: Callable[..., str]
):
    first, second = sites
    release, home = f"box-{secrets.token_hex(3)}", new_namespace()
    other = Site(second.cluster, second.namespace, f"system:serviceaccount:{home}:{release}-sandfleet-operator")
    grant = a_grant("", "other", ALL, ("", ""), second.namespace)
    grant[1]["subjects"] = [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": other.account}]
    objects = rendered(helm, home, release, [second.namespace])
    for one in (*grant, *objects):
        second.cluster.kubectl("apply", "-f", "-", given=json.dumps(one))
    try:
        in_force(other)
        change = {"state": "retiring"}
        labelled(other, "Pod", "warm-1", **change)(other.acting(other.account))
        labelled(first, "Pod", "warm-1", **change)(first.acting(first.account))
        with pytest.raises(ApiError, match="cannot write"):
            labelled(other, "Pod", "warm-1", state="warm")(first.acting(first.account))
    finally:
        for one in objects:
            second.cluster.kubectl("delete", one["kind"], one["metadata"]["name"], "--ignore-not-found")


def on_queues(*names: str, verbs: tuple[str, ...] = ("claim",)) -> list[Json]:
    group = {"apiGroups": ["sandfleet.io"]}
    creates = {**group, "resources": ["codesandboxes"], "verbs": ["create"]}
    uses = {**group, "resources": ["sandboxqueues"], "verbs": list(verbs), "resourceNames": list(names)}
    return [creates, uses] if names else [creates]


TEAM, HIGH = {"queueRef": {"name": "team"}}, {"queueRef": {"name": "team"}, "priorityClass": "high"}
CLAIM_AND_PRIORITIZE = on_queues("team", verbs=("claim", "prioritize"))
# The rights of a user, and what the user asks for → what the refusal says; nothing: it passes.
USES = {
    "no queue, where there is a default": (on_queues("team"), {}, "'default', which all sandboxes use that name none: asks may not claim on sandboxqueues/default"),
    "no queue, with the right": (on_queues("default"), {}, ""),
    "a queue of others": (on_queues("team"), {"queueRef": {"name": "other"}}, "queue 'other': asks may not claim on sandboxqueues/other"),
    "its queue": (on_queues("team"), TEAM, ""),
    "a free class": (on_queues("team"), {**TEAM, "priorityClass": "low"}, ""),
    "a restricted class": (on_queues("team"), HIGH, "class 'high', which is restricted: asks may not prioritize on sandboxqueues/team"),
    "a restricted class, with the right": (CLAIM_AND_PRIORITIZE, HIGH, ""),
    "a class that is restricted in another queue": (on_queues("team"), {**TEAM, "priorityClass": "urgent"}, ""),
}  # fmt: skip


def test_a_queue_and_a_restricted_class_are_for_those_with_the_right(sites: tuple[Site, Site]):
    """Without the policy all of it passes. Without a queue there is nothing to ask about."""
    guarded, free = sites
    for site in sites:
        may(site, on_queues())
        site.cluster.api.wait("the right to create", lambda site=site: refused_use(site, {}) == "", 30)
    for site in sites:
        for name, restricted in (("default", "none"), ("team", "high"), ("other", "urgent")):
            spec = {"nominalQuota": {}, "priorityClasses": [{"name": restricted, "restricted": True}, {"name": "low"}]}
            value = {"apiVersion": "sandfleet.io/v1alpha1", "kind": "SandboxQueue", "spec": spec}
            site.cluster.api.create({**value, "metadata": {"name": name, "namespace": site.namespace}})
    wrong = []
    for what, (rules, spec, expected) in USES.items():
        may(guarded, rules)
        said, deadline = refused_use(guarded, spec), time.monotonic() + 15
        # The API server learns of rights and queues by watches.
        while not is_as(said, expected) and time.monotonic() < deadline:
            time.sleep(0.2)
            said = refused_use(guarded, spec)
        if not is_as(said, expected):
            wrong.append(f"{what}: {said or 'it passed'}")
        assert refused_use(free, spec) == ""
    assert wrong == []


def is_as(said: str, expected: str) -> bool:
    return expected in said if expected else not said


def may(site: Site, rules: list[Json]) -> None:
    """The user `asks`."""
    grant = a_grant("", "asks", rules, ("", ""), site.namespace)
    grant[1]["subjects"] = [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "asks"}]
    for one in grant:
        site.cluster.kubectl("apply", "-f", "-", given=json.dumps(one))


def refused_use(site: Site, spec: Json) -> str:
    """A dry run."""
    value = sandbox(site.namespace, "queued", **spec)
    try:
        site.acting("asks").call("POST", f"{path_of('CodeSandbox', site.namespace)}?dryRun=All", value)
    except ApiError as error:
        assert error.status == 403, error
        return str(error)
    return ""


RBAC = "apis/rbac.authorization.k8s.io/v1"
# An admin of the namespace, by the chart's roles and Kubernetes' own.
ADMIN = "boss"


def patched(site: Site, kind: str, name: str, change: Json, subresource: str = "") -> Callable[[Api], Json]:
    return lambda api: api.call("PATCH", site.path(kind, name, subresource), change, MERGE)


def quota(site: Site, **change: object) -> Callable[[Api], Json]:
    return patched(site, "SandboxQueue", "team", {"spec": change})


def own_queue(site: Site) -> Callable[[Api], Json]:
    return lambda api: api.create(a_queue(site, "own"))


def admitted(site: Site) -> Callable[[Api], Json]:
    """The fleet's word, written by hand."""
    admission = {"queue": "team", "state": "Admitted", "time": "2026-01-01T00:00:00Z"}
    return patched(site, "CodeSandbox", "own", {"status": {"admission": admission}}, "status")


def role_for_itself(site: Site, release: str) -> Callable[[Api], Json]:
    made = a_grant("", "mine", [], ("", ""), site.namespace)[1]
    made["roleRef"] = {**made["roleRef"], "kind": "ClusterRole", "name": f"{release}-queue-admin"}
    made["subjects"] = [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": ADMIN}]
    return lambda api: api.call("POST", f"{RBAC}/namespaces/{site.namespace}/rolebindings", made)


def verb_for_itself(site: Site) -> Callable[[Api], Json]:
    rules = [{"apiGroups": ["sandfleet.io"], "resources": ["sandboxqueues"], "verbs": ["prioritize"]}]
    role = a_grant("", "mine-too", rules, ("", ""), site.namespace)[0]
    return lambda api: api.call("POST", f"{RBAC}/namespaces/{site.namespace}/roles", role)


def above_the_threshold(site: Site) -> Callable[[Api], Json]:
    return lambda api: api.create(sandbox(site.namespace, "first", **HIGH))


# What an admin of a namespace may not do to its queue. RBAC refuses it; who has all rights may.
BY_RIGHTS: dict[str, Callable[[Site], Callable[[Api], Json]]] = {
    "raise its quota": lambda s: quota(s, nominalQuota={"sandboxes": 1000}),
    "join a cohort": lambda s: quota(s, cohort="all"),
    "set its weight": lambda s: quota(s, weight=1000),
    "borrow without bounds": lambda s: quota(s, borrowingLimit=None),
    "free a restricted class": lambda s: quota(s, priorityClasses=[{"name": "high"}]),
    "make a queue": own_queue,
    "forge what a queue uses": lambda s: patched(s, "SandboxQueue", "team", {"status": {"pending": 0}}, "status"),
    "admit itself": admitted,
    "take the right to prioritize": verb_for_itself,
    "delete its queue": lambda s: lambda api: api.call("DELETE", s.path("SandboxQueue", "team"), {}),
}
# The admission policies refuse it; without them it passes.
BY_POLICY: dict[str, Callable[[Site], Callable[[Api], Json]]] = {
    "claim above the threshold": above_the_threshold,
    "count a pod against its queue": lambda s: annotated(s, "Pod", "own", queue="team"),
}


def a_queue(site: Site, name: str) -> Json:
    spec = {
        "nominalQuota": {"sandboxes": 1},
        "priorityClasses": [{"name": "high", "restricted": True}, {"name": "low"}],
    }
    metadata = {"name": name, "namespace": site.namespace}
    return {"apiVersion": "sandfleet.io/v1alpha1", "kind": "SandboxQueue", "metadata": metadata, "spec": spec}


@pytest.fixture
def governed(
    sites: tuple[Site, Site], helm: Callable[..., str], new_namespace: Callable[..., str]
) -> Iterator[tuple[Site, Site, str]]:
    """Each namespace has a queue and an admin with the roles of the chart, whose names begin with the last."""
    release = f"box-{secrets.token_hex(3)}"
    text = helm(
        "template", release, str(CHART), "--namespace", new_namespace(),
        "--show-only", "templates/control-plane/user-roles.yaml", "--set", f"fullnameOverride={release}",
    )  # fmt: skip
    roles = [one for one in yaml.safe_load_all(text) if one and one["kind"] == "ClusterRole"]
    cluster = sites[0].cluster
    cluster.kubectl("apply", "-f", "-", given=yaml.safe_dump_all(roles))
    try:
        for site in sites:
            cluster.api.create(a_queue(site, "team"))
            cluster.kubectl(
                "create", "rolebinding", ADMIN, "--clusterrole=admin", f"--user={ADMIN}", "-n", site.namespace
            )
            dry = f"{path_of('CodeSandbox', site.namespace)}?dryRun=All"
            api, mine = site.acting(ADMIN), sandbox(site.namespace, "dry", queueRef={"name": "team"})
            cluster.api.wait(
                "the admin's rights", lambda api=api, dry=dry, mine=mine: bool(api.call("POST", dry, mine)), 60
            )
        yield *sites, release
    finally:
        cluster.kubectl("delete", "clusterrole", *(one["metadata"]["name"] for one in roles), "--ignore-not-found")


def refusal(attack: Callable[[Api], Json], api: Api) -> int:
    """The code that the API server refuses with; 0 if it does not."""
    try:
        attack(api)
    except ApiError as error:
        return error.status
    return 0


def test_an_admin_of_a_namespace_takes_nothing_that_the_platform_has_not_granted(governed: tuple[Site, Site, str]):
    guarded, free, release = governed
    attacks = {**BY_RIGHTS, "take the role of the platform": lambda s: role_for_itself(s, release)}
    refused = {
        what: refusal(attack(guarded), guarded.acting(ADMIN)) for what, attack in {**attacks, **BY_POLICY}.items()
    }
    assert refused == dict.fromkeys(refused, 403)
    # Whose right it is may do the same, and without the policies the admin may do what they refuse.
    controls = {what: refusal(attack(free), free.acting(ADMIN)) for what, attack in BY_POLICY.items()}
    controls |= {what: refusal(attack(free), free.acting(TENANT)) for what, attack in attacks.items()}
    assert controls == dict.fromkeys(controls, 0)


def test_its_cost_on_a_claim_is_no_request_and_little_time(
    sites: tuple[Site, Site], capsys: pytest.CaptureFixture[str]
):
    """The fleet's account fails the first condition; a tenant's write is looked at. Printed, not asserted."""
    seconds: dict[tuple[str, bool], list[float]] = {}
    for user in (sites[0].account, TENANT):
        api = sites[0].acting(user)
        for number in range(60):
            for guarded, site in zip((True, False), sites, strict=True):
                patch = [{"op": "add", "path": "/metadata/labels/beat", "value": str(number)}]
                began = time.perf_counter()
                path = site.path("Pod", "own")
                api.call("PATCH", path, patch, "application/json-patch+json")
                seconds.setdefault((user, guarded), []).append(time.perf_counter() - began)
    with capsys.disabled():
        for user, who in ((sites[0].account, "the fleet"), (TENANT, "a tenant")):
            with_it, without = (statistics.median(seconds[user, guarded]) for guarded in (True, False))
            print(f"\na patch by {who}: {with_it * 1000:.2f} ms, {with_it / without:.2f} times that without the policy")

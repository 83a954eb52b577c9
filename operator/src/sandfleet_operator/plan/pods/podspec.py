"""The pod that a sandbox runs in, as the manifest that the API server gets."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from sandfleet_operator.api.kinds.meta import Meta
from sandfleet_operator.api.kinds.template import Contract, Resources, for_executor
from sandfleet_operator.api.limits import in_numbers
from sandfleet_operator.api.quantities import MIB, bytes_text, cores_text
from sandfleet_operator.api.settings import Settings
from sandfleet_operator.api.validate import trace_parent
from sandfleet_operator.plan.egress.lists import ends_tls, names_of, placeholders
from sandfleet_operator.plan.pods import delivery, names
from sandfleet_operator.plan.pods.egress import allows_nothing
from sandfleet_operator.plan.pods.merge import Effective
from sandfleet_operator.plan.pods.placement import fields_of as placement_of
from sandfleet_operator.plan.remembered import remembered

CONTAINER = "executor"
KEYS_FILE = "keys.json"
# Variables that the executor reads: see docs/reference/executor.md.
CONFIG_VARIABLE = "SANDFLEET_EXECUTOR_CONFIG"
UID_VARIABLE = "SANDFLEET_POD_UID"
AUTHORITY_VARIABLE = "SANDFLEET_KEYS_AUTHORITY"
USER_PREFIX = "SANDFLEET_USER_"

GRACE_SECONDS = 5
STARTUP_SECONDS = 120
PRIVATE_BYTES = 1 * MIB
SCRATCH_BYTES = 64 * MIB


class PodState(Enum):
    """The value of the state label, which a claim changes."""

    WARM = "warm"
    CLAIMED = "claimed"
    # The pod is being ended and may not be claimed any more.
    RETIRING = "retiring"


@dataclass(frozen=True, slots=True, kw_only=True)
class PodRequest:
    """The inputs of a pod's manifest, besides the settings."""

    namespace: str
    # The sandbox's name, which is the pod's, too.
    name: str
    wanted: Effective
    state: PodState = PodState.CLAIMED
    # The pod's pool; empty: none.
    pool: str = ""
    # Its CodeSandbox; None while there is none.
    owner: Meta | None = None
    # Labels of its CodeSandbox.
    labels: Mapping[str, str] = field(default_factory=dict)
    traceparent: str = ""
    # Seconds left of the lifetime; None: no limit.
    lease: float | None = None
    # Name of the workspace's volume claim; empty: the one named after the sandbox.
    workspace: str = ""
    # The ControllerRevision that keeps the template's spec; empty: none.
    revision: str = ""
    # What its pool starts from; empty: nothing.
    snapshot: str = ""
    # The image that a claim has named, which `wanted` has by then; empty: its template's.
    image: str = ""
    # Name of the SandboxQueue that has admitted the sandbox; empty: none.
    queue: str = ""
    # Whether the node's runtime can give the pod a user namespace of its own.
    user_namespace: bool = False


def sandbox_pod(request: PodRequest, settings: Settings) -> dict[str, Any]:
    """The manifest. A warm pod's lease and idle timeout start with its claim."""
    spec = _spec(request, settings)
    annotations = {
        **request.wanted.pod_annotations,
        **names.NO_LINKERD,
        **names.autoscaler_marks(claimed=request.state is PodState.CLAIMED),
        names.SPEC_HASH: spec_hash(request.wanted, settings),
    }
    if trace := trace_parent(request.traceparent):
        annotations[names.TRACEPARENT] = trace
    if request.revision:
        annotations[names.TEMPLATE_REVISION] = request.revision
    if request.snapshot:
        annotations[names.SNAPSHOT] = request.snapshot
    if request.image:
        annotations[names.IMAGE] = request.image
    if request.queue:
        annotations[names.QUEUE] = request.queue
    egress = request.wanted.egress
    if settings.egress.address and ends_tls(egress, names_of(egress, settings.egress.sets)):
        annotations[names.EGRESS_SECRETS] = "true"
    if request.wanted.services:
        annotations[names.SERVICES] = ",".join(str(one["name"]) for one in request.wanted.services)
    metadata: dict[str, Any] = {
        "namespace": request.namespace,
        "name": request.name,
        "labels": pod_labels(request, settings),
        "annotations": annotations,
    }
    if request.owner is not None:
        metadata["ownerReferences"] = [names.owned_by("CodeSandbox", request.owner)]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


@remembered
def spec_hash(wanted: Effective, settings: Settings) -> str:
    """A hash of the values that pods are made from. Sandboxes of a template that change no value share one hash."""
    anonymous = PodRequest(namespace="", name="", wanted=wanted)
    made: dict[str, Any] = _spec(anonymous, settings)
    if wanted.pod_annotations:
        made = {"annotations": dict(wanted.pod_annotations), "spec": made}
    if wanted.pod_labels:
        made = {"labels": dict(wanted.pod_labels), "spec": made}
    return hashlib.sha256(json.dumps(made, sort_keys=True).encode()).hexdigest()[:32]


def made_from(spec: str, snapshot: str) -> str:
    """What a warm pod was made from: the hash of its spec, and the snapshot that its pool starts from."""
    return f"{spec} {snapshot}" if snapshot else spec


def pod_labels(request: PodRequest, settings: Settings) -> dict[str, str]:
    copied = names.copied(request.labels, settings.copied_labels)
    return {**copied, **request.wanted.pod_labels, **names.OUT_OF_MESHES, **own_labels(request)}


def own_labels(request: PodRequest) -> dict[str, str]:
    """The labels that policies and the control plane select by."""
    wanted = request.wanted
    labels = names.own_labels(**{names.SANDBOX: request.name, names.STATE: request.state.value})
    if wanted.template:
        labels[names.TEMPLATE] = names.bounded(wanted.template)
    if request.pool:
        labels[names.POOL] = names.bounded(request.pool)
    if wanted.contract is not Contract.AUTONOMOUS:
        labels[names.CONTRACT] = wanted.contract.value
    # A warm pod reaches nothing. The claim decides what it may reach.
    if request.state is not PodState.WARM and not allows_nothing(wanted.egress):
        own = (names.EGRESS_OWN, request.name)
        labels |= [own if wanted.own_egress else (names.EGRESS_CLASS, names.bounded(wanted.template))]
    return labels


def warm_selector(pool: str) -> str:
    """Of the pods of a pool that wait for a claim, as kubectl writes it."""
    return f"{names.POOL}={names.bounded(pool)},{names.STATE}={PodState.WARM.value}"


def _spec(request: PodRequest, settings: Settings) -> dict[str, Any]:
    wanted = request.wanted
    spec: dict[str, Any] = {
        "runtimeClassName": wanted.runtime_class,
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": GRACE_SECONDS,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": delivery.pod_security(wanted, settings),
        **_resolver(dns=wanted.egress.dns),
        "containers": [_container(request, settings)],
        "volumes": [*_volumes(request), *delivery.volumes(wanted, settings)],
    }
    if copying := delivery.init_containers(wanted, settings):
        spec["initContainers"] = copying
    if request.user_namespace:
        spec["hostUsers"] = False
    secrets = [{"name": name} for name in wanted.image_pull_secrets]
    placement = {"imagePullSecrets": secrets, **placement_of(wanted, wanted.template)}
    return spec | {key: value for key, value in placement.items() if value}


def _resolver(*, dns: bool) -> dict[str, Any]:
    """The resolver. Without name resolution the pod does not learn the cluster's domains and name server."""
    if dns:
        return {"dnsPolicy": "ClusterFirst", "dnsConfig": {"options": [{"name": "ndots", "value": "1"}]}}
    return {"dnsPolicy": "None", "dnsConfig": {"nameservers": ["127.0.0.1"]}}


def _container(request: PodRequest, settings: Settings) -> dict[str, Any]:
    wanted = request.wanted
    probe = {"tcpSocket": {"port": settings.executor_port}, "timeoutSeconds": 1}
    container: dict[str, Any] = {
        "name": CONTAINER,
        "image": wanted.image,
        "imagePullPolicy": wanted.image_pull_policy,
        "ports": [{"name": "executor", "containerPort": settings.executor_port, "protocol": "TCP"}],
        "env": [
            {"name": UID_VARIABLE, "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.uid"}}},
            {"name": CONFIG_VARIABLE, "value": literal(_config(request, settings))},
        ],
        "resources": {"limits": _amounts(wanted.resources), "requests": _amounts(wanted.requests)},
        **delivery.security(wanted, settings),
        "startupProbe": {**probe, "periodSeconds": 1, "failureThreshold": STARTUP_SECONDS},
        # No liveness probe: a busy sandbox is not dead, and the executor watches itself.
        "readinessProbe": {**probe, "periodSeconds": 2, "failureThreshold": 3},
        "volumeMounts": delivery.mounts(wanted, settings),
    }
    secrets = [
        {
            "prefix": USER_PREFIX + one.prefix,
            "secretRef": {"name": one.secret, "optional": one.optional},
        }
        for one in wanted.secret_envs
    ]
    return {**container, "envFrom": secrets} if secrets else container


def _workspace(request: PodRequest) -> dict[str, Any]:
    if request.wanted.workspace.ephemeral:
        return {"emptyDir": {"sizeLimit": bytes_text(request.wanted.workspace.size)}}
    claim = request.workspace or names.workspace_claim_name(request.name)
    return {"persistentVolumeClaim": {"claimName": claim}}


def _volumes(request: PodRequest) -> list[dict[str, Any]]:
    keys = {"configMap": {"name": names.KEYS_CONFIG_MAP, "items": [{"key": KEYS_FILE, "path": KEYS_FILE}]}}
    return [
        {"name": "workspace", **_workspace(request)},
        # In memory, so that the executor's key never reaches a disk.
        {"name": "private", "emptyDir": {"medium": "Memory", "sizeLimit": bytes_text(PRIVATE_BYTES)}},
        {"name": "scratch", "emptyDir": {"sizeLimit": bytes_text(SCRATCH_BYTES)}},
        {"name": "keys", "projected": {"sources": [keys]}},
    ]


def _config(request: PodRequest, settings: Settings) -> str:
    """The executor's configuration. The executor adds the pod's UID itself."""
    wanted, claimed = request.wanted, request.state is PodState.CLAIMED
    places = delivery.places(wanted, settings)
    config: dict[str, Any] = {
        "sandbox_id": request.name,
        # The volume has two folders: the workspace of user code, seen as /workspace, and the state of the executor.
        "workspace": f"{places.volume}/workspace",
        "state_dir": f"{places.volume}/state",
        "private_dir": places.private,
        "keys_file": f"{places.keys}/{KEYS_FILE}",
        "listen": f"0.0.0.0:{settings.executor_port}",
        "network": "pod",
        "isolation": "namespace",
        # Executors of older images do not know the last one, which the container has.
        "limits": {name: value for name, value in in_numbers(wanted.limits).items() if value or name != "cpus"},
        "lease": request.lease if claimed else None,
        "idle_timeout": wanted.idle_timeout if claimed else None,
        "envs": dict(wanted.envs),
        **for_executor(wanted),
    }
    if delivery.is_beside(wanted, settings):
        config["rootfs"] = {"path": "/"}
    if wanted.contract is not Contract.AUTONOMOUS:
        # Executors of older images do not know it, and refuse to start.
        config["contract"] = wanted.contract.value
    if settings.egress.address and wanted.egress.by_name:
        # As above. Which hosts are listed is asked of the fleet, so that lists change while pods live.
        config |= {"egress_address": settings.egress.address, "egress_pod": f"{request.namespace}/{request.name}"}
        stand_ins = placeholders(f"{request.namespace}/{wanted.template}", wanted.egress)
        config["envs"] = {**stand_ins, **config["envs"]}
    return json.dumps(config, sort_keys=True)


def literal(text: str) -> str:
    """Escapes the text for a variable: the kubelet would replace `$(NAME)` by another variable's value."""
    return text.replace("$", "$$")


def _amounts(resources: Resources) -> dict[str, str]:
    return {
        "cpu": cores_text(resources.cpu),
        "memory": bytes_text(resources.memory),
        "ephemeral-storage": bytes_text(resources.ephemeral_storage),
    }


def trusting(pod: Mapping[str, Any], authority: str) -> dict[str, Any]:
    """The same pod, whose executor takes only keys that this authority has signed; without one it does not start.

    The key is no part of the hash that tells pods apart: executors that know the variable come with a new image.
    """
    if not authority:
        return dict(pod)
    executor, *others = pod["spec"]["containers"]
    executor = {**executor, "env": [*executor["env"], {"name": AUTHORITY_VARIABLE, "value": authority}]}
    return {**pod, "spec": {**pod["spec"], "containers": [executor, *others]}}


def keys_config_map(namespace: str, public_keys: str) -> dict[str, Any]:
    """The keys that executors check tokens with; in each namespace with sandboxes. `public_keys` is a JWKS."""
    labels = {names.MANAGED_BY: names.PRODUCT}
    metadata = {"namespace": namespace, "name": names.KEYS_CONFIG_MAP, "labels": labels}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {KEYS_FILE: public_keys}}


def kept_keys(config_map: Mapping[str, Any]) -> dict[str, Any] | None:
    """What to remember of the ConfigMap with the keys. None: it is another's, as if it did not exist."""
    meta = config_map["metadata"]
    if (meta.get("labels") or {}).get(names.MANAGED_BY) != names.PRODUCT:
        return None
    identity = {name: meta[name] for name in ("namespace", "name", "uid", "resourceVersion", "labels")}
    keys = (config_map.get("data") or {}).get(KEYS_FILE)
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": identity, "data": {KEYS_FILE: keys}}


def has_keys(config_map: Mapping[str, Any], public_keys: str) -> bool:
    """Whether executors find these keys in it, and others see whose it is."""
    there = kept_keys(config_map)
    return there is not None and there["data"][KEYS_FILE] == public_keys

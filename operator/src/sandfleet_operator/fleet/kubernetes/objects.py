"""The objects that the fleet makes: pods that wait for a claim, and the volumes of their workspaces."""

import secrets
from collections.abc import Mapping
from typing import Any

from sandfleet_operator.api.settings import Settings
from sandfleet_operator.api.values import Claim
from sandfleet_operator.fleet.kubernetes.catalog import COLD, Recipe, pool_name
from sandfleet_operator.plan import names
from sandfleet_operator.plan.claims import Json, object_name
from sandfleet_operator.plan.podspec import PodRequest, PodState, sandbox_pod
from sandfleet_operator.plan.sandbox.observed import Pod
from sandfleet_operator.plan.sandbox.parts import annotated
from sandfleet_operator.plan.volume import workspace_claim

# Of the names of pods.
ALPHABET = "abcdefghijklmnopqrstuvwxyz0123456789"
SUFFIX = 8


def new_name(pool: str) -> str:
    """What the engine calls a new pod of the pool."""
    namespace, _, name = pool.partition("/")
    suffix = "".join(secrets.choice(ALPHABET) for _ in range(SUFFIX))
    return f"{namespace}/{names.pod_name(name.removeprefix(COLD), suffix)}"


def key_of(obj: Mapping[str, Any]) -> str:
    """NAMESPACE/NAME: what the engine calls a pod."""
    return f"{obj['metadata']['namespace']}/{obj['metadata']['name']}"


def pool_of(namespace: str, pod: Pod) -> str:
    """What the engine calls the pool that a pod is of."""
    return pool_name(namespace, pod.labels.get(names.POOL, ""), pod.labels.get(names.TEMPLATE, ""))


def object_of(claim: Claim) -> str:
    """Name of the CodeSandbox of a claim."""
    return claim.name or object_name(claim.key)


def warm_pod(recipe: Recipe, name: str, workspace: str, settings: Settings, *, user_namespace: bool) -> Json:
    """A pod that waits for a claim. `workspace` is the claim of an older volume; empty: its own one, made behind it."""
    assert recipe.wanted is not None
    assert recipe.owner is not None
    request = PodRequest(
        namespace=recipe.namespace,
        name=name,
        wanted=recipe.wanted,
        state=PodState.WARM,
        pool=recipe.pool,
        workspace=workspace,
        user_namespace=user_namespace,
    )
    pod = sandbox_pod(request, settings)
    pod["metadata"]["ownerReferences"] = [names.owned_by(recipe.owner_kind, recipe.owner)]
    return pod


def warm_volume(recipe: Recipe, pod: str, pod_uid: str) -> Json:
    """The claim of its workspace. It goes with the pod, until a CodeSandbox owns it."""
    assert recipe.wanted is not None
    manifest = annotated(workspace_claim(recipe.namespace, pod, recipe.wanted, owner=None), recipe.wanted.retention)
    owner = {"apiVersion": "v1", "kind": "Pod", "name": pod, "uid": pod_uid}
    return {**manifest, "metadata": {**manifest["metadata"], "ownerReferences": [owner]}}

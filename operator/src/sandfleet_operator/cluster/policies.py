"""Whether the API server refuses to others what this process relies on."""

import asyncio
import logging
from collections.abc import Iterable

from sandfleet_operator.api.kube import Json, Kind, NotFound, Ref
from sandfleet_operator.cluster.kube_api import KubeApi

POLICY = Kind(
    "admissionregistration.k8s.io",
    "v1",
    "validatingadmissionpolicies",
    "ValidatingAdmissionPolicy",
    namespaced=False,
)
BINDING = Kind(
    "admissionregistration.k8s.io",
    "v1",
    "validatingadmissionpolicybindings",
    "ValidatingAdmissionPolicyBinding",
    namespaced=False,
)
# Seconds: an installation may make its policies a moment after its processes.
PATIENCE, PAUSE = 20.0, 1.0

_LOG = logging.getLogger(__name__)


class UnguardedError(RuntimeError):
    """Others may write what this process would believe."""


async def check_policies(kube: KubeApi, names: Iterable[str]) -> None:
    """Whether each policy is in force, by a binding of the same name. Raises UnguardedError and KubeError."""
    give_up = asyncio.get_running_loop().time() + PATIENCE
    for name in names:
        while why := await _lacks(kube, name):
            if asyncio.get_running_loop().time() > give_up:
                raise UnguardedError(why)
            _LOG.info("waiting: %s", why)
            await asyncio.sleep(PAUSE)


async def _lacks(kube: KubeApi, name: str) -> str:
    """What is missing; empty: nothing."""
    policy, binding = await _found(kube, POLICY, name), await _found(kube, BINDING, name)
    if policy is None or binding is None:
        return f"{POLICY.kind if policy is None else BINDING.kind} {name} is missing, without which others forge pods"
    # The API server's own default.
    if policy.get("failurePolicy", "Fail") != "Fail":
        return f"{POLICY.kind} {name} lets writes pass that it cannot judge"
    if binding.get("policyName") != name or "Deny" not in binding.get("validationActions", ()):
        return f"{BINDING.kind} {name} denies nothing"
    return ""


async def _found(kube: KubeApi, kind: Kind, name: str) -> Json | None:
    try:
        found = await kube.get(Ref(kind, "", name))
    except NotFound:
        return None
    spec: Json = found.get("spec") or {}
    return None if "deletionTimestamp" in found["metadata"] else spec

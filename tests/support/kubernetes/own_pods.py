"""Pods that the control plane's accounts may not make, whatever RBAC gives them: parts of a spec, or other labels."""

from typing import Any

RUNTIME = "gvisor"
ATTACKS: dict[str, dict[str, Any]] = {
    "without a runtime": {"runtimeClassName": None},
    "its node's network": {"hostNetwork": True},
    "its node's processes": {"hostPID": True},
    "its node's memory": {"hostIPC": True},
    "its node's files": {"volumes": [{"name": "host", "hostPath": {"path": "/"}}]},
    "privileged": {"containers": [{"securityContext": {"privileged": True}}]},
    "privileged at first": {"initContainers": [{"name": "first", "securityContext": {"privileged": True}}]},
    "a token": {"automountServiceAccountToken": True},
    "a token as a volume": {
        "volumes": [{"name": "token", "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}}]
    },
}


def pod(namespace: str, labels: dict[str, str], **spec: Any) -> dict[str, Any]:
    """A sandbox's pod with these parts instead of its own."""
    container = {"name": "executor", "image": "none.invalid/none"}
    whole = {"containers": [{}], "runtimeClassName": RUNTIME, "automountServiceAccountToken": False, **spec}
    for kind in ("containers", "initContainers"):
        whole[kind] = [container | one for one in whole.get(kind, ())]
    kept = {name: value for name, value in whole.items() if value not in (None, [])}
    metadata = {"namespace": namespace, "name": "one", "labels": labels}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": kept}

"""The volume claim of a sandbox's workspace."""

from collections.abc import Mapping
from typing import Any

from sandfleet_operator.api.kinds.meta import Meta
from sandfleet_operator.api.kinds.template import Retention
from sandfleet_operator.api.quantities import bytes_text
from sandfleet_operator.plan.pods import names
from sandfleet_operator.plan.pods.merge import Effective

READ_WRITE_ONCE = "ReadWriteOnce"
READ_WRITE_ONCE_POD = "ReadWriteOncePod"


def workspace_claim(
    namespace: str, sandbox: str, wanted: Effective, *, owner: Meta | None, access_mode: str = READ_WRITE_ONCE
) -> dict[str, Any]:
    """The PersistentVolumeClaim of a sandbox. It is deleted with its CodeSandbox unless the retention is Retain.

    `owner` is the CodeSandbox, None while there is none. ReadWriteOncePod keeps a second pod out even on the same node,
    but not every CSI driver supports it.
    """
    name = names.workspace_claim_name(sandbox)
    metadata: dict[str, Any] = {
        "namespace": namespace,
        "name": name,
        "labels": names.own_labels(**{names.SANDBOX: sandbox}),
    }
    if owner is not None and wanted.retention is Retention.DELETE:
        metadata["ownerReferences"] = [names.owned_by("CodeSandbox", owner)]
    spec: dict[str, Any] = {
        "accessModes": [access_mode],
        "resources": {"requests": {"storage": bytes_text(wanted.workspace.size)}},
    }
    if wanted.workspace.storage_class is not None:
        spec["storageClassName"] = wanted.workspace.storage_class
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec}


def kept_patch(found: Mapping[str, Any], owner: Meta, retention: Retention) -> list[dict[str, Any]]:
    """A patch that gives a found volume claim to a CodeSandbox, with this retention."""
    metadata = found["metadata"]
    owned = retention is Retention.DELETE
    annotations = {**(metadata.get("annotations") or {}), names.RETENTION: retention.value}
    labels = {**(metadata.get("labels") or {}), **names.own_labels(**{names.SANDBOX: owner.name})}
    return [
        {"op": "test", "path": "/metadata/uid", "value": metadata["uid"]},
        # Another owner that came since keeps it.
        {"op": "test", "path": "/metadata/resourceVersion", "value": metadata["resourceVersion"]},
        {
            "op": "add",
            "path": "/metadata/ownerReferences",
            "value": [names.owned_by("CodeSandbox", owner)] if owned else [],
        },
        {"op": "add", "path": "/metadata/annotations", "value": annotations},
        {"op": "add", "path": "/metadata/labels", "value": labels},
    ]

"""A template's spec as sandboxes were made from it: a ControllerRevision whose name follows from its content.

So a spec that another user has changed is recognized, and all sandboxes of one version of a template share one object.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

from sandfleet_operator.api.errors import FleetError
from sandfleet_operator.api.kinds.template import TemplateSpec, sandbox_template
from sandfleet_operator.plan.pods import names

Json = dict[str, Any]
NAME = re.compile(r"sandfleet-[a-z0-9-]{1,200}")
# Characters of the template's name and of the hash.
HEAD, DIGEST = 40, 32


def revision_name(template: str, spec: Mapping[str, Any]) -> str:
    said = json.dumps({"template": template, "spec": spec}, sort_keys=True, separators=(",", ":"))
    return f"sandfleet-{template[:HEAD].rstrip('-')}-{hashlib.sha256(said.encode()).hexdigest()[:DIGEST]}"


def revision_of(template: Mapping[str, Any]) -> Json:
    """The manifest for a SandboxTemplate as the API server has it."""
    meta, spec = template["metadata"], template["spec"]
    metadata = {
        "namespace": meta["namespace"],
        "name": revision_name(meta["name"], spec),
        "labels": names.own_labels(**{names.TEMPLATE: names.bounded(meta["name"])}),
    }
    data = {"template": meta["name"], "spec": spec}
    return {"apiVersion": "apps/v1", "kind": "ControllerRevision", "metadata": metadata, "data": data, "revision": 1}


def is_genuine(obj: Mapping[str, Any]) -> bool:
    """Whether its content is the one that its name says."""
    data = obj.get("data")
    if (
        not isinstance(data, dict)
        or not isinstance(data.get("template"), str)
        or not isinstance(data.get("spec"), dict)
    ):
        return False
    return bool(revision_name(data["template"], data["spec"]) == obj["metadata"]["name"])


def kept_spec(obj: Mapping[str, Any], template: str) -> TemplateSpec | None:
    """What it keeps of this template; None if it is not genuine, of another template, or cannot be read."""
    if not is_genuine(obj) or obj["data"]["template"] != template:
        return None
    try:
        return sandbox_template({"metadata": {"name": template}, "spec": obj["data"]["spec"]}).spec
    except FleetError:
        return None


def named_revision(value: object) -> str:
    """The name of a revision, as an annotation or a status has it; empty for anything else."""
    return value if isinstance(value, str) and NAME.fullmatch(value) else ""

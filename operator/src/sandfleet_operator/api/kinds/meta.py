"""What every kind has: its metadata and its conditions."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

from sandfleet_operator.api.errors import FleetError
from sandfleet_operator.api.kept import Kept
from sandfleet_operator.api.table import as_type, at, decode, moment

GROUP = "sandfleet.io"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"


def _is_there(_value: object, _path: str) -> bool:
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Meta:
    """Metadata of any object."""

    namespace: Annotated[str, at("namespace")] = ""
    name: Annotated[str, at("name", required=True)]
    uid: Annotated[str, at("uid")] = ""
    generation: Annotated[int, at("generation")] = 0
    resource_version: Annotated[str, at("resourceVersion")] = ""
    labels: Annotated[Mapping[str, str], at("labels")] = field(default_factory=dict)
    annotations: Annotated[Mapping[str, str], at("annotations")] = field(default_factory=dict)
    # Seconds since the epoch.
    created: Annotated[float, at("creationTimestamp", moment)] = 0.0
    deleting: Annotated[bool, at("deletionTimestamp", _is_there)] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    type: Annotated[str, at("type", required=True)]
    # "True", "False" or "Unknown".
    status: Annotated[str, at("status", required=True)]
    reason: Annotated[str, at("reason")] = ""
    message: Annotated[str, at("message")] = ""
    # Seconds since the epoch.
    changed: Annotated[float, at("lastTransitionTime", moment)] = 0.0
    observed_generation: Annotated[int, at("observedGeneration")] = 0


def part(value: object, name: str) -> object:
    """The object's `metadata`, `spec` or `status`; an empty object if it is absent."""
    inner = (value if isinstance(value, Kept) else as_type(value, dict, "")).get(name)
    return {} if inner is None else inner


def meta_of(value: object) -> Meta:
    return decode(Meta, part(value, "metadata"), "metadata")


def referred(value: object, field: str) -> str:
    """The name in the reference `field` of the object's spec, or empty. Only this field has to be readable."""
    try:
        reference = as_type(part(value, "spec"), dict, "spec").get(field) or {}
        return as_type(as_type(reference, dict, field).get("name", ""), str, field)
    except FleetError:
        return ""

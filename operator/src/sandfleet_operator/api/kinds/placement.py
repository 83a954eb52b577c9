"""Where a template's pods go: the fields of a pod's affinity and spread that a template has, as Kubernetes names them.

The list is closed: no field reaches a pod that has no attribute here. Selectors of other namespaces have none.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Annotated

from sandfleet_operator.api.table import at

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


class Operator(Enum):
    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"
    # Of nodes alone: both sides are whole numbers.
    GREATER = "Gt"
    LESS = "Lt"


class Unsatisfiable(Enum):
    """What the scheduler does with a pod that would break the constraint."""

    DO_NOT_SCHEDULE = "DoNotSchedule"
    SCHEDULE_ANYWAY = "ScheduleAnyway"


class NodePolicy(Enum):
    HONOR = "Honor"
    IGNORE = "Ignore"


@dataclass(frozen=True, slots=True)
class Expression:
    key: Annotated[str, at("key", required=True)]
    operator: Annotated[Operator, at("operator", required=True)]
    values: Annotated[tuple[str, ...], at("values", empty="left out")] = ()


@dataclass(frozen=True, slots=True)
class NodeTerm:
    """A node matches if all expressions hold."""

    expressions: Annotated[tuple[Expression, ...], at("matchExpressions")] = ()


@dataclass(frozen=True, slots=True)
class NodeTerms:
    """A node matches if one of the terms does."""

    terms: Annotated[tuple[NodeTerm, ...], at("nodeSelectorTerms")] = ()


@dataclass(frozen=True, slots=True)
class PreferredNodes:
    weight: Annotated[int, at("weight", required=True)]
    preference: Annotated[NodeTerm, at("preference")] = NodeTerm()


@dataclass(frozen=True, slots=True)
class NodeAffinity:
    required: Annotated[NodeTerms | None, at(REQUIRED, empty="left out")] = None
    preferred: Annotated[tuple[PreferredNodes, ...], at(PREFERRED, empty="left out")] = ()


@dataclass(frozen=True, slots=True)
class LabelSelector:
    labels: Annotated[Mapping[str, str], at("matchLabels")] = field(default_factory=dict)
    expressions: Annotated[tuple[Expression, ...], at("matchExpressions", empty="left out")] = ()


@dataclass(frozen=True, slots=True)
class PodTerm:
    """Pods of the sandbox's namespace. No selector: the sandboxes of the same template."""

    topology_key: Annotated[str, at("topologyKey", required=True)]
    selector: Annotated[LabelSelector | None, at("labelSelector", empty="left out")] = None


@dataclass(frozen=True, slots=True)
class PreferredPods:
    weight: Annotated[int, at("weight", required=True)]
    term: Annotated[PodTerm, at("podAffinityTerm")]


@dataclass(frozen=True, slots=True)
class PodAffinity:
    required: Annotated[tuple[PodTerm, ...], at(REQUIRED, empty="left out")] = ()
    preferred: Annotated[tuple[PreferredPods, ...], at(PREFERRED, empty="left out")] = ()


@dataclass(frozen=True, slots=True)
class Affinity:
    nodes: Annotated[NodeAffinity | None, at("nodeAffinity", empty="left out")] = None
    pods: Annotated[PodAffinity | None, at("podAffinity", empty="left out")] = None
    anti_pods: Annotated[PodAffinity | None, at("podAntiAffinity", empty="left out")] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """How evenly the sandboxes of the template lie over the values of a node label."""

    max_skew: Annotated[int, at("maxSkew", required=True)]
    topology_key: Annotated[str, at("topologyKey", required=True)]
    unsatisfiable: Annotated[Unsatisfiable, at("whenUnsatisfiable", required=True)]
    min_domains: Annotated[int | None, at("minDomains", empty="left out")] = None
    node_affinity_policy: Annotated[NodePolicy | None, at("nodeAffinityPolicy", empty="left out")] = None
    node_taints_policy: Annotated[NodePolicy | None, at("nodeTaintsPolicy", empty="left out")] = None

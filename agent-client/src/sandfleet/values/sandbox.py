"""Sandboxes: what one is, its isolation, its limits and its egress."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime
from enum import StrEnum

from sandfleet.values import _show
from sandfleet.values.environment import Installation, PreloadedModule

# The reason of egress while the fleet is still probing.
_ASKING = "Asking"


class EgressState(StrEnum):
    """Whether a sandbox reaches what its template allows it to reach."""

    UNKNOWN = "unknown"
    # The sandbox reaches nothing, as its template says.
    DENIED = "denied"
    # The cluster's network has not yet applied the policy: the sandbox reaches nothing.
    OPENING = "opening"
    # A probe has reached an allowed address.
    OPEN = "open"


@dataclass(frozen=True, slots=True)
class EgressInfo:
    """What the fleet knows of a sandbox's egress.

    reason   one word. DENIED: NothingAllowed, NoNetwork (on one machine). OPENING: Asking; NotProbeable and NoAnswer,
             which last until the executor or the template changes. OPEN: Answered, ByName. UNKNOWN: MachinesNetwork, or
             "" when the fleet does not probe.
    message  one sentence for people.
    since    when the fleet found the state; None before its first probe.
    """

    state: EgressState = EgressState.UNKNOWN
    reason: str = ""
    message: str = ""
    since: datetime | None = None

    @property
    def is_settled(self) -> bool:
        """Whether the state is final: waiting will not change it."""
        return self.reason not in ("", _ASKING)


class Isolation(StrEnum):
    """What keeps user code in, from the weakest to the strongest."""

    UNKNOWN = "unknown"
    NONE = "none"
    NAMESPACE = "namespace"
    GVISOR = "gvisor"


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a sandbox, in bytes, counts and seconds. 0 means: as the template says. They can only be lowered."""

    memory_bytes: int = 0
    tmp_bytes: int = 0
    processes: int = 0
    output_bytes: int = 0
    executions: int = 0
    # Of a sandbox 0 means that there is no longest deadline; in a claim it means the template's.
    max_timeout: float = 0.0
    default_timeout: float = 0.0
    open_files: int = 0
    disk_bytes: int = 0
    # Processors that all code together may keep busy. Of a sandbox 0 means that there is no quota.
    cpus: float = 0.0

    def __repr__(self) -> str:
        """Say those that are set in plain words, as "memory 4 GiB"."""
        given = {each.name: getattr(self, each.name) for each in fields(self)}
        said = (
            f"{name.removesuffix('_bytes').replace('_', ' ')} {_show.size(value) if name.endswith('_bytes') else f'{value:g}'}"
            for name, value in given.items()
            if value and isinstance(value, (int, float))
        )
        return _show.short("Limits", *said)


@dataclass(frozen=True, slots=True)
class SandboxInfo:
    """What a sandbox is. The fields from `separations` on are known after `get_info()`, not in a list."""

    sandbox_id: str
    sandbox_uid: str = ""
    template: str = ""
    state: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    workspace_id: str = ""
    created: datetime | None = None
    lease_expires: datetime | None = None
    # When a suspended session ends, unless it is resumed.
    suspended_until: datetime | None = None
    isolation: Isolation = Isolation.UNKNOWN
    restarts: int = 0
    last_restart_reason: str = ""
    pool: str = ""
    # "autonomous", "brokered" or "reviewed"; "" where the fleet does not say.
    contract: str = ""
    egress: EgressInfo = field(default_factory=EgressInfo)
    separations: tuple[str, ...] = ()
    kernel: str = ""
    languages: tuple[str, ...] = ()
    python_version: str = ""
    executor_version: str = ""
    limits: Limits = field(default_factory=Limits)
    packages: Installation | None = None
    # Path → folder below the workspace; "." is all of it.
    mounts: Mapping[str, str] = field(default_factory=dict)
    # Modules that are in the memory of each context from its start.
    preload: tuple[PreloadedModule, ...] = ()

    def __repr__(self) -> str:
        isolation = f"isolation {self.isolation}" if self.isolation else ""
        return _show.short("SandboxInfo", self.sandbox_id, self.state, self.template, isolation)

"""What is asked of a fleet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sandfleet import _api as api
from sandfleet import _convert as convert
from sandfleet.values import Isolation, Limits


@dataclass(frozen=True, slots=True)
class Claim:
    """What is asked for."""

    request_id: str
    template: str
    lease: float
    idle_timeout: float | None
    envs: Mapping[str, str]
    labels: Mapping[str, str]
    limits: Limits
    isolation: Isolation
    workspace_id: str
    keep_workspace: bool
    max_wait: float

    def message(self) -> api.fleet.ClaimRequest:
        """Write it. Raises InvalidArgument."""
        return api.fleet.ClaimRequest(
            request_id=self.request_id,
            template=self.template,
            labels=self.labels,
            envs=self.envs,
            lease=convert.seconds(self.lease),
            idle_timeout=convert.seconds(self.idle_timeout),
            workspace_id=self.workspace_id,
            keep_workspace=self.keep_workspace,
            max_wait=convert.seconds(self.max_wait),
            limits=convert.limits_message(self.limits),
            min_isolation=convert.isolation_number(self.isolation),
        )

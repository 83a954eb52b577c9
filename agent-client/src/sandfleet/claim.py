"""What is asked of a fleet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sandfleet import _api as api
from sandfleet import _convert as convert
from sandfleet.fleet_values import Egress
from sandfleet.values import Isolation, Limits

DEFAULT_TEMPLATE = "python"


@dataclass(frozen=True, slots=True)
class Claim:
    """What is asked for. `template` and `pool` empty: the template "python"; `namespace` empty: where the fleet's is."""

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
    namespace: str = ""
    pool: str = ""
    name: str = ""
    contract: str = ""
    egress: Egress | None = None

    def message(self, namespace: str = "") -> api.fleet.ClaimRequest:
        """Write it, for this namespace where it names none. Raises InvalidArgument."""
        return api.fleet.ClaimRequest(
            request_id=self.request_id,
            # A pool has its template.
            template=self.template or ("" if self.pool else DEFAULT_TEMPLATE),
            labels=self.labels,
            envs=self.envs,
            lease=convert.seconds(self.lease),
            idle_timeout=convert.seconds(self.idle_timeout),
            workspace_id=self.workspace_id,
            keep_workspace=self.keep_workspace,
            max_wait=convert.seconds(self.max_wait),
            limits=convert.limits_message(self.limits),
            min_isolation=convert.isolation_number(self.isolation),
            namespace=self.namespace or namespace,
            pool=self.pool,
            name=self.name,
            contract=self.contract,
            egress=convert.egress_number(self.egress),
        )

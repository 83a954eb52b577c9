"""The part of a fleet that knows what its sandboxes reach by name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sandfleet._arguments import checked
from sandfleet._fleets.package_hosts import resolved
from sandfleet._wire import api
from sandfleet._wire.convert import egress as convert
from sandfleet.observe import tracing
from sandfleet.values.egress import Egress

if TYPE_CHECKING:
    from sandfleet._fleets.connection import FleetConnection
    from sandfleet.values.egress import EgressReport

_RPC_TIMEOUT = 30.0


class KnowsEgress:
    """The part of a fleet that knows what its sandboxes reach by name."""

    _connection: FleetConnection

    @checked
    async def get_egress(self, sandbox_id: str) -> EgressReport:
        """Return what a sandbox may reach by name, and what its programs have tried. Raises SandboxEnded."""
        request = api.egress.GetEgressRequest(sandbox_id=sandbox_id)
        return convert.report(await self._egress_call("GetEgress", request))

    @checked
    async def set_egress(self, sandbox_id: str, egress: Egress | Sequence[str]) -> None:
        """Replace what a sandbox may reach, as `Sandbox.set_egress` does, by its id."""
        if isinstance(egress, Egress):
            egress = await resolved(egress)
        await self._egress_call(
            "SetEgress", api.egress.SetEgressRequest(sandbox_id=sandbox_id, names=convert.names(egress))
        )

    async def _egress_call(self, name: str, request: api.message.Message) -> Any:
        stub: Any = api.egress_grpc.EgressServiceStub(self._connection.channel)
        with tracing.call(*tracing.rpc(request.DESCRIPTOR)):
            try:
                return await self._connection.call(
                    lambda _, metadata: getattr(stub, name)(request, metadata=metadata, timeout=_RPC_TIMEOUT), 0.0
                )
            except api.aio.AioRpcError as error:
                raise self._connection.error_of(error, request) from error

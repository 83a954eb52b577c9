"""The part of a fleet that suspends sessions and takes them on."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Literal

from sandfleet._arguments import checked
from sandfleet._fleets import claim
from sandfleet._fleets.snapshots import TRANSFER_TIMEOUT
from sandfleet._wire import api
from sandfleet._wire.convert import common as convert
from sandfleet._wire.convert import suspension as suspensions
from sandfleet.errors import SandboxEnded, SandboxPreempted, SandboxSuspended
from sandfleet.observe import tracing
from sandfleet.values.options import DEFAULT_MAX_WAIT

if TYPE_CHECKING:
    from sandfleet._fleets.connection import FleetConnection
    from sandfleet._wire.link import Link
    from sandfleet.values.fleet import Bound, OnQueued
    from sandfleet.values.suspension import Resumption, Suspension

# Variables are saved before the answer.
_SUSPEND_TIMEOUT = 120.0


class SuspendsSessions:
    """The part of a fleet that suspends sessions and takes them on."""

    _connection: FleetConnection
    _call: Callable[[str, api.message.Message, float], Awaitable[Any]]
    _link: Callable[[api.fleet.Bound, float], Awaitable[Link]]
    access: Callable[..., Awaitable[tuple[api.fleet.Sandbox, api.fleet.Access]]]

    @checked
    async def suspend(
        self,
        sandbox_id: str,
        *,
        force: bool = False,
        timeout: float | None = None,
        to: Literal["volume", "snapshot"] = "volume",
    ) -> Suspension:
        """Suspend a session by its id, as `Sandbox.suspend` does."""
        request = suspensions.suspend_request(sandbox_id, force=force, timeout=timeout, to=to)
        wait = _SUSPEND_TIMEOUT if to == "volume" else TRANSFER_TIMEOUT
        return suspensions.suspension(await self._call("Suspend", request, wait))

    async def open_resumed(
        self, sandbox_id: str, *, max_wait: float, rpc_timeout: float, on_queued: OnQueued | None = None
    ) -> tuple[Link, Bound, Resumption]:
        """Take a suspended session on, and open it. Raises SandboxEnded, ClaimError, UnavailableError."""
        request = api.fleet.ResumeRequest(sandbox_id=sandbox_id, max_wait=convert.seconds(max_wait))
        with tracing.call(*tracing.rpc(request.DESCRIPTOR)):
            answer = await claim.resume(self._connection, request, on_queued)
        link = await self._link(answer.bound, rpc_timeout)
        return link, convert.bound(answer.bound), suspensions.resumption(answer)

    async def wake(self, sandbox_id: str, *, wait: float) -> tuple[api.fleet.Sandbox, api.fleet.Access]:
        """Open a sandbox as `access` does; one that sleeps is resumed. Raises SandboxEnded, ClaimError, too."""
        try:
            return await self.access(sandbox_id, wait=wait)
        except SandboxPreempted:
            raise
        except (SandboxSuspended, SandboxEnded) as error:
            request = api.fleet.ResumeRequest(sandbox_id=sandbox_id, max_wait=convert.seconds(DEFAULT_MAX_WAIT))
            try:
                bound = (await claim.resume(self._connection, request, None)).bound
            except SandboxEnded:
                raise error from None
            return bound.sandbox, bound.access

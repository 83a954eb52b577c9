"""The part of a sandbox that reaches hosts."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from sandfleet._arguments import checked
from sandfleet.values.sandbox import EgressState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sandfleet._wire.link import Link
    from sandfleet.values.egress import Egress, EgressReport


class HasEgress:
    """The part of a sandbox that reaches hosts."""

    _link: Link

    @checked
    async def get_egress(self) -> EgressReport:
        """Return what the sandbox may reach by name, has reached and was refused. Raises SandboxEnded, NotSupported."""
        fleet: Any = self._link.fleet
        report: EgressReport = await fleet.get_egress(self._link.sandbox_id)
        return report

    @checked
    async def set_egress(self, egress: Egress | Sequence[str]) -> None:
        """Replace the hosts that the sandbox may reach by name; connections to others end at once.

        Raises InvalidArgument, SandboxEnded, PreconditionFailed (NoEgress: it was created without such a list).
        """
        fleet: Any = self._link.fleet
        await fleet.set_egress(self._link.sandbox_id, egress)

    @checked
    async def wait_for_egress(self, timeout: float = 30.0) -> bool:
        """Wait at most `timeout` seconds until the sandbox reaches what its template allows; return whether it does.

        False sooner when waiting does not help: nothing is allowed, nothing can be probed, or nothing answers
        (`get_info().egress` says which), and on one machine without `egress`. Raises SandboxEnded.
        """
        # An import of the client stays cheap.
        from sandfleet._wire.retry import Backoff

        asked, backoff = 0, Backoff(0.05, 1.0, chance=None)
        try:
            async with asyncio.timeout(timeout) as limit:
                while not (egress := (await self._link.known()).egress).is_settled:
                    asked += 1
                    await asyncio.sleep(backoff.after(asked))
        except TimeoutError:
            if not limit.expired():
                raise
            return False
        return egress.state is EgressState.OPEN

"""Calls of a sandbox that its class has as well, with an id: they need no object of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from sandfleet._arguments import checked

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sandfleet._fleets.fleet import AsyncFleet
    from sandfleet.values.sandbox import SandboxInfo
    from sandfleet.values.suspension import Snapshot, Suspension


@checked
async def kill_by_id(sandbox_id: str, *, fleet: AsyncFleet | None = None) -> bool:
    """End the sandbox of this id with everything in it, wherever `connect` finds it. Returns whether it existed."""
    from sandfleet._fleets.discovery import kill_sandbox

    return await kill_sandbox(sandbox_id, fleet=fleet)


@checked
async def suspend_by_id(
    sandbox_id: str,
    *,
    force: bool = False,
    timeout: float | None = None,
    to: Literal["volume", "snapshot"] = "volume",
    fleet: AsyncFleet | None = None,
) -> Suspension:
    """Suspend the session of this id, wherever `connect` finds it. Raises SandboxEnded, PreconditionFailed."""
    fleet = fleet or await _fleet_of(sandbox_id)
    return await fleet.suspend(sandbox_id, force=force, timeout=timeout, to=to)


@checked
async def get_info_by_id(sandbox_id: str, *, fleet: AsyncFleet | None = None) -> SandboxInfo:
    """Describe the sandbox of this id; without its executor's part if that is not ready. Raises SandboxEnded."""
    from sandfleet._fleets.discovery import describe_sandbox

    return await describe_sandbox(sandbox_id, fleet=fleet)


@checked
async def set_timeout_by_id(sandbox_id: str, timeout: float, *, fleet: AsyncFleet | None = None) -> SandboxInfo:
    """Renew the lease of the sandbox of this id: it ends so many seconds from now. Raises SandboxEnded."""
    from sandfleet._wire.convert import common

    fleet = fleet or await _fleet_of(sandbox_id)
    renewed, _ = await fleet.renew(sandbox_id, timeout)
    return common.sandbox(renewed)


@checked
async def snapshot_by_id(
    sandbox_id: str, name: str = "", *, labels: Mapping[str, str] | None = None, fleet: AsyncFleet | None = None
) -> Snapshot:
    """Save the sandbox of this id, as its own `snapshot` does. Raises SandboxEnded, PreconditionFailed."""
    from sandfleet._fleets.snapshots import within

    fleet = fleet or await _fleet_of(sandbox_id)
    snapshots = within(fleet.snapshots, sandbox_id.rpartition("/")[0])
    return await snapshots.get(
        await snapshots.take_snapshot(sandbox_id, name=name, labels=labels or {}, reason="manual")
    )


async def _fleet_of(sandbox_id: str) -> AsyncFleet:
    from sandfleet._fleets.discovery import find_fleet_of

    return await find_fleet_of(sandbox_id)

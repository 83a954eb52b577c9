"""`sandfleet doctor --cluster`: how this machine reaches a cluster's fleet and its sandboxes."""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Callable
from dataclasses import asdict

from sandfleet._fleets import cluster, port_forward
from sandfleet._fleets.fleet import AsyncFleet
from sandfleet.cli import OK, PLATFORM
from sandfleet.cli.checks import Check, show
from sandfleet.errors import SandfleetError

_PATIENCE = 10.0


def run(options: argparse.Namespace) -> int:
    """Run the checks and report; return 0 if all is well, else 3."""
    checks = asyncio.run(_all(options.namespace, options.sandbox))
    ok = all(check.ok for check in checks)
    if options.json:
        print(json.dumps({"ok": ok, "checks": [asdict(check) for check in checks]}))
    else:
        show(checks)
    return OK if ok else PLATFORM


# In their order.
_NAMES = ("fleet", "account", "gateway", "sandbox")


async def _all(namespace: str | None, sandbox_id: str | None) -> list[Check]:
    """Run the checks up to the first that fails: the next ones need its answer."""
    details: list[str] = []
    try:
        await _look(namespace, sandbox_id, details.append)
    except SandfleetError as error:
        failed = [Check(_NAMES[len(details)], ok=False, detail=error.message, needed=True)]
    else:
        failed = []
    return [
        Check(name, ok=True, detail=detail, needed=True) for name, detail in zip(_NAMES, details, strict=False)
    ] + failed


async def _look(namespace: str | None, sandbox_id: str | None, say: Callable[[str], None]) -> None:
    where = namespace or (sandbox_id or "").partition("/")[0]
    if not where:
        where = await asyncio.to_thread(cluster.sandbox_namespace)
    place = await asyncio.to_thread(cluster.find, where)
    say(_place(place))
    async with AsyncFleet(place.address, place, namespace=where) as fleet:
        say(f"may list the {len(await fleet.pools())} pools of namespace {where}")
        say(await _gateway(fleet, place))
        if sandbox_id is not None:
            say(await _way(fleet, sandbox_id))


async def _gateway(fleet: AsyncFleet, place: cluster.Place) -> str:
    if place.gateway is None:
        return "none is used: sandboxes are reached at their own addresses"
    await fleet.check_gateway()
    only = "" if place.forwarded else "; used for sandboxes whose own address does not answer"
    return f"answers by kubectl port-forward{only}"


def _place(place: cluster.Place) -> str:
    if not place.forwarded:
        return f"answers at {place.address}"
    target = port_forward.target_of(place.address)
    return f"answers by kubectl port-forward to {target}, at {place.address}"


async def _way(fleet: AsyncFleet, sandbox_id: str) -> str:
    """Open the sandbox, and say by which way. Raises SandfleetError."""
    from sandfleet._wire.link import Link

    sandbox, access = await fleet.access(sandbox_id, wait=_PATIENCE)
    link = Link(fleet, sandbox, access, rpc_timeout=_PATIENCE)
    try:
        await link.info()
        way = "through the gateway" if link.is_relayed else f"at {access.address}"
    finally:
        await link.close()
    return f"{sandbox_id} answers {way}"

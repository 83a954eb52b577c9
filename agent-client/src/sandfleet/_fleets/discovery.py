"""Find the fleet for a new sandbox, or of an existing one, when the caller names none."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from sandfleet._fleets import cluster, embedded
from sandfleet._fleets.fleet import AsyncFleet
from sandfleet._wire.link import Link
from sandfleet.errors import (
    PreconditionFailed,
    RpcTimeout,
    SandboxEnded,
    SandboxPreempted,
    SandboxSuspended,
    SandfleetError,
    UnavailableError,
)
from sandfleet.values.options import DEFAULT_MAX_WAIT
from sandfleet.values.sandbox import Isolation

if TYPE_CHECKING:
    from sandfleet.values.options import CreateOptions
    from sandfleet.values.sandbox import SandboxInfo
    from sandfleet.values.suspension import Resumption

# How long another process's fleet may take to answer while sandboxes are looked for, in seconds.
_LOOK_TIMEOUT = 3.0

# Weak, since an unused connection would make a fork fail.
_shared: WeakValueDictionary[tuple[asyncio.AbstractEventLoop, str], AsyncFleet] = WeakValueDictionary()


async def default_fleet(*, isolation: Isolation, pool: str = "", namespace: str | None = None) -> AsyncFleet:
    """Return the fleet for a new sandbox. The environment alone decides, by the first rule that holds:

    1. SANDFLEET_ADDRESS is set: the fleet at that address.
    2. SANDFLEET_FLEET is HOST:PORT: the fleet of a cluster at that address (with SANDFLEET_FLEET_CA and
       SANDFLEET_TOKEN_FILE); `kubernetes`: that of this pod's cluster, outside of a pod that of kubectl's current
       context;
       `embedded`: this process's own.
    3. A `pool` or a `namespace` is given, or SANDFLEET_SANDBOX_NAMESPACE or SANDFLEET_NAMESPACE is set: as
       `kubernetes`.
    4. This is a pod with the volume that clients of Sandfleet have (a token and the CA): that of its cluster.
    5. Else this process's own; it is started with `isolation`.

    A kubeconfig alone decides nothing: its cluster may lack Sandfleet, and asking it takes time.
    Raises UnavailableError, which says what to do.
    """
    if address := os.environ.get("SANDFLEET_ADDRESS"):
        return _at(address)
    if cluster.is_chosen(asked=bool(pool or namespace)):
        return await _of_cluster(namespace)
    return _at(await asyncio.to_thread(embedded.start_or_join, isolation))


async def fleet_of_claim(options: CreateOptions) -> AsyncFleet:
    """Return the `default_fleet` for a claim with these options. Other sandboxes share it: leave it open."""
    return await default_fleet(
        isolation=embedded.isolation_of_claim(options.get("isolation")),
        pool=options.get("pool", ""),
        namespace=options.get("namespace"),
    )


def is_named(*, pool: str = "", namespace: str | None = None) -> bool:
    """Return whether a new sandbox is of a fleet that the environment or the call names, not of this process's own."""
    return bool(os.environ.get("SANDFLEET_ADDRESS")) or cluster.is_chosen(asked=bool(pool or namespace))


async def find_sandbox(sandbox_id: str, *, fleet: AsyncFleet | None, rpc_timeout: float) -> Link:
    """Open a sandbox of the given fleet, or search the fleets for it. Raises SandboxEnded, PreconditionFailed."""
    fleet = fleet or await find_fleet_of(sandbox_id)
    return fleet.keeping_heads(Link(fleet, *await fleet.access(sandbox_id, wait=rpc_timeout), rpc_timeout=rpc_timeout))


async def find_fleet_of(sandbox_id: str) -> AsyncFleet:
    """Return the fleet of a sandbox; NAMESPACE/NAME is in a cluster, which is not asked. Raises SandboxEnded."""
    namespace, slash, _ = sandbox_id.partition("/")
    if slash:
        return await _of_cluster(namespace)
    # Where the only fleet that is asked does not answer, nothing is known.
    named = bool(os.environ.get("SANDFLEET_ADDRESS"))
    passed_over = (SandboxEnded,) if named else (SandboxEnded, UnavailableError, RpcTimeout)
    for address in await asyncio.to_thread(addresses):
        candidate = _at(address)
        with suppress(*passed_over):
            await candidate.get_within(sandbox_id, _LOOK_TIMEOUT)
            return candidate
    why = "no fleet has it"
    raise SandboxEnded(f"cannot connect to sandbox {sandbox_id!r}: {why}", reason="SandboxNotFound", subject=sandbox_id)


async def fleet_to_resume(sandbox_id: str) -> AsyncFleet:
    """Return the fleet of a sandbox, else the one that can take it on from a snapshot. Raises SandboxEnded."""
    try:
        return await find_fleet_of(sandbox_id)
    except SandboxEnded:
        if "/" in sandbox_id:
            raise
        return await default_fleet(isolation=embedded.default_isolation())


async def find_awake(
    sandbox_id: str, *, fleet: AsyncFleet | None, rpc_timeout: float
) -> tuple[Link, Resumption | None]:
    """Open a sandbox as `find_sandbox` does; one that sleeps is resumed, and it is returned what came back."""
    try:
        return await find_sandbox(sandbox_id, fleet=fleet, rpc_timeout=rpc_timeout), None
    except SandboxPreempted:
        raise
    except (SandboxSuspended, SandboxEnded) as error:
        if (fleet := fleet or await _fleet_of_sleeping(sandbox_id, error)) is None:
            raise
        try:
            link, _, resumption = await fleet.open_resumed(
                sandbox_id, max_wait=DEFAULT_MAX_WAIT, rpc_timeout=rpc_timeout
            )
        except SandboxEnded:
            # Nothing keeps it: what was found out first says more.
            raise error from None
        return link, resumption


async def _fleet_of_sleeping(sandbox_id: str, error: SandfleetError) -> AsyncFleet | None:
    """Return the fleet of a suspended session; of one that no fleet knows, the first that runs. None is started."""
    if isinstance(error, SandboxSuspended):
        return await find_fleet_of(sandbox_id)
    found = [] if "/" in sandbox_id else await asyncio.to_thread(addresses)
    return _at(found[0]) if found else None


async def kill_sandbox(sandbox_id: str, *, fleet: AsyncFleet | None) -> bool:
    """End a sandbox by its id; return whether it existed."""
    try:
        fleet = fleet or await find_fleet_of(sandbox_id)
    except SandboxEnded:
        return False
    return await fleet.release(sandbox_id)


async def describe_sandbox(sandbox_id: str, *, fleet: AsyncFleet | None) -> SandboxInfo:
    """Describe a sandbox by its id; only what the fleet knows if its executor is not ready. Raises SandboxEnded."""
    fleet = fleet or await find_fleet_of(sandbox_id)
    try:
        link = await find_sandbox(sandbox_id, fleet=fleet, rpc_timeout=_LOOK_TIMEOUT)
    except (PreconditionFailed, RpcTimeout):
        return await fleet.get(sandbox_id)
    try:
        return await link.info()
    except (UnavailableError, RpcTimeout):
        return await fleet.get(sandbox_id)
    finally:
        await link.close()


async def list_sandboxes(
    label_selector: str, *, namespace: str | None, fleet: AsyncFleet | None, warm: bool
) -> list[SandboxInfo]:
    """List the sandboxes of a fleet, else of the cluster that the environment names, else of all on this machine."""
    if fleet is None and not os.environ.get("SANDFLEET_ADDRESS") and cluster.is_chosen(asked=namespace is not None):
        fleet = await _of_cluster(namespace)
    elif fleet is None and (named := os.environ.get("SANDFLEET_ADDRESS")):
        fleet = _at(named)
    if fleet is not None:
        return await fleet.list(label_selector, namespace=namespace, warm=warm)
    found: list[SandboxInfo] = []
    for address in await asyncio.to_thread(addresses):
        with suppress(UnavailableError, RpcTimeout):
            found += await _at(address).list_within(label_selector, _LOOK_TIMEOUT, warm=warm)
    return found


def _at(address: str) -> AsyncFleet:
    """Return the connection to an address that all sandboxes of an event loop use."""
    key = (asyncio.get_running_loop(), address)
    if (fleet := _shared.get(key)) is None:
        fleet = _shared[key] = AsyncFleet(address)
    return fleet


async def _of_cluster(namespace: str | None) -> AsyncFleet:
    """Return the connection to the cluster that all sandboxes of a namespace and an event loop use."""
    key = (asyncio.get_running_loop(), f"{namespace or ''}@{cluster.environment()}")
    if (fleet := _shared.get(key)) is not None:
        return fleet
    found = await AsyncFleet.connect(cluster.KUBERNETES, namespace=namespace)
    # Another task may have found it meanwhile; an unused connection need not be closed.
    return _shared.setdefault(key, found)


def addresses() -> list[str]:
    """Return where to look for sandboxes: the named fleet, else this process's and then all others of this user."""
    if named := os.environ.get("SANDFLEET_ADDRESS"):
        return [named]
    own = embedded.running()
    return ([own] if own else []) + embedded.other_fleets()

"""The fleet's service as the client sees it, and how a fleet is found."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar
from weakref import WeakValueDictionary

from sandfleet import _api as api
from sandfleet import _late as late
from sandfleet.errors import ProtocolError, RpcTimeout, SandboxEnded, UnavailableError

if TYPE_CHECKING:
    from sandfleet.claim import Claim
    from sandfleet.cluster import Place
    from sandfleet.transport import Link, Metadata
    from sandfleet.values import Isolation, SandboxInfo

Answer = TypeVar("Answer")

# How long another process's fleet may take to answer while sandboxes are looked for, in seconds.
_LOOK_TIMEOUT = 3.0
# How much longer than its wait a claim may take.
_CLAIM_MARGIN = 30.0
_RPC_TIMEOUT = 30.0
_LIST_LIMIT = 100_000


class AsyncFleet:
    """A fleet: who hands out sandboxes. Most programs need only `AsyncSandbox.create`, which finds one by itself."""

    def __init__(self, address: str, place: Place | None = None) -> None:
        """Use `connect`."""
        self._address = address
        self._tokens = place.tokens if place else None
        self._channel = (
            late.transport.open_channel(address, ca=place.ca, name=place.name)
            if place
            else late.transport.open_channel(address)
        )
        self._stub: api.fleet_grpc.FleetServiceAsyncStub = api.fleet_grpc.FleetServiceStub(self._channel)

    @classmethod
    async def connect(
        cls,
        address: str | None = None,
        *,
        pool_size: int | None = None,
        max_sandboxes: int | None = None,
        isolation: Isolation | None = None,
        ca_file: str | None = None,
        token_file: str | None = None,
    ) -> Self:
        """Connect to a fleet: at `address`, else where SANDFLEET_ADDRESS says, else this process's own.

        With a `ca_file` and a `token_file` (of a Kubernetes token for the audience sandfleet) it is the fleet of a cluster,
        at "host:port".

        The process's own ("embedded") is started at its first use, one a process, and ends with it. How many sandboxes it
        keeps warm, how many there may be, and its isolation come from here, else from SANDFLEET_POOL_SIZE,
        SANDFLEET_MAX_SANDBOXES and SANDFLEET_ISOLATION, else from its defaults.

        Raises UnavailableError when it cannot be started, InvalidArgument when it runs already with other options.
        """
        found = address or os.environ.get("SANDFLEET_ADDRESS")
        if ca_file or token_file:
            place = late.cluster.named(found or "", ca_file or "", token_file or "")
            return cls(place.address, place)
        if not found:
            options = late.embedded.Options.of(pool_size, max_sandboxes, isolation)
            found = await late.asyncio.to_thread(late.embedded.start, options)
        return cls(found)

    @property
    def address(self) -> str:
        """Where it is: "unix:/path" or "host:port"."""
        return self._address

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connection. Sandboxes, and an embedded fleet, stay as they are."""
        await self._channel.close(None)

    async def list_within(self, label_selector: str, wait: float) -> list[SandboxInfo]:
        """List sandboxes; each page within `wait` seconds."""
        found: list[SandboxInfo] = []
        request = api.fleet.ListRequest(label_selector=label_selector, page_size=1000)
        while True:
            page = await self._call(self._stub.List, request, wait)
            found += map(late.convert.sandbox, page.sandboxes)
            if not page.next_page_token or len(found) >= _LIST_LIMIT:
                return found
            request.page_token = page.next_page_token

    async def list(self, label_selector: str = "") -> list[SandboxInfo]:
        """List sandboxes whose labels match "key=value,key2=value2". Raises InvalidArgument."""
        return await self.list_within(label_selector, _RPC_TIMEOUT)

    async def get(self, sandbox_id: str) -> SandboxInfo:
        """Describe a sandbox. Raises SandboxEnded."""
        return await self.get_within(sandbox_id, _RPC_TIMEOUT)

    async def release(self, sandbox_id: str) -> bool:
        """End a sandbox. Returns whether it was there; releasing one that ended is no error."""
        request = api.fleet.ReleaseRequest(sandbox_id=sandbox_id)
        try:
            return (await self._call(self._stub.Release, request, _RPC_TIMEOUT)).released
        except SandboxEnded:
            return False

    async def get_within(self, sandbox_id: str, wait: float) -> SandboxInfo:
        """Describe a sandbox, within `wait` seconds."""
        request = api.fleet.GetRequest(sandbox_id=sandbox_id)
        return late.convert.sandbox((await self._call(self._stub.Get, request, wait)).sandbox)

    async def access(self, sandbox_id: str, *, wait: float) -> tuple[api.fleet.Sandbox, api.fleet.Access]:
        """Open a sandbox; waits for an executor that is being replaced. Raises SandboxEnded."""
        request = api.fleet.GetRequest(sandbox_id=sandbox_id, with_access=True)
        answer = await self._call(self._stub.Get, request, wait)
        return answer.sandbox, answer.access

    async def renew(self, sandbox_id: str, lease: float) -> tuple[api.fleet.Sandbox, api.fleet.Access]:
        """Set the lease to end so many seconds from now, with a new token. Raises SandboxEnded."""
        request = api.fleet.RenewRequest(sandbox_id=sandbox_id, lease=late.convert.seconds(lease))
        answer = await self._call(self._stub.Renew, request, _RPC_TIMEOUT)
        return answer.sandbox, answer.access

    async def open_claim(self, claim: Claim, *, rpc_timeout: float) -> Link:
        """Claim a sandbox and open it. Raises ClaimError, InvalidArgument, UnavailableError."""
        request = claim.message()
        with late.telemetry.call(*late.telemetry.rpc(request.DESCRIPTOR)) as span:
            bound = await self._claim(request, claim.max_wait + _CLAIM_MARGIN)
            span.set("sandfleet.sandbox.id", bound.sandbox.sandbox_id)
        return late.transport.Link(self, bound.sandbox, bound.access, rpc_timeout=rpc_timeout)

    async def _claim(self, request: api.fleet.ClaimRequest, wait: float) -> api.fleet.Bound:
        try:
            async for event in self._stub.Claim(request, metadata=await self._metadata(), timeout=wait):
                if event.WhichOneof("event") == "bound":
                    return event.bound
        except api.aio.AioRpcError as error:
            raise late.status.to_claim_error(error) from error
        raise ProtocolError("cannot claim a sandbox: the fleet ended the claim without an answer", reason="NoEnd")

    async def _call(
        self, method: Callable[..., Awaitable[Answer]], request: api.message.Message, wait: float
    ) -> Answer:
        with late.telemetry.call(*late.telemetry.rpc(request.DESCRIPTOR)):
            try:
                return await method(request, metadata=await self._metadata(), timeout=wait)
            except api.aio.AioRpcError as error:
                raise late.status.to_fleet_error(error) from error

    async def _metadata(self) -> Metadata:
        """Return what goes with each call. Raises UnavailableError where nobody says who we are."""
        trace = late.transport.trace_metadata()
        if self._tokens is None:
            return trace
        token = await late.asyncio.to_thread(self._tokens.token)
        return (("authorization", f"Bearer {token}"), *trace)


def default_isolation() -> Isolation:
    """Return the least isolation that a sandbox may have where nobody says."""
    return late.embedded.isolation_from_environment() or late.values.Isolation.NAMESPACE


# As long as a sandbox uses it: a connection that nobody uses would stand in the way of a fork.
_shared: WeakValueDictionary[tuple[late.asyncio.AbstractEventLoop, str], AsyncFleet] = WeakValueDictionary()


def _share(address: str, place: Place | None = None, namespace: str = "") -> AsyncFleet:
    """Return the connection that all sandboxes of an event loop use; in a cluster, those of one namespace."""
    key = (late.asyncio.get_running_loop(), f"{namespace}@{address}")
    if (fleet := _shared.get(key)) is None:
        fleet = _shared[key] = AsyncFleet(address, place)
    return fleet


async def default_fleet(*, isolation: Isolation) -> AsyncFleet:
    """Return the fleet that the environment names, else this process's own; it is started with `isolation`."""
    if not (address := os.environ.get("SANDFLEET_ADDRESS")):
        address = await late.asyncio.to_thread(late.embedded.start_or_join, isolation)
    return _share(address)


async def find_sandbox(sandbox_id: str, *, fleet: AsyncFleet | None, rpc_timeout: float) -> Link:
    """Open a sandbox of a fleet, or of whichever fleet has it; NAMESPACE/NAME is one of a cluster. Raises SandboxEnded."""
    namespace, slash, _ = sandbox_id.partition("/")
    if fleet is None and slash:
        place = await late.asyncio.to_thread(late.cluster.find, namespace)
        fleet = _share(place.address, place, namespace)
    if fleet is not None:
        return late.transport.Link(fleet, *await fleet.access(sandbox_id, wait=rpc_timeout), rpc_timeout=rpc_timeout)
    for address in await late.asyncio.to_thread(_addresses):
        candidate = _share(address)
        try:
            # Whether it has it shows at once; its executor may be in replacement, which takes longer.
            await candidate.get_within(sandbox_id, _LOOK_TIMEOUT)
            opened = await candidate.access(sandbox_id, wait=rpc_timeout)
        except (SandboxEnded, UnavailableError, RpcTimeout):
            continue
        return late.transport.Link(candidate, *opened, rpc_timeout=rpc_timeout)
    why = "no fleet has it"
    raise SandboxEnded(f"cannot connect to sandbox {sandbox_id!r}: {why}", reason="SandboxNotFound", subject=sandbox_id)


async def list_sandboxes(label_selector: str, *, fleet: AsyncFleet | None) -> list[SandboxInfo]:
    """List the sandboxes of a fleet, or of all that are alive."""
    if fleet is not None:
        return await fleet.list(label_selector)
    found: list[SandboxInfo] = []
    for address in await late.asyncio.to_thread(_addresses):
        with suppress(UnavailableError, RpcTimeout):
            found += await _share(address).list_within(label_selector, _LOOK_TIMEOUT)
    return found


def _addresses() -> list[str]:
    """Where to look for sandboxes: the named fleet alone, else this process's own and then all others of this user."""
    if named := os.environ.get("SANDFLEET_ADDRESS"):
        return [named]
    own = late.embedded.running()
    return ([own] if own else []) + late.embedded.other_fleets()

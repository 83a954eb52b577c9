"""The fleet's service as the client sees it."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from sandfleet import _api as api
from sandfleet import _late as late
from sandfleet.errors import SandboxEnded

if TYPE_CHECKING:
    from sandfleet.claim import Claim
    from sandfleet.cluster import Place
    from sandfleet.fleet_values import Bound, OnQueued, PoolInfo, SandboxChange
    from sandfleet.transport import Link
    from sandfleet.values import Isolation, SandboxInfo

_RPC_TIMEOUT = 30.0
# How long a call other than a claim waits for a fleet that is away, in seconds.
_PATIENCE = 10.0
_LIST_LIMIT = 100_000


class AsyncFleet:
    """A fleet: who hands out sandboxes. Most programs need only `AsyncSandbox.create`, which finds one by itself."""

    def __init__(
        self,
        address: str,
        place: Place | None = None,
        *,
        namespace: str = "",
        find: Callable[[str], Place] | None = None,
    ) -> None:
        """Use `connect`."""
        self._door = late.door.Door(address, place, find)
        self._namespace = namespace

    @classmethod
    async def connect(
        cls,
        address: str | None = None,
        *,
        namespace: str | None = None,
        pool_size: int | None = None,
        max_sandboxes: int | None = None,
        isolation: Isolation | None = None,
        ca_file: str | None = None,
        token_file: str | None = None,
    ) -> Self:
        """Connect to a fleet: at `address`, else where the environment says (see `Sandbox.create`), else this process's own.

        "kubernetes" is the fleet of the cluster that this pod or kubectl is in. With a `ca_file` and a `token_file` (of a
        Kubernetes token for the audience sandfleet) it is the fleet of a cluster at "host:port". `namespace` is where its
        sandboxes are looked for and made unless a call says otherwise.

        The process's own ("embedded") is started at its first use, one a process, and ends with it. How many sandboxes it
        keeps warm, how many there may be, and its isolation come from here, else from SANDFLEET_POOL_SIZE,
        SANDFLEET_MAX_SANDBOXES and SANDFLEET_ISOLATION, else from its defaults.

        Raises UnavailableError when it cannot be found or started, InvalidArgument when it runs already with other options.
        """
        found = address or os.environ.get("SANDFLEET_ADDRESS")
        if ca_file or token_file:
            return await cls._of_named(found or "", ca_file or "", token_file or "", namespace)
        options = (pool_size, max_sandboxes, isolation)
        chosen = options == (None, None, None) and late.cluster.is_chosen(asked=namespace is not None)
        if found == late.cluster.KUBERNETES or (not found and chosen):
            return await cls._of_cluster(namespace)
        if not found:
            found = await late.asyncio.to_thread(late.embedded.start, late.embedded.Options.of(*options))
        return cls(found)

    @classmethod
    async def _of_cluster(cls, namespace: str | None) -> Self:
        """Connect to the cluster's fleet that the environment leads to, for sandboxes of a namespace. Raises UnavailableError."""
        where = namespace
        if not where:
            where = await late.asyncio.to_thread(late.cluster.sandbox_namespace)
        find = partial(late.cluster.find, where)
        place = await late.asyncio.to_thread(find)
        return cls(place.address, place, namespace=where, find=find)

    @classmethod
    async def _of_named(cls, address: str, ca_file: str, token_file: str, namespace: str | None) -> Self:
        """Connect to the fleet of a cluster at this address. Raises UnavailableError."""

        def find(_: str) -> Place:
            return late.cluster.named(address, ca_file, token_file)

        where = namespace or late.cluster.sandbox_namespace(ask_kubectl=False)
        return cls(address, find(address), namespace=where, find=find)

    @property
    def address(self) -> str:
        """Where it is: "unix:/path" or "host:port"."""
        return self._door.address

    @property
    def namespace(self) -> str:
        """Where its sandboxes are looked for and made unless a call says otherwise; "" on one machine."""
        return self._namespace

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connection. Sandboxes, and an embedded fleet, stay as they are."""
        await self._door.close()

    async def pools(self, *, namespace: str | None = None) -> tuple[PoolInfo, ...]:
        """List the pools of a namespace, by name: None means the fleet's, "" all of them."""
        request = api.fleet.ListPoolsRequest(namespace=self._in(namespace))
        answer = await self._call("ListPools", request, _RPC_TIMEOUT)
        return tuple(map(late.convert.pool, answer.pools))

    async def watch(self, label_selector: str = "", *, namespace: str | None = None) -> AsyncIterator[SandboxChange]:
        """Yield sandboxes as they change: first each one that is there, then `synced`, then what happens, for ever.

        `namespace`: None means the fleet's, "" all. A connection that breaks is made anew: what happened meanwhile is told
        then, steps in between are not. Raises UnavailableError when that takes too long, SandboxError with the reason
        Unimplemented on one machine.
        """
        request = api.fleet.WatchRequest(label_selector=label_selector, namespace=self._in(namespace))
        async for change in late.watching.changes(self._door, request):
            yield change

    async def list_within(self, label_selector: str, wait: float, namespace: str | None = None) -> list[SandboxInfo]:
        """List sandboxes; each page within `wait` seconds."""
        found: list[SandboxInfo] = []
        request = api.fleet.ListRequest(label_selector=label_selector, page_size=1000, namespace=self._in(namespace))
        while True:
            page = await self._call("List", request, wait)
            found += map(late.convert.sandbox, page.sandboxes)
            if not page.next_page_token or len(found) >= _LIST_LIMIT:
                return found
            request.page_token = page.next_page_token

    async def list(self, label_selector: str = "", *, namespace: str | None = None) -> list[SandboxInfo]:
        """List sandboxes whose labels match "key=value,key2=value2". Raises InvalidArgument.

        On Kubernetes those of a namespace: None means the fleet's, "" all of them.
        """
        return await self.list_within(label_selector, _RPC_TIMEOUT, namespace)

    async def get(self, sandbox_id: str) -> SandboxInfo:
        """Describe a sandbox. Raises SandboxEnded."""
        return await self.get_within(sandbox_id, _RPC_TIMEOUT)

    async def release(self, sandbox_id: str) -> bool:
        """End a sandbox. Returns whether it was there; releasing one that ended is no error."""
        request = api.fleet.ReleaseRequest(sandbox_id=sandbox_id)
        try:
            return bool((await self._call("Release", request, _RPC_TIMEOUT)).released)
        except SandboxEnded:
            return False

    async def get_within(self, sandbox_id: str, wait: float) -> SandboxInfo:
        """Describe a sandbox, within `wait` seconds."""
        request = api.fleet.GetRequest(sandbox_id=sandbox_id)
        return late.convert.sandbox((await self._call("Get", request, wait)).sandbox)

    async def access(self, sandbox_id: str, *, wait: float) -> tuple[api.fleet.Sandbox, api.fleet.Access]:
        """Open a sandbox; waits for an executor that is being replaced. Raises SandboxEnded."""
        request = api.fleet.GetRequest(sandbox_id=sandbox_id, with_access=True)
        answer = await self._call("Get", request, wait)
        return answer.sandbox, answer.access

    async def renew(self, sandbox_id: str, lease: float | None) -> tuple[api.fleet.Sandbox, api.fleet.Access]:
        """Set the lease to end so many seconds from now (None: as at the claim), with a new token. Raises SandboxEnded."""
        request = api.fleet.RenewRequest(sandbox_id=sandbox_id, lease=late.convert.seconds(lease))
        answer = await self._call("Renew", request, _RPC_TIMEOUT)
        return answer.sandbox, answer.access

    async def open_claim(
        self, claim: Claim, *, rpc_timeout: float, on_queued: OnQueued | None = None
    ) -> tuple[Link, Bound]:
        """Claim a sandbox and open it. Raises ClaimError, InvalidArgument, AccessDenied, UnavailableError."""
        request = claim.message(self._namespace)
        with late.telemetry.call(*late.telemetry.rpc(request.DESCRIPTOR)) as span:
            bound = await late.claiming.claim(self._door, request, claim.max_wait, on_queued)
            span.set("sandfleet.sandbox.id", bound.sandbox.sandbox_id)
        link = late.transport.Link(self, bound.sandbox, bound.access, rpc_timeout=rpc_timeout)
        return link, late.convert.bound(bound)

    def _in(self, namespace: str | None) -> str:
        return self._namespace if namespace is None else namespace

    async def _call(self, name: str, request: api.message.Message, wait: float) -> Any:
        """Make a call that may be made twice. Each attempt has `wait` seconds."""
        with late.telemetry.call(*late.telemetry.rpc(request.DESCRIPTOR)):
            try:
                return await self._door.call(
                    lambda stub, metadata: getattr(stub, name)(request, metadata=metadata, timeout=wait),
                    min(wait, _PATIENCE),
                )
            except api.aio.AioRpcError as error:
                raise late.status.to_fleet_error(error) from error

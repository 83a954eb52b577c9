"""AsyncSandbox: one sandbox as an object."""

from __future__ import annotations

import os
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Self

from sandfleet import _late as late
from sandfleet.sandbox_code import AsyncCode

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from sandfleet.commands import AsyncCommands
    from sandfleet.environment import Environment
    from sandfleet.files import AsyncFiles
    from sandfleet.fleet import AsyncFleet
    from sandfleet.fleet_values import Bound, Egress, OnQueued
    from sandfleet.ports import AsyncForward, OnError
    from sandfleet.pty import AsyncPty
    from sandfleet.services import AsyncServices
    from sandfleet.state_values import Autosave
    from sandfleet.states import AsyncStates
    from sandfleet.transport import Link
    from sandfleet.usage_values import Health, SandboxUsage
    from sandfleet.values import (
        Isolation,
        Limits,
        SandboxInfo,
    )

DEFAULT_LEASE = 300.0
RPC_TIMEOUT = 30.0
# Seconds between two questions to the fleet: the first, and the longest.
_EGRESS_PAUSES = (0.05, 1.0)


class AsyncSandbox(AsyncCode):
    """One isolated environment with a workspace, contexts that keep their variables, commands and files.

    Three timeouts, all in seconds, never confused:
    - the lease (`create(timeout=)`, `set_timeout`): the sandbox ends when it is over and nobody renewed it;
    - the deadline of an execution (`run_code(timeout=)`, `commands.run(timeout=)`): a result, outcome `timeout`;
    - the time of a call over the network (`create(rpc_timeout=)`): raises `RpcTimeout`.

    As a context manager it keeps its lease renewed, and at the end kills the sandbox if it created it, or only lets go of
    it if it connected to it. When the executor is replaced, calls go on with the new one; an execution that was in flight
    ends with outcome `lost`.
    """

    def __init__(
        self,
        link: Link,
        *,
        lease: float | None,
        bound: Bound | None,
        keep_alive: bool | None,
        autosave: bool | Autosave = False,
    ) -> None:
        """Use `create` or `connect`."""
        # Late: they bring in gRPC and protobuf, which cost more than all the rest.
        from sandfleet.commands import AsyncCommands
        from sandfleet.files import AsyncFiles
        from sandfleet.interpreter import Interpreter
        from sandfleet.ports import Forwards
        from sandfleet.pty import AsyncPty
        from sandfleet.services import AsyncServices
        from sandfleet.states import AsyncStates

        self._link = link
        self._lease = lease
        self._bound = bound
        self._keep = keep_alive
        self._interpreter = Interpreter(link, autosave)
        self._states = AsyncStates(link, self._interpreter)
        self._keeper: late.asyncio.Task[None] | None = None
        self._commands = AsyncCommands(link)
        self._files = AsyncFiles(link)
        self._services = AsyncServices(link)
        self._pty = AsyncPty(link)
        self._forwards = Forwards(link)
        if keep_alive:
            self._start_keeper()

    @property
    def commands(self) -> AsyncCommands:
        """Programs that end by themselves."""
        return self._commands

    @property
    def files(self) -> AsyncFiles:
        """Files below /workspace and /tmp."""
        return self._files

    @property
    def services(self) -> AsyncServices:
        """Programs that go on without their client."""
        return self._services

    @property
    def pty(self) -> AsyncPty:
        """Terminals."""
        return self._pty

    @property
    def states(self) -> AsyncStates:
        """Variables that outlive their interpreter."""
        return self._states

    @classmethod
    async def create(
        cls,
        template: str = "",
        *,
        pool: str = "",
        namespace: str | None = None,
        name: str = "",
        contract: str = "",
        egress: Egress | None = None,
        timeout: float = DEFAULT_LEASE,
        idle_timeout: float | None = None,
        envs: Mapping[str, str] | None = None,
        labels: Mapping[str, str] | None = None,
        limits: Limits | None = None,
        isolation: Isolation | None = None,
        workspace_id: str = "",
        keep_workspace: bool = False,
        max_wait: float = 60.0,
        on_queued: OnQueued | None = None,
        keep_alive: bool | None = None,
        autosave: bool | Autosave = False,
        fleet: AsyncFleet | None = None,
        request_id: str | None = None,
        rpc_timeout: float = RPC_TIMEOUT,
    ) -> Self:
        """Claim a sandbox: a warm one where the fleet has one.

        template        what it is made of; "" means the pool's, or "python" where no pool is named either.
        pool            take it from this pool; "" means any pool of the template, or a cold start where there is none.
        namespace       where it is to be, on Kubernetes; None means the fleet's default: SANDFLEET_SANDBOX_NAMESPACE, else
                        this pod's own, else that of kubectl's present context.
        name            of its CodeSandbox; "" makes one up. A claim with a name costs the fleet a write more.
        contract        "autonomous", "brokered" or "reviewed", of those that the template allows; "" means its first.
        egress          "none": it reaches nothing. "template" or None: what its template allows; `bound` says what is known then, `get_info().egress` what is now.
        timeout         its lease, in seconds; renewed at half of it while `keep_alive` holds (None: as a context manager).
        idle_timeout    seconds without any call after which it ends; None means never.
        isolation       refuse anything weaker; None means what SANDFLEET_ISOLATION says, else a namespace (gVisor is more).
        workspace_id    start on this workspace of a released session (`SandboxInfo.workspace_id`), which takes a cold start.
        keep_workspace  keep the workspace after the release, to be claimed again; without it an older one goes as well.
        max_wait        seconds to wait for a free sandbox, and for a fleet that is away: on Kubernetes a claim whose
                        connection breaks is sent again under its request id.
        on_queued       called with each piece of news while it waits (a `Queued`: position, eta in seconds, reason), and
                        awaited where it returns an awaitable. In the sync class it runs in the thread that called, which
                        has nothing else to do: it may use other sandboxes, and cannot deadlock. What it raises is raised
                        here, and the claim is undone.
        autosave        save the variables of Python contexts behind each cell: after a crash, or on another executor, they come back.
        fleet           the fleet to ask; None means the one that the environment names: SANDFLEET_ADDRESS, else a cluster
                        (SANDFLEET_FLEET; a `pool` or `namespace` is asked for; a pod that has a client's volume), else this
                        process's own. `sandfleet.finding.default_fleet` has the rule.
        request_id      the same id gives the same sandbox; None makes one up.

        Raises ClaimError when none could be had in time (its reason says why), AccessDenied, AuthenticationError,
        InvalidArgument, UnavailableError when there is no fleet.
        """
        from sandfleet.claim import Claim
        from sandfleet.finding import default_fleet, default_isolation

        isolation = isolation or default_isolation()
        fleet = fleet or await default_fleet(isolation=isolation, pool=pool, namespace=namespace)
        claim = Claim(
            request_id=request_id or os.urandom(16).hex(),
            template=template,
            lease=timeout,
            idle_timeout=idle_timeout,
            envs=dict(envs or {}),
            labels=dict(labels or {}),
            limits=limits or late.values.Limits(),
            isolation=isolation,
            workspace_id=workspace_id,
            keep_workspace=keep_workspace,
            max_wait=max_wait,
            namespace=namespace or "",
            pool=pool,
            name=name,
            contract=contract,
            egress=egress,
        )
        link, bound = await fleet.open_claim(claim, rpc_timeout=rpc_timeout, on_queued=on_queued)
        return cls(link, lease=timeout, bound=bound, keep_alive=keep_alive, autosave=autosave)

    @classmethod
    async def connect(
        cls,
        sandbox_id: str,
        *,
        timeout: float | None = None,
        keep_alive: bool | None = None,
        autosave: bool | Autosave = False,
        fleet: AsyncFleet | None = None,
        rpc_timeout: float = RPC_TIMEOUT,
    ) -> Self:
        """Use a sandbox that exists, also one that another process created.

        Without a `fleet` it is looked for in this process's fleet and in every other one of this user on this machine.
        "NAMESPACE/NAME" is a CodeSandbox of a cluster: its fleet is the one of SANDFLEET_FLEET, SANDFLEET_FLEET_CA and
        SANDFLEET_TOKEN_FILE, else in a pod that of its cluster, else that of kubectl's present context.
        `timeout` is the lease that renewals ask for, in seconds; None means as at its claim. Connecting alone does not
        change the lease.

        Raises SandboxEnded when there is no such sandbox, PreconditionFailed when it is not ready (the reason says why),
        AccessDenied, UnavailableError when no fleet is found.
        """
        from sandfleet.finding import find_sandbox

        link = await find_sandbox(sandbox_id, fleet=fleet, rpc_timeout=rpc_timeout)
        return cls(link, lease=timeout, bound=None, keep_alive=keep_alive, autosave=autosave)

    @classmethod
    async def list(
        cls, label_selector: str = "", *, namespace: str | None = None, fleet: AsyncFleet | None = None
    ) -> list[SandboxInfo]:
        """List sandboxes whose labels match "key=value,key2=value2".

        Without a `fleet` of the cluster that the environment names (see `create`), else of all fleets of this user on this
        machine. `namespace`, on Kubernetes: None means the default one, "" all.
        """
        from sandfleet.finding import list_sandboxes

        return await list_sandboxes(label_selector, namespace=namespace, fleet=fleet)

    @property
    def sandbox_id(self) -> str:
        """Its id, for `connect`."""
        return self._link.sandbox_id

    @property
    def bound(self) -> Bound | None:
        """How the claim was served: `warm`, and what is known of `egress`. None where this object did not make it."""
        return self._bound

    async def __aenter__(self) -> Self:
        if self._keep is not False:
            self._start_keeper()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await (self.kill() if self._bound else self.close())

    async def kill(self) -> bool:
        """End the sandbox with everything in it. Returns whether it was there; killing one that ended is no error."""
        try:
            return await self._link.release()
        finally:
            await self.close()

    async def close(self) -> None:
        """Let go of the sandbox without ending it: stop renewing, close the connection."""
        if self._keeper is not None:
            self._keeper.cancel()
            self._keeper = None
        await self._forwards.close()
        await self._link.close()

    async def forward(self, port: int, *, local_port: int = 0, on_error: OnError | None = None) -> AsyncForward:
        """Make a TCP port of the sandbox one of this machine: what connects to `address` talks to what listens there.

        port        in the sandbox, on its loopback; whether somebody listens shows with each connection.
        local_port  on 127.0.0.1; 0 means a free one.
        on_error    called with each SandfleetError that ended a connection (PreconditionFailed: nobody listens, LimitReached:
                    100 are open, …), in the thread of the event loop: in the sync class it may not call the sandbox. The program
                    that connected sees a reset.

        It ends with `close`, as a context manager, or with this object. Raises InvalidArgument (no such port), OSError (the
        local port is taken).
        """
        return await self._forwards.open(port, local_port=local_port, on_error=on_error)

    async def get_host(self, port: int) -> str:
        """Return the "127.0.0.1:PORT" at which a port of the sandbox is reached while this object is used.

        As `forward`, which it calls once for each port.
        """
        return await self._forwards.host(port)

    async def get_info(self) -> SandboxInfo:
        """Say what the sandbox is, its isolation included. Raises SandboxEnded."""
        return await self._link.info()

    async def wait_for_egress(self, timeout: float = 30.0) -> bool:
        """Wait until it is known that the sandbox reaches what its template allows, at most `timeout` seconds; return whether it is.

        False sooner where waiting does not help: nothing is allowed, nothing of it can be asked, or nothing answers.
        `get_info().egress` says which. On one machine a sandbox has no network. Raises SandboxEnded.
        """
        pause, longest = _EGRESS_PAUSES
        try:
            async with late.asyncio.timeout(timeout) as limit:
                while not (egress := (await self._link.known()).egress).is_settled:
                    await late.asyncio.sleep(pause)
                    pause = min(2 * pause, longest)
        except TimeoutError:
            if not limit.expired():
                raise
            return False
        return egress.state is late.egress.EgressState.OPEN

    async def set_timeout(self, timeout: float) -> SandboxInfo:
        """Renew the lease: the sandbox ends `timeout` seconds from now, unless renewed again. Raises SandboxEnded."""
        self._lease = timeout
        return await self._link.renew(timeout)

    async def usage(self) -> SandboxUsage:
        """Say what the sandbox uses now and has used since its start, and its limits. Raises SandboxEnded."""
        return await late.usage.ask(self._link)

    async def watch_usage(self, interval: float = 1.0) -> AsyncIterator[SandboxUsage]:
        """Yield what the sandbox and each of its running executions use, until the sandbox ends.

        At most once in `interval` seconds (0.1 to 60), when something changed, and after 5 seconds without a change. Who reads
        slowly misses what was between, never what is. Watching does not keep an idle sandbox alive. Raises UnavailableError,
        LimitReached where 64 are watching.
        """
        async for usage in late.usage.watch(self._link, interval):
            yield usage

    async def environment(self) -> Environment:
        """List what code finds there: languages, packages with their origin, what is the same in each run. Raises PreconditionFailed."""
        return await self._link.environment()

    async def health(self) -> Health:
        """Say whether it can run code now. Does not raise when it cannot be reached: then it is not ready."""
        return await self._link.health()

    def _start_keeper(self) -> None:
        if self._keeper is None:
            self._keeper = late.asyncio.get_running_loop().create_task(self._keep_alive())

    async def _keep_alive(self) -> None:
        # The lease of a sandbox that was there already may be nearly over.
        pause: float | None = self._lease / 2 if self._bound and self._lease else 0.0
        while pause is not None:
            await late.asyncio.sleep(pause)
            pause = await self._link.keep(self._lease)

"""AsyncSandbox: one sandbox as an object."""

from __future__ import annotations

import os
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Self

from sandfleet import _late as late

if TYPE_CHECKING:
    from sandfleet.commands import AsyncCommands
    from sandfleet.environment import Environment
    from sandfleet.files import AsyncFiles
    from sandfleet.fleet import AsyncFleet
    from sandfleet.fleet_values import Bound, Egress, OnQueued
    from sandfleet.transport import Link
    from sandfleet.values import (
        Context,
        Execution,
        Health,
        Isolation,
        Limits,
        OnResult,
        OnText,
        SandboxInfo,
        SandboxUsage,
    )

DEFAULT_LEASE = 300.0
RPC_TIMEOUT = 30.0
# Seconds between two questions to the fleet: the first, and the longest.
_EGRESS_PAUSES = (0.05, 1.0)


class AsyncSandbox:
    """One isolated environment with a workspace, contexts that keep their variables, commands and files.

    Three timeouts, all in seconds, never confused:
    - the lease (`create(timeout=)`, `set_timeout`): the sandbox ends when it is over and nobody renewed it;
    - the deadline of an execution (`run_code(timeout=)`, `commands.run(timeout=)`): a result, outcome `timeout`;
    - the time of a call over the network (`create(rpc_timeout=)`): raises `RpcTimeout`.

    As a context manager it keeps its lease renewed, and at the end kills the sandbox if it created it, or only lets go of
    it if it connected to it. When the executor is replaced, calls go on with the new one; an execution that was in flight
    ends with outcome `lost`.
    """

    def __init__(self, link: Link, *, lease: float | None, bound: Bound | None, keep_alive: bool | None) -> None:
        """Use `create` or `connect`."""
        # Late: they bring in gRPC and protobuf, which cost more than all the rest.
        from sandfleet.commands import AsyncCommands
        from sandfleet.files import AsyncFiles
        from sandfleet.interpreter import Interpreter

        self._link = link
        self._lease = lease
        self._bound = bound
        self._keep = keep_alive
        self._interpreter = Interpreter(link)
        self._keeper: late.asyncio.Task[None] | None = None
        self._commands = AsyncCommands(link)
        self._files = AsyncFiles(link)
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
        return cls(link, lease=timeout, bound=bound, keep_alive=keep_alive)

    @classmethod
    async def connect(
        cls,
        sandbox_id: str,
        *,
        timeout: float | None = None,
        keep_alive: bool | None = None,
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
        return cls(link, lease=timeout, bound=None, keep_alive=keep_alive)

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
        await self._link.close()

    async def run_code(
        self,
        code: str,
        *,
        language: str | None = None,
        context: str | Context | None = None,
        timeout: float | None = None,
        on_stdout: OnText | None = None,
        on_stderr: OnText | None = None,
        on_result: OnResult | None = None,
        envs: Mapping[str, str] | None = None,
        output_limit: int | None = None,
        execution_id: str | None = None,
    ) -> Execution:
        """Run one cell and answer with its outcome, whatever the code does.

        language      of the context made at first use when no `context` is named: "python" (None) or "bash".
        context       where to run it: variables last in it from one execution to the next. None means the default one.
        timeout       deadline in seconds from the start of the run; None means the sandbox's default.
        on_stdout, on_stderr, on_result  called with each piece as it comes (awaited where they return an awaitable).
        output_limit  bytes of each stream that are kept (head and tail); None means the sandbox's default.
        execution_id  of 1 to 64 of [A-Za-z0-9._-], unique in the sandbox; None makes one up.

        Raises only what happened before the execution was accepted: SandboxEnded, UnavailableError, NotFoundError (no such
        context), AlreadyExistsError (the id ran before), InvalidArgument, LimitReached. After that a failure of the
        platform is the outcome `lost`. Cancelling interrupts the code.
        """
        from sandfleet.interpreter import Cell, Listeners

        cell = Cell(
            code,
            language=language,
            context=context,
            timeout=timeout,
            envs=dict(envs or {}),
            output_limit=output_limit,
            execution_id=execution_id or os.urandom(16).hex(),
        )
        return await self._interpreter.run(cell, Listeners(on_stdout, on_stderr, on_result))

    async def create_context(
        self,
        context_id: str | None = None,
        *,
        language: str = "python",
        cwd: str = "",
        envs: Mapping[str, str] | None = None,
    ) -> Context:
        """Start an interpreter of its own; `cwd` is relative to /workspace.

        Raises AlreadyExistsError, InvalidArgument (unknown language, malformed id), LimitReached.
        """
        return await self._interpreter.create(context_id, language=language, cwd=cwd, envs=envs)

    async def list_contexts(self) -> tuple[Context, ...]:
        """List the contexts."""
        return await self._interpreter.contexts()

    async def restart_context(self, context: str | Context = "default") -> Context:
        """End the interpreter of a context and start a fresh one. Raises NotFoundError."""
        return await self._interpreter.restart(context)

    async def delete_context(self, context: str | Context) -> None:
        """End a context with all its processes. Deleting one that is not there is no error."""
        await self._interpreter.delete(context)

    async def interrupt(self, context: str | Context = "default", *, grace: float = 2.0) -> bool:
        """Interrupt what runs in a context as Ctrl-C does, and kill it after `grace` seconds.

        Returns whether something was running. Raises NotFoundError.
        """
        return await self._interpreter.interrupt(context, grace=grace)

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
        """Say what all processes of the sandbox use now."""
        return await self._link.usage()

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

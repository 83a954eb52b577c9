"""AsyncSandbox: one sandbox as an object."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Literal, Self, TypeVar

from sandfleet._arguments import checked
from sandfleet._by_id import get_info_by_id, kill_by_id, set_timeout_by_id, suspend_by_id
from sandfleet._calls import Opening, also_by_id
from sandfleet.resources.egress import HasEgress
from sandfleet.resources.outside import HasPorts, HasUsage
from sandfleet.resources.skills import HasSkills
from sandfleet.resources.snapshots import HasSnapshots
from sandfleet.tools.serving import ServesTools
from sandfleet.values.options import (
    DEFAULT_LEASE,
    DEFAULT_MAX_WAIT,
    DEFAULT_RPC_TIMEOUT,
    CodeOptions,
    ContextOptions,
    CreateOptions,
    ListenOptions,
    LookOptions,
    ManyOptions,
    ResumeOptions,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Unpack

    from sandfleet._fleets.fleet import AsyncFleet
    from sandfleet._fleets.reviews import Reviewing
    from sandfleet._wire import api
    from sandfleet._wire.link import Link
    from sandfleet.resources.commands import AsyncCommands
    from sandfleet.resources.files.files import AsyncFiles
    from sandfleet.resources.journal import AsyncJournal
    from sandfleet.resources.pty import AsyncPty
    from sandfleet.resources.services import AsyncServices
    from sandfleet.resources.tables import AsyncContextHandle, AsyncTables
    from sandfleet.resources.variables import AsyncStates
    from sandfleet.tools.server import AsyncToolServer
    from sandfleet.values.execution import Completion, Context, Execution, Inspection
    from sandfleet.values.fleet import Bound
    from sandfleet.values.reviews import OnReview
    from sandfleet.values.sandbox import SandboxInfo
    from sandfleet.values.suspension import Preemption, Suspension
    from sandfleet.values.tools import AnyTool
    from sandfleet.values.variables import Autosave

Made = TypeVar("Made", bound="AsyncSandbox")

# What a sandbox needs is imported at its first use: gRPC and protobuf cost more than all the rest of the client.


async def _create(
    cls: type[Made],
    template: str,
    fleet: AsyncFleet | None,
    options: CreateOptions,
    gang: api.fleet.Gang | None = None,
    *,
    like: str = "",
) -> Made:
    from sandfleet._fleets import embedded
    from sandfleet._fleets.claim import begun_with, whole_request
    from sandfleet._fleets.discovery import fleet_of_claim
    from sandfleet.tools.sources import prepared_for
    from sandfleet.values.sandbox import Isolation

    tools = prepared_for(options)
    isolation = Isolation.UNKNOWN if like else embedded.isolation_of_claim(options.get("isolation"))
    fleet = fleet or await fleet_of_claim(options)
    snapshot, options = await begun_with(fleet.snapshots, options)
    request = await whole_request(template, options, isolation, gang, like, on_cluster=fleet.is_on_cluster)
    rpc_timeout = options.get("rpc_timeout", DEFAULT_RPC_TIMEOUT)
    lease = options.get("timeout", None if like else DEFAULT_LEASE)
    link, bound = await fleet.open_claim(request, rpc_timeout=rpc_timeout, on_queued=options.get("on_queued"))
    keep_alive, autosave = options.get("keep_alive"), options.get("autosave", False)
    _settle(link, options)
    made = cls(link, lease=lease, bound=bound, keep_alive=keep_alive, autosave=autosave)
    if keep_alive is None and fleet.address == embedded.running():
        # This process's own fleet ends with it, so the sandbox may live as long as its object.
        link.lease.start(at_once=False)
    if on_review := options.get("on_review"):
        made._reviewing = fleet.reviews.ask(made.sandbox_id, on_review)
    try:
        if snapshot is not None:
            made._restoration = back = await fleet.snapshots.restore_snapshot(made.sandbox_id, snapshot, force=False)
            made._resumption = back.resumption
        await _equip(made, tools, options)
    except BaseException:  # A cancellation too: the caller has no name for the sandbox yet.
        await made.kill()
        raise
    return made


def _settle(link: Link, options: CreateOptions) -> None:
    """Tell the link of a sandbox that was just claimed what its client wants of it."""
    link.preemptions.listener = options.get("on_preempted")
    link.wakes = any(options.get(name, "end") != "end" for name in ("on_idle", "on_timeout"))
    if cwd := options.get("cwd"):
        link.cwd = cwd if cwd.startswith("/") else f"/workspace/{cwd}"


async def _equip(made: AsyncSandbox, tools: Sequence[AnyTool], options: CreateOptions) -> None:
    """Give a sandbox that was just claimed its skills, its working directory and its tools."""
    if library := options.get("skills"):
        await made.load_skills(library)
    if cwd := options.get("cwd"):
        await made.files.make_dir(cwd)
    if tools:
        policy, on_ask = options.get("tool_policy"), options.get("on_tool_ask")
        await made.serve_tools(tools, policy=policy, on_ask=on_ask, calls_file=options.get("tool_calls_file"))


async def _create_many(
    template: str, fleet: AsyncFleet | None, count: int, options: ManyOptions
) -> tuple[AsyncSandbox, ...]:
    from sandfleet._fleets.many import all_or_none

    async def claim(mine: CreateOptions, together: api.fleet.Gang | None) -> AsyncSandbox:
        return await _create(AsyncSandbox, template, fleet, mine, together)

    return await all_or_none(claim, count, options)


async def _resume(cls: type[Made], sandbox_id: str, fleet: AsyncFleet | None, options: ResumeOptions) -> Made:
    from sandfleet._fleets import embedded
    from sandfleet._fleets.discovery import fleet_to_resume

    fleet = fleet or await fleet_to_resume(sandbox_id)
    max_wait, rpc_timeout = options.get("max_wait", DEFAULT_MAX_WAIT), options.get("rpc_timeout", DEFAULT_RPC_TIMEOUT)
    link, bound, resumption = await fleet.open_resumed(
        sandbox_id, max_wait=max_wait, rpc_timeout=rpc_timeout, on_queued=options.get("on_queued")
    )
    keep_alive, autosave = options.get("keep_alive"), options.get("autosave", False)
    link.preemptions.listener = options.get("on_preempted")
    made = cls(link, lease=options.get("timeout"), bound=bound, keep_alive=keep_alive, autosave=autosave)
    made._resumption = resumption
    if keep_alive is None and fleet.address == embedded.running():
        link.lease.start(at_once=False)
    return made


async def _connect(
    cls: type[Made],
    sandbox_id: str,
    fleet: AsyncFleet | None,
    rpc_timeout: float,
    options: tuple[float | None, bool | None, bool | Autosave],
) -> Made:
    from sandfleet._fleets.discovery import find_awake

    link, resumption = await find_awake(sandbox_id, fleet=fleet, rpc_timeout=rpc_timeout)
    lease, keep_alive, autosave = options
    made = cls(link, lease=lease, bound=None, keep_alive=keep_alive, autosave=autosave)
    made._resumption = resumption
    return made


@checked
async def fork_by_id(
    sandbox_id: str,
    count: int = 1,
    *,
    timeout: float | None = None,
    envs: Mapping[str, str] | None = None,
    mounts: Mapping[str, str] | Sequence[str] | None = None,
    labels: Mapping[str, str] | None = None,
    fleet: AsyncFleet | None = None,
) -> tuple[AsyncSandbox, ...]:
    """Make copies of the sandbox of this id, as its own `fork` does. Raises what `connect` and `fork` raise."""
    origin = await AsyncSandbox.connect(sandbox_id, fleet=fleet)
    try:
        return await origin.fork(count, timeout=timeout, envs=envs, mounts=mounts, labels=labels)
    finally:
        await origin.close()


class AsyncSandbox(ServesTools, HasSkills, HasSnapshots, HasEgress, HasPorts, HasUsage):
    """One isolated environment with a workspace, contexts that keep their variables, commands and files.

    Three timeouts, all in seconds:
    - the lease (`create(timeout=)`, `set_timeout`): the sandbox ends when the lease ends without a renewal;
    - the deadline of an execution (`run_code(timeout=)`, `commands.run(timeout=)`): the outcome `timeout`;
    - the time of a call over the network (`create(rpc_timeout=)`): raises `RpcTimeout`.

    The lease is renewed while this object runs code or a command. As a context manager, and in this process's own
    fleet, it is renewed as long as the object lives. At the end of a `with` block the object kills the sandbox if it
    created or resumed it, unless it is suspended; if it connected to it, it only closes the connection. When the
    executor is replaced, calls continue with the new one; an execution that was running ends with the outcome `lost`.
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
        from sandfleet.resources.contexts import Interpreter

        self._link = link
        self._bound = bound
        self._keep_alive = keep_alive
        link.lease.lasts(lease, now=bound is not None)
        self._interpreter = Interpreter(link, autosave)
        self._tool_servers: list[AsyncToolServer] = []
        self._reviewing: Reviewing | None = None
        if keep_alive:
            self._link.lease.start(at_once=self._bound is None)
        elif keep_alive is False:
            link.lease.always = False

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.sandbox_id}, {self._link.state})"

    @cached_property
    def commands(self) -> AsyncCommands:
        """Programs that end by themselves."""
        from sandfleet.resources.commands import AsyncCommands

        return AsyncCommands(self._link)

    @cached_property
    def files(self) -> AsyncFiles:
        """Files of the sandbox."""
        from sandfleet.resources.files.files import AsyncFiles

        return AsyncFiles(self._link)

    @cached_property
    def services(self) -> AsyncServices:
        """Programs that keep running after their client has gone."""
        from sandfleet.resources.services import AsyncServices

        return AsyncServices(self._link)

    @cached_property
    def pty(self) -> AsyncPty:
        """Terminals."""
        from sandfleet.resources.pty import AsyncPty

        return AsyncPty(self._link)

    @cached_property
    def states(self) -> AsyncStates:
        """Variables that outlive their interpreter."""
        from sandfleet.resources.variables import AsyncStates

        return AsyncStates(self._link, self._interpreter)

    @cached_property
    def tables(self) -> AsyncTables:
        """Frames and tables in the variables of contexts."""
        from sandfleet.resources.tables import AsyncTables

        return AsyncTables(self._link)

    @cached_property
    def journal(self) -> AsyncJournal:
        """The record of everything that changed the session."""
        from sandfleet.resources.journal import AsyncJournal

        return AsyncJournal(self._link)

    @property
    def on_review(self) -> OnReview | None:
        """What `create` was given to answer the reviews of this sandbox; None leaves them to other reviewers."""
        return self._reviewing.on_review if self._reviewing else None

    @classmethod
    @checked
    def create(
        cls, template: str = "", *, fleet: AsyncFleet | None = None, **options: Unpack[CreateOptions]
    ) -> Opening[Self]:
        """Claim a sandbox: a warm one if the fleet has one.

        The async call can be awaited, or entered at once: `async with AsyncSandbox.create() as sandbox`.

        template  the sandbox's template; "" means the pool's, or "python" without a pool.
        fleet     the fleet to ask; None means the one that the environment names: SANDFLEET_ADDRESS, else a cluster
                  (if SANDFLEET_FLEET names one, a `pool` or `namespace` is asked for, or this pod has a client's
                  volume), else this process's own. `sandfleet._fleets.discovery.default_fleet` has the rule.
        options   see `CreateOptions`: pool, queue, namespace, timeout, envs, mounts, labels, limits, max_wait, …

        Raises ClaimError when the fleet has none in time (its reason says why), AccessDenied, AuthenticationError,
        InvalidArgument, UnavailableError when no fleet answers.
        """
        return Opening(_create(cls, template, fleet, options))

    @classmethod
    async def _copy(cls, template: str, fleet: AsyncFleet, options: CreateOptions, origin: str) -> Self:
        return await _create(cls, template, fleet, options, like=origin)

    @classmethod
    @checked
    async def create_many(
        cls, count: int, template: str = "", *, fleet: AsyncFleet | None = None, **options: Unpack[ManyOptions]
    ) -> tuple[AsyncSandbox, ...]:
        """Claim several sandboxes: all or none. Where one claim fails, the others are undone, and its error is raised.

        As `create`, with the option `gang` of `ManyOptions`. Raises what `create` raises, and ClaimError with the
        reason GangTooLarge where there can never be so many.
        """
        return await _create_many(template, fleet, count, options)

    @classmethod
    @checked
    def connect(
        cls,
        sandbox_id: str,
        *,
        timeout: float | None = None,
        keep_alive: bool | None = None,
        autosave: bool | Autosave = False,
        fleet: AsyncFleet | None = None,
        rpc_timeout: float = DEFAULT_RPC_TIMEOUT,
    ) -> Opening[Self]:
        """Use an existing sandbox, also one that another process created. A suspended one is resumed.

        A session that only a snapshot keeps is found by a fleet that runs; without one, use `resume`.

        timeout  the lease that renewals ask for, in seconds; None means as at the claim. Connecting does not renew it.
        fleet    the sandbox's fleet; None looks in this process's fleet and in all others of this user on this machine.
                 "NAMESPACE/NAME" is a CodeSandbox of a cluster: the cluster of SANDFLEET_FLEET, SANDFLEET_FLEET_CA and
                 SANDFLEET_TOKEN_FILE, else this pod's, else the one of kubectl's current context.

        Raises SandboxEnded when there is no such sandbox, PreconditionFailed when it is not ready (the reason says
        why), AccessDenied, UnavailableError when no fleet is found.
        """
        return Opening(_connect(cls, sandbox_id, fleet, rpc_timeout, (timeout, keep_alive, autosave)))

    @classmethod
    @checked
    def resume(
        cls, sandbox_id: str, *, fleet: AsyncFleet | None = None, **options: Unpack[ResumeOptions]
    ) -> Opening[Self]:
        """Take a suspended session on: its files, its contexts with their variables, its services.

        The id is the same, the executor is a new one. `resumption` says what has come back. The object owns the session
        as `create`'s does: the end of its `with` block kills it. A session that is not suspended is opened as it is.
        `options` are in `ResumeOptions`: max_wait, on_queued, timeout, …

        Raises SandboxEnded when there is no such session, ClaimError when it has no place in time, AccessDenied,
        UnavailableError.
        """
        return Opening(_resume(cls, sandbox_id, fleet, options))

    @classmethod
    @checked
    async def list(
        cls,
        label_selector: str = "",
        *,
        namespace: str | None = None,
        fleet: AsyncFleet | None = None,
        warm: bool = False,
    ) -> list[SandboxInfo]:
        """List the sandboxes of sessions whose labels match "key=value,key2=value2".

        Without a `fleet`: those of the cluster that the environment names (see `create`), else of this user's fleets
        on this machine, with `warm` also those without a session. `namespace` "" is all of a cluster, None the default.
        """
        from sandfleet._fleets.discovery import list_sandboxes

        return await list_sandboxes(label_selector, namespace=namespace, fleet=fleet, warm=warm)

    @property
    def sandbox_id(self) -> str:
        """The sandbox's id, for `connect`."""
        return self._link.sandbox_id

    @property
    def bound(self) -> Bound | None:
        """How the claim was served: `warm` or not, and the state of `egress`. None after `connect`."""
        return self._bound

    @property
    def preemptions(self) -> tuple[Preemption, ...]:
        """The last preemptions of the session that this object has heard of."""
        return self._link.preemptions.all

    async def __aenter__(self) -> Self:
        if self._keep_alive is not False:
            self._link.lease.start(at_once=self._bound is None)
        return self

    async def __aexit__(self, *_: object) -> None:
        try:
            if self._bound:
                await self._link.release(unless_suspended=True)
        finally:
            await self.close()

    @also_by_id(suspend_by_id)
    @checked
    async def suspend(
        self, *, force: bool = False, timeout: float | None = None, to: Literal["volume", "snapshot"] = "volume"
    ) -> Suspension:
        """End the processes and keep the session: files, variables, contexts, declared services, and what it was made
        with. `Sandbox.resume(sandbox_id)` takes it on; until then it holds no place, and its lease rests.

        force    end running executions, commands, terminals and connections, and go without what cannot be saved.
                 Otherwise they refuse it: PreconditionFailed with the reason ExecutionRunning, ConnectionOpen, …
        timeout  seconds after which a suspended session ends; None means as long as its fleet allows.
        to       "volume": the files stay where they are, and the session stays with its fleet. "snapshot": a snapshot
                 keeps the session, and nothing else is left of it. It outlives the fleet, this process and a restart
                 of the machine, and stays until `Sandbox.resume` of its id, or until the snapshot is deleted.

        The end of a `with` block leaves a suspended session as it is. Raises SandboxEnded, PreconditionFailed
        (WorkspaceEphemeral: on a cluster, its files would end with its pod), LimitReached, UnavailableError. The class
        has the same call by id: `Sandbox.suspend(sandbox_id)`.
        """
        kept = await self._link.suspend(force=force, timeout=timeout, to=to)
        await self._forwards.close()
        await self._stop_tools()
        return kept

    async def pause(self) -> Suspension:
        """Suspend the session into a snapshot, as `suspend(to="snapshot")` does: it outlives this process."""
        return await self.suspend(to="snapshot")

    @also_by_id(kill_by_id)
    async def kill(self) -> bool:
        """End the sandbox with everything in it. Returns whether it existed; killing an ended sandbox is no error.

        The class has the same call by id: `Sandbox.kill(sandbox_id)`, with `fleet=` as `connect` has it.
        """
        try:
            return await self._link.release()
        finally:
            await self.close()

    async def close(self) -> None:
        """Close the connection without ending the sandbox, and stop renewing its lease."""
        self._link.lease.stop()
        if self._reviewing:
            self._reviewing.stop()
        await self._forwards.close()
        await self._stop_tools()
        await self._link.close()

    @also_by_id(fork_by_id)
    @checked
    async def fork(
        self,
        count: int = 1,
        *,
        timeout: float | None = None,
        envs: Mapping[str, str] | None = None,
        mounts: Mapping[str, str] | Sequence[str] | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> tuple[AsyncSandbox, ...]:
        """Make sandboxes with the same files, variables and services: all of them, or none.

        One snapshot is taken and restored `count` times, then deleted. Each sandbox has an id and a lease of its own,
        and all that this one was created with: its namespace, template, contract and limits, its environment, mounts
        and labels, what it may reach, its queue, and what becomes of it when it is idle or lost.

        timeout  the lease of each in seconds; None means as at the claim of this one.
        envs, mounts, labels
                 as of `create`: they come beside those of this one, and count before them.

        Raises what `snapshot` and `create` raise.
        """
        given = {"timeout": timeout, "envs": envs, "mounts": mounts, "labels": labels}
        return await self._forked(count, given)

    @also_by_id(get_info_by_id)
    async def get_info(self) -> SandboxInfo:
        """Describe the sandbox, its isolation included. Raises SandboxEnded.

        The class has the same call by id: `Sandbox.get_info(sandbox_id)`, with `fleet=` as `connect` has it.
        """
        return await self._link.info()

    @also_by_id(set_timeout_by_id)
    @checked
    async def set_timeout(self, timeout: float) -> SandboxInfo:
        """Renew the lease: the sandbox ends `timeout` seconds from now, unless renewed again. Raises SandboxEnded.

        The class has the same call by id: `Sandbox.set_timeout(sandbox_id, timeout)`.
        """
        renewed = await self._link.renew(timeout)
        self._link.lease.lasts(timeout)
        return renewed

    @checked
    async def run_code(self, code: str, **options: Unpack[CodeOptions]) -> Execution:
        """Run one cell and return its outcome, whatever the code does.

        `options` are in `CodeOptions`: context, language, timeout, envs, on_stdout, on_result, output_limit, …

        Raises only before the execution is accepted: SandboxEnded, UnavailableError, NotFoundError (no such context),
        AlreadyExistsError (another execution has the id), InvalidArgument, LimitReached. After that, a failure of the
        platform is the outcome `lost`. Cancelling the call interrupts the code.
        """
        execution = await self._interpreter.run(code, options)
        return execution.raise_for_error() if options.get("check") else execution

    @checked
    async def attach(self, execution_id: str, **listeners: Unpack[ListenOptions]) -> Execution:
        """Follow a cell from its start to its end, and return its outcome as `run_code` does.

        This or another process started it; it may be running or have ended, also under an earlier executor. Cancelling
        the call leaves the cell running. `listeners` are in `ListenOptions`.

        Raises NotFoundError when no cell has the id, or its output is no longer stored, SandboxEnded, UnavailableError.
        """
        return await self._interpreter.attach(execution_id, listeners)

    @checked
    async def create_context(
        self, context_id: str | None = None, **options: Unpack[ContextOptions]
    ) -> AsyncContextHandle:
        """Start another interpreter; None generates its id. `options` are in `ContextOptions`: language, cwd, …

        Raises AlreadyExistsError, InvalidArgument (unknown language, malformed id), LimitReached.
        """
        (made,) = self._handles([await self._interpreter.create(context_id, options)])
        return made

    @checked
    async def fork_context(
        self, context: str | Context = "default", count: int = 1, *, context_ids: Sequence[str] | None = None
    ) -> tuple[AsyncContextHandle, ...]:
        """Copy a context `count` times in milliseconds, with its variables, imports and working directory.

        The copies share memory until they write to it. `random` and NumPy's global generators are seeded anew in each.
        Waits for a running cell to end; makes all copies or none. `context_ids` names them; None generates names.
        Raises PreconditionFailed (ThreadsRunning: only the main thread can be copied), NotFoundError,
        AlreadyExistsError, InvalidArgument, LimitReached.
        """
        return self._handles(await self._interpreter.fork(context, count, context_ids))

    @checked
    async def complete(self, code: str, cursor_pos: int | None = None, **options: Unpack[LookOptions]) -> Completion:
        """Complete code at a position, in characters (None: its end). `LookOptions` says what it takes and raises."""
        return await self._interpreter.complete(code, cursor_pos, options)

    @checked
    async def inspect(self, code: str, cursor_pos: int | None = None, **options: Unpack[LookOptions]) -> Inspection:
        """Describe the object at a position of code; false where there is none. Otherwise as `complete`."""
        return await self._interpreter.inspect(code, cursor_pos, options)

    async def list_contexts(self) -> tuple[AsyncContextHandle, ...]:
        """List the contexts, first the default ones of Python and JavaScript, also before their first cells."""
        return self._handles(await self._interpreter.contexts())

    @checked
    async def restart_context(self, context: str | Context = "default") -> AsyncContextHandle:
        """End the interpreter of a context and start a new one. Raises NotFoundError."""
        (made,) = self._handles([await self._interpreter.restart(context)])
        return made

    @checked
    async def delete_context(self, context: str | Context) -> None:
        """End a context with all its processes. Deleting a context that does not exist is no error."""
        await self._interpreter.delete(context)

    @checked
    async def interrupt(self, context: str | Context = "default", *, grace: float = 2.0) -> bool:
        """Interrupt a context as Ctrl-C does; after `grace` seconds kill what still runs. Returns whether any ran."""
        return await self._interpreter.interrupt(context, grace=grace)

    def _handles(self, contexts: Iterable[Context]) -> tuple[AsyncContextHandle, ...]:
        from sandfleet.resources.tables import AsyncContextHandle

        return tuple(AsyncContextHandle(each, self.tables, self._link) for each in contexts)

"""The same classes without `await`: a façade over one background event loop, usable from any thread and inside Jupyter.

Every method is the one of the async class, run on that loop. Callbacks run in the thread that called.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Self

from sandfleet._background import Relay, iterate, mirrors, run
from sandfleet.fleet import AsyncFleet
from sandfleet.sandbox import DEFAULT_LEASE, RPC_TIMEOUT, AsyncSandbox
from sandfleet.sync_code import Code
from sandfleet.sync_commands import Commands
from sandfleet.sync_files import Files
from sandfleet.sync_ports import Forward
from sandfleet.sync_pty import Pty
from sandfleet.sync_services import Services
from sandfleet.sync_states import States

if TYPE_CHECKING:
    from sandfleet.environment import Environment
    from sandfleet.fleet_values import Bound, Egress, OnQueued, PoolInfo, SandboxChange
    from sandfleet.ports import OnError
    from sandfleet.state_values import Autosave
    from sandfleet.usage_values import Health, SandboxUsage
    from sandfleet.values import (
        Isolation,
        Limits,
        SandboxInfo,
    )


@mirrors(AsyncFleet)
class Fleet:
    def __init__(self, fleet: AsyncFleet) -> None:
        self.as_async = fleet

    @classmethod
    def connect(
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
        opened = AsyncFleet.connect(
            address,
            namespace=namespace,
            pool_size=pool_size,
            max_sandboxes=max_sandboxes,
            isolation=isolation,
            ca_file=ca_file,
            token_file=token_file,
        )
        return cls(run(opened))

    @property
    def address(self) -> str:
        return self.as_async.address

    @property
    def namespace(self) -> str:
        return self.as_async.namespace

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        return run(self.as_async.close())

    def get(self, sandbox_id: str) -> SandboxInfo:
        return run(self.as_async.get(sandbox_id))

    def release(self, sandbox_id: str) -> bool:
        return run(self.as_async.release(sandbox_id))

    def pools(self, *, namespace: str | None = None) -> tuple[PoolInfo, ...]:
        return run(self.as_async.pools(namespace=namespace))

    def watch(self, label_selector: str = "", *, namespace: str | None = None) -> Iterator[SandboxChange]:
        return iterate(self.as_async.watch(label_selector, namespace=namespace))

    def list(self, label_selector: str = "", *, namespace: str | None = None) -> list[SandboxInfo]:
        return run(self.as_async.list(label_selector, namespace=namespace))


@mirrors(AsyncSandbox)
class Sandbox(Code):
    _async: AsyncSandbox

    def __init__(self, sandbox: AsyncSandbox) -> None:
        self._async = sandbox
        self._commands = Commands(sandbox.commands)
        self._files = Files(sandbox.files)
        self._services = Services(sandbox.services)
        self._pty = Pty(sandbox.pty)
        self._states = States(sandbox.states)

    @property
    def commands(self) -> Commands:
        return self._commands

    @property
    def files(self) -> Files:
        return self._files

    @property
    def services(self) -> Services:
        return self._services

    @property
    def pty(self) -> Pty:
        return self._pty

    @property
    def states(self) -> States:
        return self._states

    @property
    def sandbox_id(self) -> str:
        return self._async.sandbox_id

    @property
    def bound(self) -> Bound | None:
        return self._async.bound

    @classmethod
    def create(
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
        fleet: Fleet | None = None,
        request_id: str | None = None,
        rpc_timeout: float = RPC_TIMEOUT,
    ) -> Self:
        relay = Relay()
        created = AsyncSandbox.create(
            template,
            pool=pool,
            namespace=namespace,
            name=name,
            contract=contract,
            egress=egress,
            timeout=timeout,
            idle_timeout=idle_timeout,
            envs=envs,
            labels=labels,
            limits=limits,
            isolation=isolation,
            workspace_id=workspace_id,
            keep_workspace=keep_workspace,
            max_wait=max_wait,
            on_queued=relay.wrap(on_queued),
            keep_alive=keep_alive,
            autosave=autosave,
            fleet=fleet.as_async if fleet else None,
            request_id=request_id,
            rpc_timeout=rpc_timeout,
        )
        return cls(run(created, relay))

    @classmethod
    def connect(
        cls,
        sandbox_id: str,
        *,
        timeout: float | None = None,
        keep_alive: bool | None = None,
        autosave: bool | Autosave = False,
        fleet: Fleet | None = None,
        rpc_timeout: float = RPC_TIMEOUT,
    ) -> Self:
        inner = fleet.as_async if fleet else None
        found = AsyncSandbox.connect(
            sandbox_id,
            timeout=timeout,
            keep_alive=keep_alive,
            autosave=autosave,
            fleet=inner,
            rpc_timeout=rpc_timeout,
        )
        return cls(run(found))

    def __enter__(self) -> Self:
        run(self._async.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        run(self._async.__aexit__(kind, error, trace))

    def kill(self) -> bool:
        return run(self._async.kill())

    def close(self) -> None:
        return run(self._async.close())

    def forward(self, port: int, *, local_port: int = 0, on_error: OnError | None = None) -> Forward:
        return Forward(run(self._async.forward(port, local_port=local_port, on_error=on_error)))

    def get_host(self, port: int) -> str:
        return run(self._async.get_host(port))

    def get_info(self) -> SandboxInfo:
        return run(self._async.get_info())

    def wait_for_egress(self, timeout: float = 30.0) -> bool:
        return run(self._async.wait_for_egress(timeout))

    def set_timeout(self, timeout: float) -> SandboxInfo:
        return run(self._async.set_timeout(timeout))

    def usage(self) -> SandboxUsage:
        return run(self._async.usage())

    def watch_usage(self, interval: float = 1.0) -> Iterator[SandboxUsage]:
        return iterate(self._async.watch_usage(interval))

    def environment(self) -> Environment:
        return run(self._async.environment())

    def health(self) -> Health:
        return run(self._async.health())

    @classmethod
    def list(
        cls, label_selector: str = "", *, namespace: str | None = None, fleet: Fleet | None = None
    ) -> list[SandboxInfo]:
        return run(AsyncSandbox.list(label_selector, namespace=namespace, fleet=fleet.as_async if fleet else None))

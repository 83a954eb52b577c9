"""The same classes without `await`: a façade over one background event loop, usable from any thread and inside Jupyter.

Every method is the one of the async class, run on that loop. Callbacks run in the thread that called.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Self, cast, overload

from sandfleet._background import Relay, iterate, mirrors, run
from sandfleet.files import DEFAULT_READ_LIMIT, AsyncFiles, Data, Format, PathLike
from sandfleet.fleet import AsyncFleet
from sandfleet.sandbox import DEFAULT_LEASE, RPC_TIMEOUT, AsyncSandbox
from sandfleet.sync_commands import Commands

if TYPE_CHECKING:
    from sandfleet.environment import Environment
    from sandfleet.fleet_values import Bound, Egress, OnQueued, PoolInfo, SandboxChange
    from sandfleet.values import (
        Context,
        Execution,
        FileInfo,
        Health,
        Isolation,
        Limits,
        OnResult,
        OnText,
        SandboxInfo,
        SandboxUsage,
    )


@mirrors(AsyncFiles)
class Files:
    def __init__(self, files: AsyncFiles) -> None:
        self._async = files

    @overload
    def read(
        self,
        path: PathLike,
        *,
        format: Literal["text"] = "text",
        offset: int = 0,
        length: int | None = None,
        limit: int = ...,
    ) -> str: ...
    @overload
    def read(
        self, path: PathLike, *, format: Literal["bytes"], offset: int = 0, length: int | None = None, limit: int = ...
    ) -> bytes: ...
    @overload
    def read(
        self, path: PathLike, *, format: Literal["stream"], offset: int = 0, length: int | None = None, limit: int = ...
    ) -> Iterator[bytes]: ...
    def read(
        self,
        path: PathLike,
        *,
        format: Format = "text",  # noqa: A002  the name that users of other sandboxes know
        offset: int = 0,
        length: int | None = None,
        limit: int = DEFAULT_READ_LIMIT,
    ) -> str | bytes | Iterator[bytes]:
        data = run(self._async.read(path, format=format, offset=offset, length=length, limit=limit))
        return data if isinstance(data, (str, bytes)) else iterate(cast("AsyncIterator[bytes]", data))

    def write(self, path: PathLike, data: Data, *, mode: int = 0) -> FileInfo:
        return run(self._async.write(path, data, mode=mode))

    def list(self, path: PathLike = ".", *, depth: int = 1) -> tuple[FileInfo, ...]:
        return run(self._async.list(path, depth=depth))

    def exists(self, path: PathLike) -> bool:
        return run(self._async.exists(path))

    def get_info(self, path: PathLike) -> FileInfo:
        return run(self._async.get_info(path))

    def make_dir(self, path: PathLike) -> bool:
        return run(self._async.make_dir(path))

    def rename(self, source: PathLike, target: PathLike, *, overwrite: bool = False) -> FileInfo:
        return run(self._async.rename(source, target, overwrite=overwrite))

    def remove(self, path: PathLike, *, recursive: bool = False) -> None:
        return run(self._async.remove(path, recursive=recursive))

    def upload(self, local: PathLike, path: PathLike, *, mode: int = 0) -> FileInfo:
        return run(self._async.upload(local, path, mode=mode))

    def download(self, path: PathLike, local: PathLike) -> int:
        return run(self._async.download(path, local))


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
class Sandbox:
    def __init__(self, sandbox: AsyncSandbox) -> None:
        self._async = sandbox
        self._commands = Commands(sandbox.commands)
        self._files = Files(sandbox.files)

    @property
    def commands(self) -> Commands:
        return self._commands

    @property
    def files(self) -> Files:
        return self._files

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
        fleet: Fleet | None = None,
        rpc_timeout: float = RPC_TIMEOUT,
    ) -> Self:
        inner = fleet.as_async if fleet else None
        found = AsyncSandbox.connect(
            sandbox_id, timeout=timeout, keep_alive=keep_alive, fleet=inner, rpc_timeout=rpc_timeout
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

    def run_code(
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
        relay = Relay()
        return run(
            self._async.run_code(
                code,
                language=language,
                context=context,
                timeout=timeout,
                on_stdout=relay.wrap(on_stdout),
                on_stderr=relay.wrap(on_stderr),
                on_result=relay.wrap(on_result),
                envs=envs,
                output_limit=output_limit,
                execution_id=execution_id,
            ),
            relay,
        )

    def create_context(
        self,
        context_id: str | None = None,
        *,
        language: str = "python",
        cwd: str = "",
        envs: Mapping[str, str] | None = None,
    ) -> Context:
        return run(self._async.create_context(context_id, language=language, cwd=cwd, envs=envs))

    def list_contexts(self) -> tuple[Context, ...]:
        return run(self._async.list_contexts())

    def restart_context(self, context: str | Context = "default") -> Context:
        return run(self._async.restart_context(context))

    def delete_context(self, context: str | Context) -> None:
        return run(self._async.delete_context(context))

    def interrupt(self, context: str | Context = "default", *, grace: float = 2.0) -> bool:
        return run(self._async.interrupt(context, grace=grace))

    def get_info(self) -> SandboxInfo:
        return run(self._async.get_info())

    def wait_for_egress(self, timeout: float = 30.0) -> bool:
        return run(self._async.wait_for_egress(timeout))

    def set_timeout(self, timeout: float) -> SandboxInfo:
        return run(self._async.set_timeout(timeout))

    def usage(self) -> SandboxUsage:
        return run(self._async.usage())

    def environment(self) -> Environment:
        return run(self._async.environment())

    def health(self) -> Health:
        return run(self._async.health())

    @classmethod
    def list(
        cls, label_selector: str = "", *, namespace: str | None = None, fleet: Fleet | None = None
    ) -> list[SandboxInfo]:
        return run(AsyncSandbox.list(label_selector, namespace=namespace, fleet=fleet.as_async if fleet else None))

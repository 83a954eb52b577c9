"""Sandboxes on this machine: executor processes below one executor host."""

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sandfleet_operator.api.limits import in_numbers
from sandfleet_operator.api.values import Exit, ExitCode, Isolation, Sandbox, Template
from sandfleet_operator.cluster.tasks import readable
from sandfleet_operator.fleet.backend import Event, Exited, Ready
from sandfleet_operator.fleet.local.host import HOST_COMMAND, ExecutorHost
from sandfleet_operator.fleet.local.statedir import OwnerDir, StateDirError, remove_tree, runtimes_dir
from sandfleet_operator.fleet.local.userids import NoUserIdsError, UserIds

# Seconds until a host that does not report the end of a stopped executor counts as broken. The host takes up to 3 s.
STOP_TIMEOUT = 10.0

_LOG = logging.getLogger(__name__)


@dataclass(slots=True)
class _Run:
    """An incarnation that was asked for and has not ended."""

    sandbox: Sandbox
    host: ExecutorHost | None = None
    # Of the executor: a handle that can be signalled and waited for, whatever becomes of the number.
    pidfd: int | None = None
    failure: str = ""
    # Stopped while the host was still being started.
    unwanted: bool = False
    stopping: asyncio.TimerHandle | None = None


class LocalBackend:
    def __init__(
        self,
        directory: OwnerDir,
        templates: Mapping[str, Template],
        *,
        user_ids: UserIds | None,
        host_command: Sequence[str] = HOST_COMMAND,
    ) -> None:
        """`templates`: by pool. `user_ids`: where this process is root, so that each workspace has its own user."""
        self._directory = directory
        self._templates = templates
        self._user_ids = user_ids
        self._host_command = host_command
        self._host: ExecutorHost | None = None
        self._host_starting = asyncio.Lock()
        self._runs: dict[str, _Run] = {}
        self._events: asyncio.Queue[Event] = asyncio.Queue()
        self._tasks: set[asyncio.Task[None]] = set()
        self._closing = False

    async def start(self, sandbox: Sandbox) -> None:
        run = self._runs[sandbox.sandbox_uid] = _Run(sandbox)
        try:
            config = self._prepare(sandbox)
            run.host = await self._running_host()
        except (OSError, StateDirError, NoUserIdsError) as error:
            self._over(sandbox.sandbox_uid, Exit(message=str(error)))
            return
        if run.unwanted:
            self._over(sandbox.sandbox_uid, Exit(message="it was stopped before it was started"))
        else:
            run.host.send({"op": "start", "config": config})

    async def claim(self, sandbox: Sandbox) -> None:
        """There is no other fleet that could take it."""

    def answered(self, sandbox: Sandbox) -> float:  # noqa: ARG002 - of all
        """It ends with this fleet: there is nothing to wait for."""
        return 0.0

    async def record(self, sandbox: Sandbox) -> None:
        """It ends with this fleet."""

    def decided(self, sandbox: Sandbox) -> None:
        """No other writer is asked."""

    async def suspend(self, sandbox: Sandbox) -> None:
        await self.stop(sandbox.sandbox_uid)

    def can_suspend(self, sandbox: Sandbox) -> bool:  # noqa: ARG002 - of all
        return True

    async def resume(self, sandbox: Sandbox) -> None:
        await self.start(sandbox)

    async def gone(self, sandbox: Sandbox) -> None:
        """It has nothing but its process and its workspace."""

    async def stop(self, sandbox_uid: str) -> None:
        run = self._runs.get(sandbox_uid)
        if run is None or run.stopping is not None:
            return
        if run.host is None:
            run.unwanted = True
            return
        run.host.send({"op": "stop", "sandbox_uid": sandbox_uid})
        # A host that cannot end an executor is replaced, and everything below it with it.
        run.stopping = asyncio.get_running_loop().call_later(STOP_TIMEOUT, run.host.kill)

    async def drop_workspace(self, workspace_id: str) -> None:
        await self._remove(workspace_id)
        if self._user_ids is not None:
            self._user_ids.give_back(workspace_id)

    async def next_event(self) -> Event:
        return await self._events.get()

    async def close(self) -> None:
        self._closing = True
        async with self._host_starting:
            host, self._host = self._host, None
        if host is not None:
            await host.close()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # Files.

    def _prepare(self, sandbox: Sandbox) -> dict[str, Any]:
        template = self._templates[sandbox.pool]
        socket_path = self._directory.socket(sandbox.sandbox_uid)
        private = socket_path.parent / "p"
        workspace = self._directory.workspace(sandbox.workspace_id)
        state = self._directory.state(sandbox.workspace_id)
        for path in (socket_path.parent, private, workspace, state):
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
        separate = self._user_ids is not None and template.isolation is not Isolation.NONE
        return {
            "sandbox_id": sandbox.sandbox_id,
            "sandbox_uid": sandbox.sandbox_uid,
            "socket": str(socket_path),
            "workspace": str(workspace),
            "private_dir": str(private),
            "state_dir": str(state),
            "keys_file": str(self._directory.keys_file),
            "egress_socket": str(self._directory.egress_socket) if template.isolation is not Isolation.NONE else None,
            "isolation": template.isolation.name.lower(),
            "contract": sandbox.contract,
            "user_id": self._user_ids.of(sandbox.workspace_id) if self._user_ids is not None and separate else None,
            "limits": in_numbers(template.limits),
            "preload": list(template.preload),
            # Of a session that goes on in another executor: there, what stands in a folder's place ends nothing.
            "mounts": dict(sandbox.claim.mounts) if sandbox.claim and sandbox.bound else {},
            "rootfs": self._rootfs(template),
            "lease": None,
            "idle_timeout": None,
            "cgroup": separate,
        }

    def _rootfs(self, template: Template) -> dict[str, Any] | None:
        image = template.image
        if image is None:
            return None
        runtimes = str(runtimes_dir(os.environ))
        return {"path": image.path, "user": image.user, "envs": dict(image.envs), "runtime_dir": runtimes}

    async def _remove(self, workspace_id: str) -> None:
        try:
            for path in (self._directory.workspace(workspace_id), self._directory.state(workspace_id)):
                await asyncio.to_thread(remove_tree, path)
        except (OSError, StateDirError) as error:
            _LOG.warning("cannot remove workspace %s: %s", workspace_id, error)

    # The host.

    async def _running_host(self) -> ExecutorHost:
        async with self._host_starting:
            if self._closing:
                raise OSError("cannot start a sandbox: the fleet is stopping")
            if self._host is None:
                self._host = await ExecutorHost.launch(self._host_command)
                self._spawn(self._listen(self._host))
            return self._host

    async def _listen(self, host: ExecutorHost) -> None:
        async for event in host.events():
            self._on_event(event)
        if self._host is host:
            self._host = None
        await self._end_orphans(host)
        await host.close()

    async def _end_orphans(self, host: ExecutorHost) -> None:
        """The host is gone. Its executors end by themselves; their workspaces are not used again before that."""
        mine = [run for run in self._runs.values() if run.host is host]
        for run in mine:
            if run.pidfd is not None:
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(run.pidfd, signal.SIGKILL)
        for run in mine:
            if run.pidfd is not None:
                await readable(run.pidfd)
        words = await host.last_words()
        why = f"the executor host ended: {words}" if words else "the executor host ended"
        for run in mine:
            end = Exit(message=why) if run.pidfd is None else Exit(code=ExitCode.OWNER_GONE, message=why)
            self._over(run.sandbox.sandbox_uid, end)

    def _on_event(self, event: dict[str, Any]) -> None:
        uid = str(event.get("sandbox_uid", ""))
        run = self._runs.get(uid)
        match event.get("event"):
            case "started" if run is not None:
                with contextlib.suppress(ProcessLookupError):
                    run.pidfd = os.pidfd_open(int(event["pid"]))
            case "ready" if run is not None:
                self._events.put_nowait(Ready(uid, f"unix://{self._directory.socket(uid)}"))
            case "failed" if run is not None:
                run.failure = str(event.get("message", ""))[:2000]
                if run.pidfd is None:
                    self._over(uid, Exit(message=run.failure))
            case "exited" if run is not None:
                self._over(uid, Exit(event.get("code"), str(event.get("signal") or ""), run.failure))
            case "error":
                _LOG.warning("the executor host says: %s", str(event.get("message", ""))[:500])

    def _over(self, sandbox_uid: str, end: Exit) -> None:
        run = self._runs.pop(sandbox_uid, None)
        if run is None:
            return
        if run.stopping is not None:
            run.stopping.cancel()
        if run.pidfd is not None:
            os.close(run.pidfd)
        self._events.put_nowait(Exited(sandbox_uid, end))
        self._spawn(asyncio.to_thread(remove_tree, self._directory.socket_dir(sandbox_uid)))

    def _spawn(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

"""Executors on this machine, all started by one host process as the local backend does."""

import asyncio
import base64
import contextlib
import itertools
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from contract.executor.authority import Authority
from contract.executor.harness import PATIENCE, ExecutorUnderTest, Exit, Rig, until
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from sandfleet_executor.effects.namespace import cgroup
from support.ports import free_port

REPOSITORY = Path(__file__).parents[3]
is_root = os.geteuid() == 0
_numbers = itertools.count(1)


class LocalHost:
    """The process that starts executors, and what on this machine user code must not reach."""

    def __init__(self):
        # Short: a unix socket's path has to stay below 108 bytes.
        self.folder = Path(tempfile.mkdtemp(prefix="sfc-"))
        self.folder.chmod(0o711)
        self.secret = secrets.token_hex(16)
        self.key = Ed25519PrivateKey.generate()
        self.keys_file = self.folder / "keys.json"
        public = base64.urlsafe_b64encode(self.key.public_key().public_bytes_raw()).rstrip(b"=").decode()
        self.keys_file.write_text(json.dumps({"keys": [{"kty": "OKP", "crv": "Ed25519", "kid": "k", "x": public}]}))
        self.exits = {}
        self.states = {}
        # Sandbox uid → pid of its executor.
        self.pids = {}
        self.canaries = self._plant()
        self.authority = Authority()

    # What this set-up has beyond the other; tests that need one of them say which.
    traits = frozenset(
        {
            "own network",
            "unix socket",
            "locked mounts",
            "no_new_privs of its own",
            "a PID 1 that cannot be killed from below",
            "memory of copies told exactly",
            "files without names seen",
            "files of the executor seen",
            "the tests of Python's library",
            "pipes that outlive the sandbox",
            "holes of files told",
            "restarts at once",
            "a kernel of Jupyter",
            *([] if is_root else ["a user shared with other sandboxes"]),
            *(["own uid", "own count of processes", "memory cgroup", "memory told as a whole"] if is_root else []),
            *(["small disks"] if is_root else []),
            *(["cpu cgroup"] if is_root and cgroup.candidates("cpu") else []),
        }
    )
    # Namespaces that user code does not share with the executor.
    separated = frozenset({"pid", "mnt", "ipc", "uts", "net", "user"})

    @property
    def counts_writes(self):
        """Whether the kernel says what a process writes to a workspace: not where that lies in memory."""
        found = subprocess.run(["stat", "-f", "-c", "%T", self.folder], capture_output=True, text=True, check=True)
        return found.stdout.strip() not in {"tmpfs", "ramfs"}

    def executor(self, **options):
        """A coroutine that starts one."""
        return LocalExecutor.start(self, **options)

    def _plant(self):
        shown = self.folder / "shown"
        shown.mkdir(mode=0o755)
        home = Path.home() / f".sandfleet-canary-{secrets.token_hex(4)}"
        canaries = {"readable by everybody": shown / "canary", "of root alone": shown / "private", "at home": home}
        for path in canaries.values():
            path.write_text(self.secret)
        canaries["of root alone"].chmod(0o600)
        return canaries

    # What runs the executor's program.
    command = (sys.executable, "-m", "sandfleet_executor")

    async def start(self):
        ours, theirs = socket.socketpair()
        command = [*self.command, "host", "--control-fd", str(theirs.fileno())]
        environment = {**os.environ, "SANDFLEET_TEST_SECRET": self.secret}
        self.process = subprocess.Popen(command, pass_fds=[theirs.fileno()], env=environment)
        theirs.close()
        self._reader, self._writer = await asyncio.open_connection(sock=ours)
        self._listening = asyncio.create_task(self._listen())
        # What a sandbox without a way out must not reach: a port and an abstract unix socket.
        self.tcp = await asyncio.start_server(self._greet, "127.0.0.1", 0)
        self.tcp_port = self.tcp.sockets[0].getsockname()[1]
        self.abstract_name = f"sandfleet-test-{secrets.token_hex(8)}"
        self.abstract = await asyncio.start_unix_server(self._greet, f"\0{self.abstract_name}")

    async def _greet(self, _reader, writer):
        writer.write(self.secret.encode())
        writer.close()

    async def _listen(self):
        while line := await self._reader.readline():
            event = json.loads(line)
            uid = event.get("sandbox_uid")
            match event["event"]:
                case "exited":
                    self._future(self.exits, uid).set_result(Exit(event["code"], event["signal"]))
                    if not self._future(self.states, uid).done():
                        self._future(self.states, uid).set_result(event)
                case "ready" | "failed" if not self._future(self.states, uid).done():
                    self._future(self.states, uid).set_result(event)
                case "started":
                    # The uid of one that has ended may be started again: a restart in place, as the kubelet's.
                    self.exits.pop(uid, None)
                    self.pids[uid] = event["pid"]

    def _future(self, table, uid):
        return table.setdefault(uid, asyncio.get_running_loop().create_future())

    @contextlib.contextmanager
    def small_disk(self, options):
        """The folder of a file system of its own, as full as a mount's `options` allow."""
        folder = Path(tempfile.mkdtemp(dir=self.folder))
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)], check=True)
        try:
            yield folder
        finally:
            subprocess.run(["umount", "--lazy", str(folder)], check=True)

    def request(self, **request):
        self._writer.write(json.dumps(request).encode() + b"\n")

    async def started(self, uid):
        """The event that says how the start went."""
        return await asyncio.wait_for(self._future(self.states, uid), PATIENCE)

    async def refusal(self, config):
        """What an executor says that is told to serve this."""
        uid = f"refused-{next(_numbers)}"
        self.request(op="start", config={"sandbox_uid": uid, **config})
        event = await self.started(uid)
        assert event["event"] == "failed"
        return event["message"]

    async def exited(self, uid):
        return await asyncio.wait_for(asyncio.shield(self._future(self.exits, uid)), PATIENCE)

    async def close(self):
        self.tcp.close()
        self.abstract.close()
        self._writer.close()
        await asyncio.to_thread(self.process.wait, 30)
        await self._listening
        self.canaries["at home"].unlink()
        # Tests leave folders closed to their owner.
        await asyncio.to_thread(subprocess.run, ["chmod", "-R", "u+rwX", self.folder], check=True)
        shutil.rmtree(self.folder)


@dataclass
class LocalExecutor(ExecutorUnderTest):
    restarts: bool = False
    # Their identity → a descriptor: while it is open, no other namespace gets the same identity.
    _namespaces: dict = field(default_factory=dict)

    @classmethod
    async def start(cls, host, **options):
        """One executor, started."""
        rig, number = Rig.of(options), next(_numbers)
        self = cls(host, cls._configuration(host, rig, number), restarts=rig.restarts)
        host.request(op="start", config=self.config)
        event = await host.started(self.config["sandbox_uid"])
        assert event["event"] == "ready", event
        await rig.ready(self, signed=rig.port and rig.signed)
        self._look()
        return self

    @staticmethod
    def _configuration(host, rig, number):
        """What the executor is told, with folders of its own."""
        folder = host.folder / str(number)
        for name, mode in ((".", 0o711), ("w", 0o755), ("p", 0o700), ("s", 0o700)):
            (folder / name).mkdir()
            (folder / name).chmod(mode)
        (folder / "p" / "own").write_text(host.secret)
        return {
            "sandbox_id": f"sandbox-{number}",
            "sandbox_uid": f"t{os.getpid()}-{number}",
            **(
                {"listen": f"127.0.0.1:{free_port()}", "keys_authority": "any"}
                if rig.port
                else {"socket": str(folder / "x.sock")}
            ),
            "workspace": str(folder / "w"),
            "state_dir": str(folder / "s"),
            "private_dir": str(folder / "p"),
            "keys_file": str(host.keys_file),
            "isolation": rig.isolation,
            "user_id": 500_000_000 + os.getpid() % 100_000 * 1_000 + number if is_root else None,
            "cgroup": is_root,
            **rig.config,
        }

    # As the machine sees it

    @property
    def pid(self):
        return self.host.pids[self.config["sandbox_uid"]]

    @property
    def secret(self):
        """Stands in every file of `hidden`, and in the executor's environment."""
        return self.host.secret

    @property
    def hidden(self):
        """What → path outside of the sandbox, for user code to look for."""
        return {name: str(path) for name, path in self.host.canaries.items()} | {
            "the repository": str(REPOSITORY / "pyproject.toml"),
            "the executor's private folder": f"{self.config['private_dir']}/own",
            "the keys of tokens": self.config["keys_file"],
            "the stored executions": f"{self.config['state_dir']}/ids-1",
            "the journal": f"{self.config['state_dir']}/journal/1-1",
            "the executor's socket": self.config.get("socket", ""),
        }

    def namespaces(self):
        """Name → identity of the namespaces that the executor itself is in."""
        return {path.name: str(path.readlink()) for path in Path(f"/proc/{self.pid}/ns").iterdir()}

    def restart_peak(self):
        """From now on `peak_memory` counts afresh."""
        Path(f"/proc/{self.pid}/clear_refs").write_text("5")

    def peak_memory(self):
        """Most bytes resident in the executor itself since `restart_peak`."""
        lines = dict(line.split(":", 1) for line in Path(f"/proc/{self.pid}/status").read_text().splitlines())
        return int(lines["VmHWM"].split()[0]) << 10

    def memory(self):
        """Bytes resident in the executor itself."""
        return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def descriptors(self):
        """How many the executor itself has open."""
        return len(list(Path(f"/proc/{self.pid}/fd").iterdir()))

    def processes(self):
        """Pids of everything that the executor has started and that is left, however it hides."""
        self._look()
        return {pid for pid, status in _processes().items() if self._is_ours(pid, status)}

    def parents(self):
        """Pids of the parents of `processes`, which change when their parents end."""
        return {status.parent for pid, status in _processes().items() if self._is_ours(pid, status)}

    def cgroups(self):
        """Folders of cgroups that are left."""
        uid = self.config["sandbox_uid"]
        folders = ("pids", f"sandfleet-{uid}"), ("memory", f"sandfleet/{uid}"), ("cpu", f"sandfleet/{uid}")
        places = [base / folder for controller, folder in folders for base in cgroup.candidates(controller)]
        return [place for place in places if place.exists()]

    def kill(self):
        os.kill(self.pid, signal.SIGKILL)

    def terminate(self):
        self.host.request(op="stop", sandbox_uid=self.config["sandbox_uid"])

    async def back(self):
        """Waits for its end, and until one started in its place is ready."""
        assert self.restarts
        await self.exit()
        uid = self.config["sandbox_uid"]
        self.host.states.pop(uid, None)
        self.host.request(op="start", config=self.config)
        event = await self.host.started(uid)
        assert event["event"] == "ready", event

    async def exit(self):
        """How the executor ended; waits for it."""
        return await self.host.exited(self.config["sandbox_uid"])

    @property
    def ended(self):
        future = self.host.exits.get(self.config["sandbox_uid"])
        return future is not None and future.done()

    async def stop(self):
        for client in self.clients:
            await client.close()
        self.host.request(op="stop", sandbox_uid=self.config["sandbox_uid"])
        await self.exit()
        # Whatever a test did: nothing of it is left.
        await until(lambda: not self.processes())
        for descriptor in self._namespaces.values():
            os.close(descriptor)
        self._namespaces.clear()

    def _look(self):
        """Remembers the PID namespaces below the executor: they name its processes also after its end."""
        if self.ended:
            return  # Its pid may be another process's by now.
        own = _namespace_of("self")
        for pid in _below(_processes(), self.pid):
            name = _namespace_of(pid)
            if name in {own, None, *self._namespaces}:
                continue
            with contextlib.suppress(OSError):
                descriptor = os.open(f"/proc/{pid}/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
                self._namespaces[Path(f"/proc/self/fd/{descriptor}").readlink()] = descriptor

    def _is_ours(self, pid, status):
        user = self.config["user_id"]
        return (user is not None and user in status.users) or _namespace_of(pid) in self._namespaces


@dataclass(frozen=True)
class _Status:
    parent: int
    users: frozenset


def _processes():
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, KeyError):
            lines = dict(line.split(":", 1) for line in (folder / "status").read_text().splitlines())
            found[int(folder.name)] = _Status(int(lines["PPid"]), frozenset(map(int, lines["Uid"].split())))
    return found


def _below(processes, root):
    found, todo = [], [root]
    while todo:
        parent = todo.pop()
        below = [pid for pid, status in processes.items() if status.parent == parent]
        found += below
        todo += below
    return found


def _namespace_of(pid):
    try:
        return Path(f"/proc/{pid}/ns/pid").readlink()
    except OSError:
        return None

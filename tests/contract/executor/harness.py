"""One executor under test, seen from outside. Whatever looks at the machine is here: elsewhere the suite only calls the API.

Another set-up (a pod) has to give an object with the same public methods.
"""

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
import time
from dataclasses import dataclass, field
from pathlib import Path

import grpc
import jwt
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from google.protobuf.duration_pb2 import Duration
from sandfleet.errors import SandboxEnded
from sandfleet.sandbox import AsyncSandbox
from sandfleet.transport import Link, open_channel
from sandfleet_api.executor.v1 import common_pb2, session_pb2, session_pb2_grpc
from sandfleet_api.fleet.v1 import fleet_pb2

SCOPES = "interpreter process filesystem session admin"
PATIENCE = 60.0
REPOSITORY = Path(__file__).parents[3]
is_root = os.geteuid() == 0
_numbers = itertools.count(1)


async def until(condition, *, seconds=PATIENCE):
    """Polls until the condition (plain or async) is true; its value."""
    async with asyncio.timeout(seconds):
        while True:
            value = condition()
            if asyncio.iscoroutine(value):
                value = await value
            if value:
                return value
            await asyncio.sleep(0.05)


def seconds(value):
    return None if value is None else Duration(seconds=int(value), nanos=round(value % 1 * 1e9))


@dataclass(frozen=True)
class Exit:
    code: int | None
    signal: str | None


class Host:
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

    def _plant(self):
        shown = self.folder / "shown"
        shown.mkdir(mode=0o755)
        home = Path.home() / f".sandfleet-canary-{secrets.token_hex(4)}"
        canaries = {"readable by everybody": shown / "canary", "of root alone": shown / "private", "at home": home}
        for path in canaries.values():
            path.write_text(self.secret)
        canaries["of root alone"].chmod(0o600)
        return canaries

    async def start(self):
        ours, theirs = socket.socketpair()
        command = [sys.executable, "-m", "sandfleet_executor", "host", "--control-fd", str(theirs.fileno())]
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

    def request(self, **request):
        self._writer.write(json.dumps(request).encode() + b"\n")

    async def started(self, uid):
        """The event that says how the start went."""
        return await asyncio.wait_for(self._future(self.states, uid), PATIENCE)

    async def exited(self, uid):
        return await asyncio.wait_for(asyncio.shield(self._future(self.exits, uid)), PATIENCE)

    async def close(self):
        self.tcp.close()
        self.abstract.close()
        self._writer.close()
        await asyncio.to_thread(self.process.wait, 30)
        await self._listening
        self.canaries["at home"].unlink()
        shutil.rmtree(self.folder)


@dataclass
class ExecutorUnderTest:
    """One executor. Its `sandbox` is a client's; it is also the fleet that this client knows."""

    host: Host
    config: dict
    clients: list = field(default_factory=list)
    _namespaces: set = field(default_factory=set)

    @classmethod
    async def start(cls, host, *, session="session", lease=None, idle_timeout=None, isolation="namespace", **config):
        """`limits` as the executor's configuration takes them; `session` None leaves it warm."""
        number = next(_numbers)
        uid = f"t{os.getpid()}-{number}"
        folder = host.folder / str(number)
        for name, mode in ((".", 0o711), ("w", 0o755), ("p", 0o700)):
            (folder / name).mkdir()
            (folder / name).chmod(mode)
        (folder / "p" / "own").write_text(host.secret)
        config = {
            "sandbox_id": f"sandbox-{number}",
            "sandbox_uid": uid,
            "socket": str(folder / "x.sock"),
            "workspace": str(folder / "w"),
            "private_dir": str(folder / "p"),
            "keys_file": str(host.keys_file),
            "isolation": isolation,
            "user_id": 500_000_000 + os.getpid() % 100_000 * 1_000 + number if is_root else None,
            "cgroup": is_root,
            **config,
        }
        self = cls(host, config)
        host.request(op="start", config=config)
        event = await host.started(uid)
        assert event["event"] == "ready", event
        if session is not None:
            await self.open(session, lease=lease, idle_timeout=idle_timeout)
        self.sandbox = self.client()
        self._look()
        return self

    # As a client sees it

    def client(self, *, token=None):
        """A sandbox object with a connection of its own; with `token` it never gets another one."""
        fleet = _Fleet(self, token)
        made = AsyncSandbox(
            Link(fleet, *fleet.bound(), rpc_timeout=PATIENCE), lease=300, created=False, keep_alive=None
        )
        self.clients.append(made)
        return made

    def channel(self):
        """A bare channel, for what the client would never send."""
        return open_channel(f"unix:{self.config['socket']}")

    def token(self, key=None, **claims):
        """A token; claims replace the good ones, None leaves one out."""
        now = int(time.time())
        good = {
            "iss": "sandfleet",
            "aud": self.config["sandbox_uid"],
            "sub": "uid:0",
            "sid": self.config["sandbox_id"],
            "scope": SCOPES,
            "contract": "autonomous",
            "iat": now,
            "nbf": now,
            "exp": now + 3600,
        }
        said = {name: value for name, value in (good | claims).items() if value is not None}
        return jwt.encode(said, key or self.host.key, algorithm="EdDSA", headers={"kid": "k"})

    async def open(self, session, *, lease=None, idle_timeout=None, envs=None, limits=None):
        """SessionService.Open, which the fleet calls at the claim and to renew. Raises AioRpcError."""
        request = session_pb2.OpenRequest(
            session_id=session,
            lease=seconds(lease),
            idle_timeout=seconds(idle_timeout),
            envs=envs or {},
            limits=common_pb2.Limits(**(limits or {})),
        )
        return (await self._admin("Open", request)).description

    async def close_session(self):
        await self._admin("Close", session_pb2.CloseRequest())

    async def _admin(self, method, request):
        async with self.channel() as channel:
            call = getattr(session_pb2_grpc.SessionServiceStub(channel), method)
            metadata = (("authorization", f"Bearer {self.token()}"),)
            return await call(request, metadata=metadata, timeout=PATIENCE, wait_for_ready=True)

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
            "the executor's socket": self.config["socket"],
        }

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

    def processes(self):
        """Pids of everything that the executor has started and that is left, however it hides."""
        self._look()
        return {pid for pid, status in _processes().items() if self._is_ours(pid, status)}

    def cgroups(self):
        """Folders of cgroups that are left."""
        bases = (Path("/sys/fs/cgroup/pids"), Path("/sys/fs/cgroup"))
        return [path for base in bases if (path := base / f"sandfleet-{self.config['sandbox_uid']}").exists()]

    def kill(self):
        os.kill(self.pid, signal.SIGKILL)

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

    def _look(self):
        """Remembers the PID namespaces below the executor: they name its processes also after its end."""
        own = _namespace_of("self")
        found = {_namespace_of(pid) for pid in _below(_processes(), self.pid)}
        self._namespaces |= found - {own, None}

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


class _Fleet:
    """What the client's link needs of a fleet, for one executor."""

    def __init__(self, executor, token):
        self._executor = executor
        self._token = token

    def bound(self):
        config = self._executor.config
        sandbox = fleet_pb2.Sandbox(sandbox_id=config["sandbox_id"], sandbox_uid=config["sandbox_uid"])
        token = self._executor.token() if self._token is None else self._token
        return sandbox, fleet_pb2.Access(address=f"unix:{config['socket']}", token=token)

    async def access(self, _sandbox_id, *, wait):
        del wait
        # The fleet hears of the end from the host, a moment after a client does.
        await asyncio.sleep(0.2)
        if self._executor.ended:
            raise SandboxEnded("cannot open it: its executor has ended")
        return self.bound()


__all__ = ["ExecutorUnderTest", "Exit", "Host", "grpc", "until"]

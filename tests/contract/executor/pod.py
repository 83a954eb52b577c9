"""Executors in gVisor pods, below a namespace that enforces PodSecurity `restricted`.

What looks into them does so from the node.
"""

import asyncio
import base64
import itertools
import json
import os
import secrets
import subprocess
from dataclasses import dataclass, field
from functools import cached_property

from contract.executor.authority import Authority
from contract.executor.harness import PATIENCE, ExecutorUnderTest, Exit, Rig, until
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from sandfleet_operator.plan.pods import delivery

# The name of another image of the executor in the cluster: one with more packages, or of another tree.
IMAGE = os.environ.get("SANDFLEET_EXECUTOR_IMAGE", "localhost/sandfleet-executor:dev")
# The name of an image beside which the executor comes, and who code is there: "root", or a number.
BESIDE, USER = os.environ.get("SANDFLEET_BESIDE", ""), os.environ.get("SANDFLEET_BESIDE_USER", "root")
PORT = 50051
PLACES = delivery.BESIDE if BESIDE else delivery.IN_IMAGE
PRIVATE = PLACES.private
PYTHON = f"{delivery.BUNDLE}/bin/python3.11" if BESIDE else "python3"
USER_ID = (0 if USER == "root" else int(USER)) if BESIDE else 1000
RUNSC_ROOT = "/run/containerd/runsc/k8s.io"
MIB = 1 << 20
# Above the limit for user code: the executor itself, and the sentry.
RESERVE = 768 * MIB
# Under gVisor a forked Python costs 19 MB from the start, and a fork bomb leaves the memory guard no processor time. So
# an executor there allows only as many processes as fit; a lower limit makes the tests shorter.
PROCESSES = 128
NO_PRIVILEGE = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "readOnlyRootFilesystem": True,
}
POD_SECURITY = {
    "runAsNonRoot": True,
    "runAsUser": 1000,
    "runAsGroup": 1000,
    "fsGroup": 1000,
    "seccompProfile": {"type": "RuntimeDefault"},
}
if BESIDE:
    POD_SECURITY |= {"runAsNonRoot": USER_ID > 0, "runAsUser": USER_ID, "runAsGroup": USER_ID}
    NO_PRIVILEGE["readOnlyRootFilesystem"] = False
    if not USER_ID:
        NO_PRIVILEGE["capabilities"]["add"] = list(delivery.CAPABILITIES)
# Run in the container, outside of the session namespace: it sees all of its processes.
OTHERS = """
import os
print([int(pid) for pid in os.listdir("/proc") if pid.isdecimal() and int(pid) not in (1, os.getpid())])
"""
NAMESPACES = "import json, os; print(json.dumps({n: os.readlink(f'/proc/1/ns/{n}') for n in os.listdir('/proc/1/ns')}))"
DESCRIPTORS = "import os; print(len(os.listdir('/proc/1/fd')))"
RESIDENT = "print(int(open('/proc/1/statm').read().split()[1]) * 4096)"
# Until the end of its input: a process that `runsc exec` has started outlives that.
WATCH_PEAK = """
import select, sys
peak = 0
print("watching", flush=True)
while not select.select([sys.stdin], [], [], 0.02)[0]:
    peak = max(peak, int(open('/proc/1/statm').read().split()[1]) * 4096)
print(peak)
"""
_numbers = itertools.count(1)


class PodHost:
    """One namespace for the executors of a test run. `cluster` has a node that can be reached into."""

    traits = frozenset({"name server", "own count of processes", "memory told as a whole", "network of the pod"})
    # Namespaces that user code does not share with the executor; gVisor shows these.
    separated = frozenset({"pid", "mnt", "ipc", "uts", "user"})
    # gVisor has no figure for what a process writes to storage: usage says that it is not known.
    counts_writes = False

    def __init__(self, cluster):
        self.cluster = cluster
        self.namespace = f"executors-{secrets.token_hex(4)}"
        self.secret = secrets.token_hex(16)
        self.key = Ed25519PrivateKey.generate()
        self.authority = Authority()

    async def start(self):
        level = "baseline" if BESIDE and USER == "root" else "restricted"
        labels = {"pod-security.kubernetes.io/enforce": level}
        api = self.cluster.api
        await self.do(
            api.create,
            {**_object("v1", "Namespace", self.namespace), "metadata": {"name": self.namespace, "labels": labels}},
        )
        public = base64.urlsafe_b64encode(self.key.public_key().public_bytes_raw()).rstrip(b"=").decode()
        keys = {"keys": [{"kty": "OKP", "crv": "Ed25519", "kid": "k", "x": public}]}
        await self.do(api.create, {**self._own("v1", "ConfigMap", "keys"), "data": {"keys.json": json.dumps(keys)}})
        await until(lambda: self.cluster.api.list("ServiceAccount", self.namespace))

    @staticmethod
    async def do(function, *arguments):
        return await asyncio.to_thread(function, *arguments)

    def executor(self, **options):
        """A coroutine that starts one."""
        return PodExecutor.start(self, **options)

    async def refusal(self, config):
        """What an executor says that is told to serve this."""
        name = f"refused-{next(_numbers)}"
        await self.do(self.cluster.api.create, self.pod(name, {"limits": {}, **config}, restarts=False, workspace=None))
        one = PodExecutor(self, {}, name=name)
        assert (await one.exit()).code == 44
        return await asyncio.to_thread(self.cluster.kubectl, "logs", "-n", self.namespace, name)

    async def close(self):
        await self.do(self.cluster.api.delete, "Namespace", self.namespace)

    async def claim(self, name):
        value = self._own("v1", "PersistentVolumeClaim", name)
        spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
        await self.do(self.cluster.api.create, {**value, "spec": spec})

    def pod(self, name, config, *, restarts, workspace):
        memory = config["limits"].get("memory_bytes", 2048 * MIB) + RESERVE
        disk = {"persistentVolumeClaim": {"claimName": workspace}} if workspace else {"emptyDir": {"sizeLimit": "2Gi"}}
        container = {
            "name": "executor",
            "image": IMAGE,
            "imagePullPolicy": "IfNotPresent",
            "securityContext": NO_PRIVILEGE,
            "env": [
                {"name": "SANDFLEET_POD_UID", "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}},
                {"name": "SANDFLEET_EXECUTOR_CONFIG", "value": json.dumps(config).replace("$", "$$")},
                {"name": "SANDFLEET_TEST_SECRET", "value": self.secret},
            ],
            "resources": {"requests": {"cpu": "10m", "memory": "64Mi"}, "limits": {"memory": str(memory)}},
            "readinessProbe": {"tcpSocket": {"port": PORT}, "periodSeconds": 10},
            "volumeMounts": PLACES.mounts,
        }
        bundle = []
        if BESIDE:
            mount = {"name": "executor", "mountPath": delivery.BUNDLE, "subPath": "opt/sandfleet", "readOnly": True}
            container |= {"image": BESIDE, "command": list(delivery.COMMAND)}
            container["volumeMounts"] = [mount, *PLACES.mounts]
            bundle = [{"name": "executor", "image": {"reference": IMAGE, "pullPolicy": "IfNotPresent"}}]
        spec = {
            "runtimeClassName": "gvisor",
            "restartPolicy": "Always" if restarts else "Never",
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "terminationGracePeriodSeconds": 0,
            "securityContext": POD_SECURITY,
            "containers": [container],
            "volumes": [
                {"name": "workspace", **disk},
                {"name": "private", "emptyDir": {"sizeLimit": "1Mi"}},
                {"name": "scratch", "emptyDir": {"sizeLimit": "64Mi"}},
                {"name": "keys", "projected": {"sources": [{"configMap": {"name": "keys"}}]}},
                *bundle,
            ],
        }
        return {**self._own("v1", "Pod", name), "spec": spec}

    def _own(self, version, kind, name):
        return {"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": self.namespace}}


def _object(version, kind, name):
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}}


@dataclass
class PodExecutor(ExecutorUnderTest):
    name: str = ""
    restarts: bool = False
    _peak: subprocess.Popen = field(default=None, repr=False)

    @classmethod
    async def start(cls, host, **options):
        """As the local one's; `workspace` is the claim of an earlier one that `keeps_workspace`."""
        rig, name = Rig.of(options), f"executor-{next(_numbers)}"
        workspace = rig.config.get("workspace")
        if rig.keeps_workspace:
            workspace = f"workspace-{name}"
            await host.claim(workspace)
        said = cls._configuration(rig, name)
        await host.do(host.cluster.api.create, host.pod(name, said, restarts=rig.restarts, workspace=workspace))
        self = cls(host, said, name=name, restarts=rig.restarts)
        uid, address = await until(lambda: host.do(self._place))
        # The workspace is the name of its claim.
        placed = {"sandbox_uid": uid, "listen": f"{address}:{PORT}", "workspace": workspace, "user_id": None}
        self.config = {**said, **placed}
        await until(self._answers)
        if rig.isolation == "none":
            # Code in it looks for what an isolated one hides.
            await asyncio.to_thread(lambda: self.hidden)
        return await rig.ready(self, signed=rig.signed)

    @staticmethod
    def _configuration(rig, name):
        """What the executor is told. The state goes with the volume, unless the test wants none."""
        left_out = {"cgroup", "workspace", "user_id", "state_dir"}
        own = {key: value for key, value in rig.config.items() if key not in left_out}
        return {
            "sandbox_id": name,
            "workspace": f"{PLACES.volume}/workspace",
            "state_dir": f"{PLACES.volume}/state" if rig.config.get("state_dir", "") is not None else None,
            "private_dir": PRIVATE,
            "keys_file": f"{PLACES.keys}/keys.json",
            "rootfs": {"path": "/"} if BESIDE and rig.isolation == "namespace" else None,
            "listen": f"0.0.0.0:{PORT}",
            "keys_authority": "any",
            "isolation": rig.isolation,
            **own,
            "limits": {"processes": PROCESSES, **own.get("limits", {})},
            "network": "pod",
        }

    def _place(self):
        """The pod's uid and address, as soon as it has one; raises AssertionError for one that will never answer."""
        pod = self.host.cluster.api.get("Pod", self.name, self.host.namespace)
        assert pod["status"]["phase"] in ("Pending", "Running"), pod["status"]
        address = pod["status"].get("podIP")
        return (pod["metadata"]["uid"], address) if address else None

    async def _answers(self):
        """Whether the port is open. The kubelet asks the same, but once a second."""
        hostname, port = self.config["listen"].split(":")
        try:
            async with asyncio.timeout(1):
                _, writer = await asyncio.open_connection(hostname, int(port))
        except OSError:
            return False
        writer.close()
        return True

    # As the node sees it

    @property
    def secret(self):
        return self.host.secret

    @cached_property
    def hidden(self):
        """What → path in the container that is not to be in the session namespace."""
        paths = {
            "readable by everybody": f"{PLACES.scratch}/canary",
            "of root alone": f"{PRIVATE}/own",
            "at home": f"{PLACES.scratch}/.at-home",
            "the repository": PLACES.volume if BESIDE else "/run/sandfleet",
            "the executor's private folder": PRIVATE,
            "the keys of tokens": f"{PLACES.keys}/keys.json",
            "the stored executions": f"{PLACES.volume}/state/ids-1",
            "the journal": f"{PLACES.volume}/state/journal/1-1",
        }
        files = (f"{PRIVATE}/own", f"{PLACES.scratch}/canary", f"{PLACES.scratch}/.at-home")
        lines = [f"open({path!r}, 'w').write({self.secret!r})" for path in files]
        self._run("import os; os.umask(0o022)\n" + "\n".join(lines))
        return paths

    def namespaces(self):
        """Name → identity of the namespaces that the executor itself is in."""
        return json.loads(self._run(NAMESPACES))

    def restart_peak(self):
        if self._peak:
            self._peak.communicate()
        self._peak = subprocess.Popen(
            self._command(WATCH_PEAK), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._peak.stdout.readline()

    def peak_memory(self):
        said, self._peak = self._peak.communicate(timeout=PATIENCE)[0], None
        return int(said)

    def memory(self):
        return int(self._run(RESIDENT))

    def descriptors(self):
        return int(self._run(DESCRIPTORS))

    def processes(self):
        """Pids (in the container) of everything but the executor."""
        if self.ended:
            return set()
        try:
            return set(json.loads(self._run(OTHERS)))
        except subprocess.CalledProcessError:
            # It has ended since.
            return set()

    def cgroups(self):
        return []

    def kill(self):
        self._signal("SIGKILL")

    def terminate(self):
        self._signal("SIGTERM")

    async def exit(self):
        return await until(lambda: asyncio.to_thread(self._exit))

    async def back(self):
        def started_again():
            status = self._status()
            return status["restartCount"] > 0 and "running" in status["state"]

        await until(lambda: asyncio.to_thread(started_again))
        await until(self._answers)

    @property
    def ended(self):
        # Where the kubelet starts it again it has not.
        return not self.restarts and self._exit() is not None

    async def stop(self):
        for client in self.clients:
            await client.close()
        if self._peak:
            await asyncio.to_thread(self._peak.communicate)
        await self.host.do(self.host.cluster.api.delete, "Pod", self.name, self.host.namespace)

    def _status(self):
        pod = self.host.cluster.api.get("Pod", self.name, self.host.namespace)
        return (pod["status"].get("containerStatuses") or [{"state": {}, "restartCount": 0, "ready": False}])[0]

    def _exit(self):
        status = self._status()
        ended = status["state"].get("terminated") or status.get("lastState", {}).get("terminated")
        if ended is None:
            return None
        return Exit(None, "SIGKILL") if ended["exitCode"] == 137 else Exit(ended["exitCode"], None)

    @property
    def container(self):
        """Its id, as containerd has it."""
        return self._status()["containerID"].partition("//")[2]

    def _signal(self, name):
        ctr = self.host.cluster.programs["ctr"]
        socket = self.host.cluster.layout.containerd_socket
        place = ["--address", str(socket), "--namespace", "k8s.io"]
        self.host.cluster.on_node(str(ctr), *place, "tasks", "kill", "--signal", name, self.container)

    def _command(self, code):
        """Python in the container, beside the executor."""
        runsc = self.host.cluster.programs["runsc"]
        inside = [
            str(runsc),
            f"--root={RUNSC_ROOT}",
            "exec",
            f"--user={USER_ID}:{USER_ID}",
            self.container,
            PYTHON,
            "-c",
            code,
        ]
        return self.host.cluster.node_command(*inside)

    def _run(self, code):
        return subprocess.run(self._command(code), capture_output=True, text=True, check=True, timeout=PATIENCE).stdout

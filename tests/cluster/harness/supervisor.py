"""The first process of the node, in mount, PID, network, host name and IPC namespaces of its own.

`unshare … python -m cluster.harness.supervisor DIRECTORY`: it waits until it is connected, prepares the namespaces, and
keeps the components running. When it ends, the kernel ends all processes of the node and removes its mounts and links.
"""

from __future__ import annotations

import os
import resource
import signal
import socket
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path

from .components import PORT, Component, load
from .layout import NODE_NAME, REPOSITORY, Layout

GO = b"go"
TICK_SECONDS = 0.1
FIRST_PAUSE, LONGEST_PAUSE = 0.2, 3.0
STEADY_SECONDS = 10
MOST_LOG_BYTES = 64 << 20

# The node's own instead of the machine's: a directory of the cluster ("" means one in memory).
PRIVATE = {
    "/run": "",
    "/var/lib/cni": "",
    "/var/lib/kubelet": "kubelet",
    "/var/log/pods": "pod-logs",
    "/var/log/containers": "container-logs",
}
# The kubelet sets these for the whole machine, unless they already are as it wants them: it is shown files that are.
TUNABLES = {
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/keys/root_maxbytes": "25000000",
}
# All for this network namespace only. Without tcp_loose=0 a cut flow would be taken for a new one; strict return paths
# keep a pod from using another one's address.
SYSCTLS = {
    "net/ipv4/ip_forward": "1",
    "net/ipv4/conf/all/rp_filter": "1",
    "net/ipv4/conf/default/rp_filter": "1",
    "net/ipv6/conf/all/disable_ipv6": "1",
    "net/ipv6/conf/default/disable_ipv6": "1",
    "net/netfilter/nf_conntrack_tcp_loose": "0",
}


def call(*command: str) -> None:
    subprocess.run(command, check=True)


def prepare(layout: Layout) -> None:
    socket.sethostname(NODE_NAME)
    for path, source in PRIVATE.items():
        if source:
            (layout.root / source).mkdir(exist_ok=True)
            call("mount", "--bind", str(layout.root / source), path)
        else:
            call("mount", "-t", "tmpfs", "-o", "mode=0755", "tmpfs", path)
    files = layout.etc / "tunables"
    for name, value in TUNABLES.items():
        copy = files / name.replace("/", ".")
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(value + "\n")
        if Path("/proc/sys", name).exists():
            call("mount", "--bind", str(copy), f"/proc/sys/{name}")
    # Only now, and within this namespace only: volumes may be mounted into containers after these have started.
    call("mount", "--make-rshared", "/")
    call("ip", "link", "set", "lo", "up")
    for name, value in SYSCTLS.items():
        setting = Path("/proc/sys", name)
        if setting.exists():
            setting.write_text(value)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


@dataclass
class Child:
    component: Component
    pid: int = 0
    since: float = 0.0
    pause: float = FIRST_PAUSE
    not_before: float = 0.0


@dataclass
class Supervisor:
    layout: Layout
    children: list[Child]
    ready: set[str] = field(default_factory=set)

    def environment(self) -> dict[str, str]:
        """Our own shim first, then the directories of all programs, then the system's."""
        own = [str(self.layout.root / "bin")]
        programs = {str(Path(child.component.command[0]).parent) for child in self.children}
        path = [*own, *sorted(programs), "/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"]
        return {
            "PATH": ":".join(path),
            "HOME": str(self.layout.root),
            "PYTHONPATH": str(REPOSITORY / "tests"),
            "PYTHONDONTWRITEBYTECODE": "1",
        }

    def start(self, child: Child, now: float) -> None:
        name = child.component.name
        with self.log(name).open("ab") as output:
            process = subprocess.Popen(
                child.component.command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=self.environment(),
                cwd="/",
                start_new_session=True,
            )
        child.pid, child.since = process.pid, now
        (self.layout.run / f"{name}.pid").write_text(str(process.pid))
        print(f"started {name}", flush=True)

    def log(self, name: str) -> Path:
        return self.layout.logs / f"{name}.log"

    def bound_log(self, name: str) -> None:
        """All write at the end of their file, so that it can be emptied under them."""
        log = self.log(name)
        if log.stat().st_size > MOST_LOG_BYTES:
            log.write_text(f"(emptied at {MOST_LOG_BYTES >> 20} MiB)\n")

    def reap(self, now: float) -> None:
        """Take note of what has ended; as the first process this one inherits every orphan of the node."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            for child in self.children:
                if child.pid == pid:
                    self.ended(child, os.waitstatus_to_exitcode(status), now)

    def ended(self, child: Child, code: int, now: float) -> None:
        name = child.component.name
        child.pause = FIRST_PAUSE if now - child.since > STEADY_SECONDS else min(child.pause * 2, LONGEST_PAUSE)
        child.pid, child.not_before = 0, now + child.pause
        self.ready.discard(name)
        (self.layout.run / f"{name}.pid").unlink(missing_ok=True)
        print(f"{name} ended with {code}; again in {child.pause} s", flush=True)

    def look(self, child: Child) -> bool:
        """Whether a component does its work already."""
        if child.component.ready == "api":
            context = ssl.create_default_context(cafile=str(self.layout.pki / "ca.crt"))
            try:
                with urllib.request.urlopen(f"https://localhost:{PORT}/readyz", context=context, timeout=1) as reply:
                    return bool(reply.status == 200)
            except (urllib.error.URLError, OSError):
                return False
        if child.component.ready:
            with socket.socket() as probe:
                probe.settimeout(1)
                return probe.connect_ex(("127.0.0.1", int(child.component.ready))) == 0
        return True

    def step(self, now: float) -> None:
        self.reap(now)
        for child in self.children:
            name, after = child.component.name, child.component.after
            if child.pid == 0 and now >= child.not_before and (not after or after in self.ready):
                self.start(child, now)
            elif child.pid and name not in self.ready and self.look(child):
                self.ready.add(name)
            if child.pid:
                self.bound_log(name)


def main(directory: str) -> None:
    if sys.stdin.buffer.read(len(GO)) != GO:
        sys.exit("cannot run the node: the process that began it ended before it was connected")
    layout = Layout(Path(directory))
    for stale in layout.run.iterdir():
        stale.unlink()
    prepare(layout)
    components = load((layout.etc / "components.json").read_text())
    supervisor = Supervisor(layout, [Child(component) for component in components])
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    while True:
        supervisor.step(time.monotonic())
        signal.sigtimedwait({signal.SIGCHLD}, TICK_SECONDS)


if __name__ == "__main__":
    main(sys.argv[1])

"""`sandfleet doctor`: the isolation of this machine, the way to a cluster, or the state of an installation."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from contextlib import suppress
from dataclasses import asdict
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from sandfleet.cli import FAILED, OK, table
from sandfleet.cli.checks import Check, show
from sandfleet.values.sandbox import Isolation

_PROBE_TIMEOUT = 20.0
# 1 on Ubuntu since 23.10.
_RESTRICTED = Path("/proc/sys/kernel/apparmor_restrict_unprivileged_userns")
# What the session namespace is made of, less what it has inside.
_NAMESPACE = [
    "--unshare-pid",
    "--unshare-ipc",
    "--unshare-uts",
    "--ro-bind",
    "/",
    "/",
    "--proc",
    "/proc",
    "--dev",
    "/dev",
]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what the command takes."""
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--cluster", action="store_true", help="check the way to a cluster's fleet instead")
    parser.add_argument("--platform", action="store_true", help="check the installation on a cluster, by kubectl")
    parser.add_argument("-n", "--namespace", metavar="NS", help="namespace of the sandboxes, with --cluster")
    parser.add_argument("--sandbox", metavar="ID", help="also the way to this sandbox (NAMESPACE/NAME), with --cluster")


def run(options: argparse.Namespace) -> int:
    """Run the checks and report; return 0 if sandboxes can be isolated on this machine, else 1.

    With --cluster and --platform: 0 if all is well, else 3.
    """
    if options.cluster:
        return int(import_module("sandfleet.cli.fleets.way").run(options))
    if options.platform:
        return int(import_module("sandfleet.cli.fleets.installation").run(options))
    checks = examine()
    level = verdict(checks)
    if options.json:
        ready = level is not Isolation.NONE
        print(json.dumps({"isolation": level, "ok": ready, "checks": [asdict(check) for check in checks]}))
    else:
        show(checks)
        print(f"\n{table.wrapped(_VERDICTS[level])}")
    return FAILED if level is Isolation.NONE else OK


def examine() -> list[Check]:
    """Run all checks; some start probes in namespaces of their own."""
    return [
        _python(),
        _local(),
        _bubblewrap(),
        _namespace(),
        _network(),
        _user_namespace(),
        _uids(),
        _cgroup("pids", "each sandbox has a limit of processes", "only RLIMIT_NPROC limits processes"),
        _cgroup(
            "cpu", "each sandbox has its share of the processors, and cpus= holds", "cpus= only tells code how many"
        ),
        _cgroup("memory", "all memory of user code counts", "only memory that /proc shows counts"),
        _gvisor(),
    ]


def verdict(checks: list[Check]) -> Isolation:
    """Return the isolation that sandboxes on this machine have."""
    if not all(check.ok for check in checks if check.needed):
        return Isolation.NONE
    inside = any(check.ok for check in checks if check.name == "gVisor")
    return Isolation.GVISOR if inside else Isolation.NAMESPACE


_VERDICTS = {
    Isolation.NONE: "No isolation: a needed check above has failed. Sandboxes run only with isolation=none, as plain"
    " processes of this machine.",
    Isolation.NAMESPACE: "Isolation: namespace. Code runs in a session namespace on this machine's kernel.",
    Isolation.GVISOR: "Isolation: gvisor. Code runs in a session namespace inside gVisor.",
}


def _python() -> Check:
    version = ".".join(map(str, sys.version_info[:3]))
    return Check("Python", sys.version_info >= (3, 11), f"{version} (3.11 or later is needed)", needed=True)


def _local() -> Check:
    missing = [name for name in ("sandfleet_operator", "sandfleet_executor") if find_spec(name) is None]
    detail = "cannot start sandboxes here: install sandfleet[local]" if missing else "sandfleet[local] is installed"
    return Check("embedded fleet", not missing, detail, needed=True)


def _bubblewrap() -> Check:
    if (path := shutil.which("bwrap")) is None:
        return Check("bubblewrap", ok=False, detail="not found: install the package bubblewrap", needed=True)
    ok, said = _try([path, "--version"])
    return Check("bubblewrap", ok, f"{said} at {path}" if ok else said, needed=True)


def _namespace() -> Check:
    # Root needs no user namespace; other users get the other namespaces only inside one.
    extra = [] if os.geteuid() == 0 else ["--unshare-user"]
    ok, said = _try(["bwrap", *extra, *_NAMESPACE, "true"])
    return Check("session namespace", ok, "made one" if ok else f"cannot make one: {said}{_advice()}", needed=True)


def _advice() -> str:
    """Say what forbids namespaces to ordinary users, where this machine tells."""
    with suppress(OSError):
        if os.geteuid() and _RESTRICTED.read_text().strip() == "1":
            return " (AppArmor forbids user namespaces here; docs/howto/debug.md says how to allow them to bubblewrap)"
    return ""


def _network() -> Check:
    extra = [] if os.geteuid() == 0 else ["--unshare-user"]
    ok, said = _try(["bwrap", *extra, "--unshare-net", *_NAMESPACE, "true"])
    return Check(
        "network namespace", ok, "each sandbox has an empty one" if ok else f"cannot make one: {said}", needed=True
    )


def _user_namespace() -> Check:
    ok, said = _try(["bwrap", "--unshare-user", *_NAMESPACE, "true"])
    return Check("user namespace", ok, "available" if ok else f"cannot make one: {said}")


def _uids() -> Check:
    root = os.geteuid() == 0
    detail = "each sandbox has a user id of its own" if root else "not root: all sandboxes run as this user"
    return Check("own user ids", root, detail)


def _cgroup(controller: str, held: str, otherwise: str) -> Check:
    v1, v2 = Path("/sys/fs/cgroup") / controller, Path("/sys/fs/cgroup")
    if (v1 / "cgroup.procs").exists():
        writable = os.access(v1, os.W_OK)
    else:
        control = v2 / "cgroup.subtree_control"
        writable = control.exists() and controller in control.read_text().split() and os.access(v2, os.W_OK)
    return Check(f"{controller} cgroup", writable, held if writable else f"not writable: {otherwise}")


def _gvisor() -> Check:
    found = "gvisor" in " ".join(os.uname()).lower()
    return Check("gVisor", found, "this machine is a gVisor sandbox" if found else "not inside gVisor")


def _try(command: list[str]) -> tuple[bool, str]:
    try:
        done = subprocess.run(
            command,
            check=False,
            capture_output=True,
            stdin=subprocess.DEVNULL,
            text=True,
            errors="replace",
            timeout=_PROBE_TIMEOUT,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return False, str(error)
    said = (done.stdout or done.stderr).strip().rpartition("\n")[2]
    return done.returncode == 0, said or f"exit code {done.returncode}"

"""Starts the session namespace: its command, its mounts, and the options of its PID 1."""

import asyncio
import contextlib
import os
import secrets
import shutil
import socket
import sys
import sysconfig
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import sandfleet_rules

import sandfleet_executor.worker
from sandfleet_executor.core.config import ExecutorConfig
from sandfleet_executor.core.egress.variables import PORT
from sandfleet_executor.core.files.mounts import Mount
from sandfleet_executor.core.session import bwrap, foreign
from sandfleet_executor.core.session.cores import cores
from sandfleet_executor.effects.namespace import runtime
from sandfleet_executor.effects.namespace.cgroup import Groups
from sandfleet_executor.effects.namespace.children import NamespaceError
from sandfleet_executor.effects.namespace.fonts import fonts
from sandfleet_executor.effects.namespace.interpreter import links_to

# Moves itself into the cgroup before it becomes the namespace, so that nothing ever runs outside it.
INTO_CGROUP = 'echo $$ > "$1/cgroup.procs" && shift && exec "$@"'
THREADS = 1
CGROUPS = "/sys/fs/cgroup"
SETS_USERS = 1 << 6 | 1 << 7


def worker_folder() -> str:
    return str(Path(sandfleet_executor.worker.__file__).parent)


def rules_folder() -> str:
    return str(Path(sandfleet_rules.__file__).parent)


def host_of(config: ExecutorConfig) -> bwrap.Host:
    """The machine as the session has it: its own folders, or a foreign root. Raises NamespaceError."""
    host = this_host(own_network=config.network == "none")
    if config.rootfs is None:
        return host
    folders = of_container(config.rootfs) if config.rootfs.of_container else unpacked(config, config.rootfs)
    return replace(host, python=python_of(config), prefixes=(), links=(), installers=(), fonts=None, foreign=folders)


def python_of(config: ExecutorConfig) -> str:
    """The interpreter of the session's own processes, as the session sees it."""
    return sys.executable if config.rootfs is None else f"{foreign.RUNTIME}/bin/{runtime.VERSION}"


def unpacked(config: ExecutorConfig, rootfs: foreign.Rootfs) -> bwrap.Foreign:
    """A root that root.py makes. Raises NamespaceError."""
    made = str(runtime.runtime(Path(rootfs.runtime_dir)))
    packages = f"{foreign.RUNTIME}/lib/{runtime.VERSION}/site-packages"
    mounts = ((made, foreign.RUNTIME), (sysconfig.get_path("purelib"), packages))
    return bwrap.Foreign(root=f"{config.private_dir}/root/root", mounts=mounts, user=rootfs.user)


def of_container(rootfs: foreign.Rootfs) -> bwrap.Foreign:
    """The root of this process."""
    many = rootfs.user == 0 and maps_users()
    # Root could change the groups of the whole container there.
    covered = (foreign.POD, *(path for path in (CGROUPS,) if Path(path).is_dir()))
    return bwrap.Foreign(root="/", mounts=(), user=rootfs.user, covered=covered, many_users=many)


@cache
def maps_users() -> bool:
    """Whether this process may give a user namespace more users than its own (capabilities setgid and setuid)."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    effective = int(status.partition("CapEff:")[2].split(maxsplit=1)[0], 16)
    return effective & SETS_USERS == SETS_USERS


def this_host(*, own_network: bool = True) -> bwrap.Host:
    """Looks at the machine."""
    prefixes = tuple(dict.fromkeys((sys.prefix, sys.base_prefix)))
    of_the_machine = ("/usr", *(f"/{name}" for name in bwrap.MERGED))
    return bwrap.Host(
        is_root=os.geteuid() == 0,
        merged=tuple(name for name in bwrap.MERGED if Path(f"/{name}").is_symlink()),
        python=sys.executable,
        prefixes=tuple(prefix for prefix in prefixes if prefix != "/usr"),
        links=links_to(sys.executable, (*prefixes, *of_the_machine)),
        own_packages=(worker_folder(), rules_folder()),
        own_network=own_network,
        resolver=not own_network,
        own_terminals=not under_gvisor(),
        installers=installers(sys.executable),
        fonts=fonts(),
    )


@cache
def installers(python: str) -> tuple[str, ...]:
    """The programs of bwrap.INSTALLERS on the path of a session."""
    path = os.pathsep.join((bwrap.folder_of(python), *bwrap.SYSTEM_PATH))
    return tuple(name for name in bwrap.INSTALLERS if shutil.which(name, path=path))


def under_gvisor() -> bool:
    return "gvisor" in os.uname().release


def plan(
    config: ExecutorConfig,
    groups: Groups,
    control_fd: int,
    opened: contextlib.ExitStack,
    *,
    counts_writes: bool,
    mounts: Collection[Mount] = (),
) -> tuple[list[str], list[int]]:
    """The command that makes the namespace, and the descriptors that it inherits (open as long as `opened`)."""
    host = host_of(config)
    contained = config.isolation == "namespace"
    parent = bwrap.WORKER_PARENT if contained else link_worker(config.private_dir)
    module = f"{bwrap.WORKER_PACKAGE}.init.spawner"
    counted, doors = groups.open_memory(opened), groups.open_doors(opened)
    options = spawner_options(config, control_fd, mounts, counted, doors, counts_writes=counts_writes)
    options["has_capabilities"] = bool(host.foreign and host.foreign.many_users)
    start = f"import sys; sys.path.append({parent!r}); import {module}; {module}.main({options!r})"
    command = bwrap.program(
        host, user_id=config.user_id if contained else None, tmp_inodes=config.limits.tmpfs_inodes, start=start
    )
    fds: list[int] = []
    if contained:
        around, fds = bubblewrap(config, host, mounts, opened)
        command = [*around, "--", *command]
        if config.rootfs:
            command = [*root_maker(config, config.rootfs, host, mounts), *command]
    if groups.processes:
        command = ["/bin/sh", "-c", INTO_CGROUP, "sh", str(groups.processes), *command]
    return command, [*fds, *counted.values(), *doors]


def spawner_options(
    config: ExecutorConfig,
    control_fd: int,
    mounts: Collection[Mount],
    counted: Mapping[str, int],
    doors: Sequence[int],
    *,
    counts_writes: bool,
) -> dict[str, Any]:
    """The options of PID 1. Descriptors: `counted` of its cgroup of memory, `doors` by which code joins its cgroups."""
    contained = config.isolation == "namespace"
    return {
        "control_fd": control_fd,
        "memory_bytes": config.limits.memory_bytes,
        "memory_cgroup": dict(counted),
        "cgroup_doors": list(doors),
        "cores": cores(config.limits.cpus, os.sched_getaffinity(0), config.sandbox_uid),
        "hard_memory_bytes": config.limits.hard_memory_bytes,
        "tmp_inodes": config.limits.tmpfs_inodes,
        "preload": list(config.preload),
        "rlimits": config.limits.gvisor_rlimits if under_gvisor() else config.limits.rlimits,
        "workspace": bwrap.WORKSPACE if contained else config.workspace,
        "mounts": [mount.target for mount in mounts],
        "counts_writes": counts_writes,
        # Only bubblewrap sets no_new_privs, without which a filter cannot be installed.
        "filters_calls": contained and not under_gvisor(),
        # A new one each time: where the network is the pod's, an earlier one may still be open.
        "tools_socket": f"sandfleet-tools-{secrets.token_hex(8)}" if config.brokered else "",
        "egress_port": PORT if config.egress_socket else 0,
        "tmp_directories": in_memory(config) if contained else [],
    }


def in_memory(config: ExecutorConfig) -> list[str]:
    """Folders of the session whose files are in memory: of a foreign root everything that is not mounted."""
    return ["/tmp", "/dev/shm", *(["/"] if config.rootfs else [])]  # noqa: S108 - the namespace's own


def root_maker(
    config: ExecutorConfig, rootfs: foreign.Rootfs, host: bwrap.Host, mounts: Collection[Mount]
) -> list[str]:
    """The command that makes the foreign root, up to the program that it becomes."""
    if rootfs.of_container:
        many = host.foreign and host.foreign.many_users
        return [sys.executable, "-I", "-S", f"{worker_folder()}/init/users.py"] if many else []
    folder = Path(config.private_dir) / "root"
    folder.mkdir(exist_ok=True)
    return foreign.maker(
        f"{worker_folder()}/init/root.py",
        sys.executable,
        rootfs,
        str(folder),
        user_id=config.user_id,
        mounted=[mount.target for mount in mounts],
    )


def bubblewrap(
    config: ExecutorConfig, host: bwrap.Host, mounts: Collection[Mount], opened: contextlib.ExitStack
) -> tuple[list[str], list[int]]:
    """The command of bubblewrap up to the program, and the descriptors that it inherits. Raises NamespaceError."""
    found = shutil.which("bwrap")
    if not found:
        raise NamespaceError(
            "cannot make the session namespace: bubblewrap is not installed (Debian: sudo apt-get install bubblewrap)"
        )
    fds = [memory_file(data.text, opened) for data in bwrap.data_files(host)]
    null = os.open(os.devnull, os.O_WRONLY)
    opened.callback(os.close, null)
    arguments = bwrap.arguments(
        host,
        workspace=config.workspace,
        mounts=[(mount.source(config.workspace), mount.target) for mount in mounts if not mount.host],
        read_only=[(mount.host, mount.target) for mount in mounts if mount.host],
        tmp_bytes=config.limits.tmpfs_bytes,
        user_id=config.user_id,
        data_fds=fds,
        info_fd=null,
    )
    # PID 1 imports nothing of the session's packages.
    own = {name: value for name, value in session_environment(config).items() if name != bwrap.PYTHON_PATH}
    if config.rootfs:
        own = foreign.of_first_process(own)
    pairs = [part for name, value in own.items() for part in ("--setenv", name, value)]
    return [found, *arguments, *pairs], [*fds, null]


def session_environment(config: ExecutorConfig) -> dict[str, str]:
    """What every process of the session starts with."""
    if config.rootfs:
        fixed = bwrap.environment(host_of(config), THREADS, brokered=config.brokered)
        return foreign.environment(config.rootfs, {name: fixed[name] for name in foreign.KEPT if name in fixed})
    if config.isolation == "namespace":
        return bwrap.environment(this_host(), THREADS, brokered=config.brokered)
    worker = f"{link_worker(config.private_dir)}/{bwrap.WORKER_PACKAGE}"
    return bwrap.environment(this_host(), THREADS, config.workspace, worker)


def link_worker(private_dir: str) -> str:
    """A folder in which the worker has its package name, and the rules beside it."""
    parent = Path(private_dir) / "worker"
    parent.mkdir(exist_ok=True)
    for name, folder in ((bwrap.WORKER_PACKAGE, worker_folder()), (bwrap.RULES_PACKAGE, rules_folder())):
        if not (parent / name).is_symlink():
            (parent / name).symlink_to(folder)
    return str(parent)


def memory_file(text: str, opened: contextlib.ExitStack) -> int:
    fd = os.memfd_create("data", os.MFD_CLOEXEC)
    opened.callback(os.close, fd)
    os.write(fd, text.encode())
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


async def launch(command: Sequence[str], control: socket.socket, fds: Sequence[int]) -> asyncio.subprocess.Process:
    """Starts `command`, which inherits the control socket under its number."""
    return await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        pass_fds=[control.fileno(), *fds],
        start_new_session=True,
    )

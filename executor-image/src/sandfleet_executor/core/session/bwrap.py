"""The session namespace as arguments of bubblewrap (D5): an allow-list, never the host's whole root."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sandfleet_executor.core.session import foreign

# The worker is a package of this name, so that no module of the user's is hidden by it.
WORKER_PACKAGE = "_sandfleet_worker"
WORKER_PARENT = "/opt/sandfleet"
WORKER_MOUNT = f"{WORKER_PARENT}/{WORKER_PACKAGE}"
# The rules that the worker obeys as well stand beside it.
RULES_PACKAGE = "sandfleet_rules"
RULES_MOUNT = f"{WORKER_PARENT}/{RULES_PACKAGE}"
WORKSPACE = "/workspace"
# Below the workspace: what %pip installs.
PACKAGES = ".sandfleet/packages"
INNER_ID = 1000
# Parts of /etc that programs need and that hold no secret. What is not there is left out.
ETC = (
    # Without Renviron.site, which may hold secrets of the machine.
    "R/Makeconf",
    "R/Renviron",
    "R/Rprofile.site",
    "R/ldpaths",
    "R/repositories",
    "alternatives",
    "ca-certificates",
    "debian_version",
    "fonts",
    "group-",
    "host.conf",
    # Debian's Java does not begin without its own.
    *(f"java-{version}-openjdk" for version in (8, 11, 17, 21, 25)),
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "locale.alias",
    "magic",
    "mime.types",
    "os-release",
    "pki/tls/certs",
    "protocols",
    "services",
    "ssl/certs",
    "ssl/openssl.cnf",
    "terminfo",
)
MERGED = ("bin", "lib", "lib32", "lib64", "sbin")
USERS = (
    "root:x:0:0:root:/:/usr/sbin/nologin\n"
    "sandbox:x:{id}:{id}:sandbox:/workspace:/bin/bash\n"
    "nobody:x:65534:65534::/:/usr/sbin/nologin\n"
)
GROUP = "root:x:0:\nsandbox:x:{id}:\nnogroup:x:65534:\n"
# The variables that make two runs alike (D15).
FIXED = (
    "LANG",
    "LC_ALL",
    "MKL_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "PYTHONHASHSEED",
    # Given by a template or a claim that asks for the same random numbers in each run.
    "SANDFLEET_SEED",
    "TZ",
)
# Read by each interactive bash before the user's own ~/.bashrc, on Debian and what comes from it.
BASHRC = r"""[ -z "${PS1-}" ] && return
shopt -s checkwinsize
HISTCONTROL=ignoreboth
# Not in the workspace, where it would count as a change.
HISTFILE=/tmp/.bash_history
if [ "$TERM" != dumb ]; then
    alias ls='ls --color=auto' grep='grep --color=auto'
fi
# Unless the caller has set a prompt.
if [ "$PS1" = '\s-\v\$ ' ]; then
    PS1='sandbox:\w\$ '
    [ "$TERM" != dumb ] && PS1='\[\e[1;32m\]sandbox\[\e[0m\]:\[\e[1;34m\]\w\[\e[0m\]\$ '
fi
true
"""
PYTHON_PATH = "PYTHONPATH"
MATPLOTLIB = "/tmp/.matplotlib"  # noqa: S108 - the namespace's own
HOSTS = "127.0.0.1 localhost sandbox\n::1 localhost sandbox\n"


@dataclass(frozen=True)
class Host:
    """The facts of the machine."""

    is_root: bool
    # Folders of / that are links into /usr (on Debian all of MERGED).
    merged: tuple[str, ...]
    # The interpreter for user code, and the folders that it needs (its prefixes).
    python: str
    prefixes: tuple[str, ...]
    # The folders of the worker and of the rules.
    own_packages: tuple[str, str]
    # Inside a pod the network is the pod's and its resolver is needed.
    own_network: bool
    # Links on the way to the interpreter, each with its target, that lie in none of these folders.
    links: tuple[tuple[str, str], ...] = ()
    resolver: bool = False
    # Under gVisor no process can enter the terminals' file system that a session mounts for itself. The pod's is used,
    # where all terminals are the session's.
    own_terminals: bool = True
    # Programs of INSTALLERS that are there.
    installers: tuple[str, ...] = ()
    # Matplotlib's list of the machine's fonts: the first plot of a session would take a second to make it.
    fonts: "Data | None" = None
    # A foreign root in the place of the machine's folders: then `python` is the runtime's.
    foreign: "Foreign | None" = None


@dataclass(frozen=True)
class Foreign:
    """Folders of the machine: the root with its layer, and what is mounted in it, each with its path there."""

    root: str
    # The runtime and the packages of this interpreter; in a container they are there.
    mounts: tuple[tuple[str, str], ...]
    # Who code is in the session.
    user: int
    # Folders of the root that the session has empty.
    covered: tuple[str, ...] = ()
    # Whether the session's root is one of many users of a user namespace that is there already.
    many_users: bool = False


SYSTEM_PATH = ("/usr/local/bin", "/usr/bin", "/bin")
# Programs that would try for minutes to reach a registry where there is no network. A shim of each says so at once
# (worker/shims/offline); it is only on the path where the program is, so that `command -v` tells the truth.
INSTALLERS = ("apt", "apt-get", "cargo", "go", "npm")


@dataclass(frozen=True)
class Data:
    """Files that are made for the namespace; each text comes from a descriptor of its own."""

    path: str
    text: str


def data_files(host: Host) -> tuple[Data, ...]:
    if host.foreign:
        return (Data("/etc/hosts", HOSTS),)
    return (
        Data("/etc/passwd", USERS.format(id=INNER_ID)),
        Data("/etc/group", GROUP.format(id=INNER_ID)),
        Data("/etc/hosts", HOSTS),
        Data("/etc/bash.bashrc", BASHRC),
        Data("/etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files dns\n"),
        *([host.fonts] if host.fonts else []),
    )


def arguments(
    host: Host,
    *,
    workspace: str,
    mounts: Sequence[tuple[str, str]] = (),
    read_only: Sequence[tuple[str, str]] = (),
    tmp_bytes: int,
    user_id: int | None,
    data_fds: Sequence[int],
    info_fd: int,
) -> list[str]:
    """The arguments of bwrap, up to the program.

    `mounts` are folders of the workspace, `read_only` of the machine, with their paths in the session. `user_id` is the
    host uid that enter.py takes (root only).
    """
    found = ["--unshare-pid", "--unshare-ipc", "--unshare-uts", "--hostname", "sandbox"]
    found += of_the_user(host, user_id)
    if host.own_network:
        found += ["--unshare-net"]
    found += ["--as-pid-1", "--die-with-parent", "--new-session", "--clearenv", "--info-fd", str(info_fd)]
    found += of_the_machine(host)
    found += ["--proc", "/proc", "--dev", "/dev"]
    if not host.own_terminals:
        found += ["--dev-bind", "/dev/pts", "/dev/pts"]
    for path in ("/tmp", "/dev/shm"):  # noqa: S108 - the namespace's own
        found += ["--perms", "1777", "--size", str(tmp_bytes), "--tmpfs", path]
    for data, fd in zip(data_files(host), data_fds, strict=True):
        if data is host.fonts:
            found += ["--perms", "1777", "--dir", MATPLOTLIB, "--perms", "0666", "--file", str(fd), data.path]
        else:
            # Readable by the inner user, who has not made them.
            found += ["--perms", "0444", "--ro-bind-data", str(fd), data.path]
    # After the file systems that are made for it: the interpreter may lie below /tmp.
    linked = [path for path, _ in host.links]
    found += folders(
        (WORKER_MOUNT, RULES_MOUNT, *host.prefixes, *linked, *(target for _, target in (*mounts, *read_only)))
    )
    found += _pairs("--ro-bind", of_the_interpreter(host))
    found += _pairs("--symlink", [(target, path) for path, target in host.links])
    found += _pairs("--ro-bind", list(zip(host.own_packages, (WORKER_MOUNT, RULES_MOUNT), strict=True)))
    found += writable(((workspace, WORKSPACE), *mounts)) + _pairs("--ro-bind", read_only)
    found += ["--remount-ro", "/dev", *([] if host.foreign else ["--remount-ro", "/"]), "--chdir", WORKSPACE]
    return found


def of_the_user(host: Host, user_id: int | None) -> list[str]:
    """Arguments that say who code is, unless enter.py does."""
    if host.foreign and host.foreign.many_users:
        kept = [part for name in foreign.CAPABILITIES for part in ("--cap-add", name)]
        return ["--cap-drop", "ALL", *kept]
    if host.is_root and user_id:
        return []
    inner = str(host.foreign.user if host.foreign else INNER_ID)
    return ["--unshare-user", "--uid", inner, "--gid", inner]


def of_the_machine(host: Host) -> list[str]:
    """Arguments that mount what programs of the machine, or of the image, need to be read."""
    if host.foreign:
        covers = [part for path in host.foreign.covered for part in ("--tmpfs", path, "--remount-ro", path)]
        return ["--bind", host.foreign.root, "/", *covers]
    found = [*folders(("/etc/x", "/etc/R/x", "/etc/ssl/x", "/etc/pki/tls/x")), "--ro-bind", "/usr", "/usr"]
    for name in MERGED:
        found += (
            ["--symlink", f"usr/{name}", f"/{name}"]
            if name in host.merged
            else ["--ro-bind-try", f"/{name}", f"/{name}"]
        )
    for name in ETC:
        found += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
    if host.resolver:
        found += ["--ro-bind-try", "/etc/resolv.conf", "/etc/resolv.conf"]
    return found


def of_the_interpreter(host: Host) -> list[tuple[str, str]]:
    """Folders with their paths in the session."""
    if host.foreign:
        return list(host.foreign.mounts)
    return [(prefix, prefix) for prefix in host.prefixes]


def writable(binds: Sequence[tuple[str, str]]) -> list[str]:
    """Arguments that mount folders of the host, with their paths in the session."""
    return _pairs("--bind", binds)


def _pairs(option: str, pairs: Sequence[tuple[str, str]]) -> list[str]:
    return [part for source, target in pairs for part in (option, source, target)]


def folders(paths: Sequence[str]) -> list[str]:
    """Arguments that make the folders above the paths; without a user namespace bubblewrap makes them for root only."""
    made = [path for path in ancestors(paths) if path != "/tmp"]  # noqa: S108 - mounted, with its own mode
    return [part for path in made for part in ("--perms", "0755", "--dir", path)]


def ancestors(paths: Sequence[str]) -> list[str]:
    """The folders above the paths, but for the root and what lies in /usr, from the top down."""
    found: dict[str, None] = {}
    for path in paths:
        names = path.split("/")[1:-1]
        if names and names[0] != "usr":
            found.update({"/" + "/".join(names[: end + 1]): None for end in range(len(names))})
    return list(found)


def program(host: Host, *, user_id: int | None, tmp_inodes: int, start: str) -> list[str]:
    """What runs as PID 1. `start` is Python source; the interpreter takes no path from user code."""
    python = [host.python, "-s", "-P", "-c", start]
    if host.is_root and user_id:
        inner = str(host.foreign.user if host.foreign else INNER_ID)
        enter = f"{WORKER_MOUNT}/init/enter.py"
        return [host.python, "-I", "-S", enter, str(user_id), inner, str(tmp_inodes), *python]
    return python


def folder_of(path: str) -> str:
    return path.rpartition("/")[0]


def environment(
    host: Host, threads: int, workspace: str = WORKSPACE, worker: str = WORKER_MOUNT, *, brokered: bool = False
) -> dict[str, str]:
    """What every process of the session starts with (D15). Folders are as user code sees them.

    `brokered`: code can call the tools of the host.
    """
    count = str(threads)
    packages = f"{workspace}/{PACKAGES}"
    shims = f"{worker}/shims"
    programs = f"{worker}/tools/shims/bin:{shims}/bin" if brokered else f"{shims}/bin"
    offline = "".join(f"{shims}/offline/{name}:" for name in host.installers)
    return {
        "PATH": f"{programs}:{offline}{folder_of(host.python)}:{packages}/bin:{':'.join(SYSTEM_PATH)}",
        "HOME": workspace,
        "USER": "sandbox",
        "LOGNAME": "sandbox",
        "SHELL": "/bin/bash",
        "TMPDIR": "/tmp",  # noqa: S108 - the namespace's own
        "XDG_CACHE_HOME": "/tmp/.cache",  # noqa: S108 - the namespace's own
        "MPLCONFIGDIR": MATPLOTLIB,
        "LANG": "C.UTF-8",
        "LC_ALL": "C.UTF-8",
        "TZ": "UTC",
        "TERM": "dumb",
        # Pages wait for a key, which an agent in a terminal does not know.
        "PAGER": "cat",
        "PYTHONHASHSEED": "0",
        "PYTHONDONTWRITEBYTECODE": "1",
        # The session's pip, and the folder of its packages on the path of each Python.
        PYTHON_PATH: f"{shims}:{worker}/tools/shims" if brokered else shims,
        "SANDFLEET_PACKAGES": packages,
        "SANDFLEET_PYTHON": host.python,
        "OMP_NUM_THREADS": count,
        "OPENBLAS_NUM_THREADS": count,
        "MKL_NUM_THREADS": count,
        "NUMEXPR_NUM_THREADS": count,
    }


def with_own(given: Mapping[str, str], own: Mapping[str, str]) -> dict[str, str]:
    """The session's variables with given ones over them; a given PYTHONPATH comes before the session's."""
    before, after = given.get(PYTHON_PATH), own.get(PYTHON_PATH)
    both = {PYTHON_PATH: f"{before}:{after}"} if before and after else {}
    return {**own, **given, **both}

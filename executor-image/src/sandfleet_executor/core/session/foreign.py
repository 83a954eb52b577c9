"""A session on a foreign root, such as that of an OCI image: its mounts, its environment, and what makes its root.

The root lies below a file system in memory that takes all changes, so one unpacked image serves many sessions. User
code sees it as its own: the runtime (runtime.py) is all that is added to it, read-only, at one path.

In a pod the container has that root already, and the executor comes beside it: everything of the executor is below the
runtime's folder, and what the session may not see of it is covered.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sandfleet_executor.core.errors import ConfigError

RUNTIME = "/opt/sandfleet"
# Not longer than the name of any loader of the GNU C library, in whose place it is written.
LOADER = f"{RUNTIME}/ld.so"
# Where a pod has the mounts of its executor. The session has an empty folder there.
POD = f"{RUNTIME}/pod"
PLACES_OF_A_POD = ("keys", "private", "tmp", "volume")
# Of an executor beside an image: the file with the variables that its container has.
ENVIRON_VARIABLE = "SANDFLEET_ENVIRON"
# Set in the executor's image, and in all that are built on it.
MARK_VARIABLE = "SANDFLEET_EXECUTOR_IMAGE"
# Of Kubernetes and of the container's start, not of the image.
OF_THE_POD = ("HOSTNAME", "KUBERNETES_", "OLDPWD", "PWD", "SANDFLEET_", "SHLVL")
# What `root` of a session may do to its own files and processes, all of it in a user namespace of its own: enough for
# package managers, for su and for daemons that change their user. Nothing of it mounts.
CAPABILITIES = (
    "CAP_AUDIT_WRITE",
    "CAP_CHOWN",
    "CAP_DAC_OVERRIDE",
    "CAP_FOWNER",
    "CAP_FSETID",
    "CAP_KILL",
    "CAP_NET_BIND_SERVICE",
    "CAP_SETFCAP",
    "CAP_SETGID",
    "CAP_SETPCAP",
    "CAP_SETUID",
    "CAP_SYS_CHROOT",
)
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
OF_CONTAINER = "/"
MAX_ID = 65_535
# Of the variables of an image, the first process of a session gets none that its loader or interpreter reads.
READ_BY_OWN = ("LD_", "PYTHON", "GLIBC_", "MALLOC_")
# What a session on a foreign root has of the variables of the others.
KEPT = (
    "LANG",
    "LC_ALL",
    "MKL_NUM_THREADS",
    "MPLCONFIGDIR",
    "NUMEXPR_NUM_THREADS",
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "PAGER",
    "PYTHONDONTWRITEBYTECODE",
    "PYTHONHASHSEED",
    "SANDFLEET_PACKAGES",
    "SANDFLEET_PYTHON",
    "TERM",
    "TMPDIR",
    "TZ",
    "XDG_CACHE_HOME",
)
# Folders that a session mounts; none of them may be a link of the image's, which could lead out of the new root.
PLACES = ("/proc", "/dev", "/tmp", "/workspace", RUNTIME, "/etc", "/run")  # noqa: S108 - the session's own


@dataclass(frozen=True)
class Rootfs:
    """What the executor is told of the root."""

    # Folder of this machine that holds the unpacked root; it is never written to. OF_CONTAINER: the root that the
    # executor's container has, which is the session's alone.
    path: str
    # Where the runtime is kept; in a container it is at its place.
    runtime_dir: str = RUNTIME
    # Bytes of what the session may change in it.
    size_limit: int = 1 << 30
    # Who code is in the session; every file of the root is this user's.
    user: int = 0
    envs: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("path", "runtime_dir"):
            value = getattr(self, name)
            if not isinstance(value, str) or not value.startswith("/"):
                raise ConfigError(f"cannot take rootfs {name}={value!r}: it has to be an absolute path")
        if type(self.user) is not int or not 0 <= self.user <= MAX_ID:
            raise ConfigError(f"cannot take rootfs user={self.user!r}: it has to be a number from 0 to {MAX_ID}")
        if type(self.size_limit) is not int or self.size_limit <= 0:
            raise ConfigError(f"cannot take rootfs size_limit={self.size_limit!r}: it has to be a number of bytes")

    @property
    def of_container(self) -> bool:
        return self.path == OF_CONTAINER


def environment(rootfs: Rootfs, fixed: Mapping[str, str]) -> dict[str, str]:
    """What every process of the session starts with: the image's variables over the `fixed` ones of each session."""
    name = "root" if rootfs.user == 0 else "sandbox"
    own = {"PATH": PATH, "HOME": "/root" if rootfs.user == 0 else "/workspace", "USER": name, "LOGNAME": name}
    return {**fixed, **own, **rootfs.envs}


def of_image(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables of a container that are its image's. Raises ConfigError where the image has an executor itself."""
    if MARK_VARIABLE in environment:
        raise ConfigError(
            "cannot bring an executor beside this image: it is built on one that has its own; set spec.executor of the"
            " template to InImage"
        )
    return {name: value for name, value in environment.items() if not name.startswith(OF_THE_POD)}


def of_first_process(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment without what an image could turn against the session's first process."""
    return {name: value for name, value in environment.items() if not name.startswith(READ_BY_OWN)}


def maker(
    script: str, python: str, rootfs: Rootfs, folder: str, *, user_id: int | None, mounted: Sequence[str]
) -> list[str]:
    """The command that makes the root at `folder`/root, up to the program that it becomes (worker/init/root.py)."""
    owner = str(user_id or 0)
    places = ":".join((*PLACES, *mounted))
    return [python, "-I", "-S", script, rootfs.path, folder, str(rootfs.size_limit), owner, places]

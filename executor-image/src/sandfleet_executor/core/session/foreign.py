"""A session on a foreign root, such as that of an OCI image: its mounts, its environment, and what makes its root.

The root lies below a file system in memory that takes all changes, so one unpacked image serves many sessions. User
code sees it as its own: the runtime (runtime.py) is all that is added to it, read-only, at one path.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sandfleet_executor.core.errors import ConfigError

RUNTIME = "/opt/sandfleet"
# Not longer than the name of any loader of the GNU C library, in whose place it is written.
LOADER = f"{RUNTIME}/ld.so"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
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

    # Folder of this machine that holds the unpacked root; it is never written to.
    path: str
    # Where the runtime is kept.
    runtime_dir: str
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


def environment(rootfs: Rootfs, fixed: Mapping[str, str]) -> dict[str, str]:
    """What every process of the session starts with: the image's variables over the `fixed` ones of each session."""
    name = "root" if rootfs.user == 0 else "sandbox"
    own = {"PATH": PATH, "HOME": "/root" if rootfs.user == 0 else "/workspace", "USER": name, "LOGNAME": name}
    return {**fixed, **own, **rootfs.envs}


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

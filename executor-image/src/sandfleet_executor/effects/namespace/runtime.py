"""The interpreter of this process as a folder that runs below any root, with its loader and its libraries.

A foreign root has another C library, or none. So the session's own processes run a copy that finds everything in one
folder: the name of the loader in the program, and the folders that the loader searches, are texts in both files, and
are replaced by texts of the same length. No library of the root is ever loaded into it, no preload of the root either.
"""

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Sequence
from pathlib import Path

from sandfleet_executor.core.session.bwrap import RULES_PACKAGE, WORKER_PACKAGE
from sandfleet_executor.core.session.foreign import ENVIRON_VARIABLE, LOADER, PLACES_OF_A_POD, POD, RUNTIME
from sandfleet_executor.effects.namespace.children import NamespaceError

FORMAT = 3
VERSION = f"python{sys.version_info[0]}.{sys.version_info[1]}"
# No cell imports them; together they are a third of the library.
LEFT_OUT = ("__pycache__", "dist-packages", "ensurepip", "idlelib", "site-packages", "test", "tests", "turtledemo")
# Wheels may ask the system for these (PEP 600), beside those that the library itself asks for.
OF_WHEELS = (
    "libatomic.so.1",
    "libdl.so.2",
    "libexpat.so.1",
    "libgcc_s.so.1",
    "libgomp.so.1",
    "libnsl.so.1",
    "libpthread.so.0",
    "libresolv.so.2",
    "librt.so.1",
    "libstdc++.so.6",
    "libutil.so.1",
    "libz.so.1",
)
FOLDER_OF_LIBRARIES = re.compile(rb"(?<=\0)/(?:usr/)?lib(?:64)?/(?:[a-z0-9_]+-linux-gnu/)?(?=\0)")
# A pod's container runs this. The image's variables are the session's: the executor's loader and interpreter read none.
START = f"""#!{RUNTIME}/bin/busybox sh
busybox={RUNTIME}/bin/busybox
variables={POD}/private/environ
"$busybox" cat /proc/self/environ > "$variables" || exit 1
exec "$busybox" env -i {ENVIRON_VARIABLE}="$variables" PATH={RUNTIME}/bin TMPDIR={POD}/tmp \\
    {RUNTIME}/bin/{VERSION} -IB -m sandfleet_executor serve
"""  # noqa: S108 - the executor's own
FILES_OF_LOADER = (b"/etc/ld.so.cache", b"/etc/ld.so.preload")


def runtime(folder: Path) -> Path:
    """The runtime of this interpreter below `folder`; made there once, in about a second. Raises NamespaceError."""
    program = Path(sys.executable).resolve()
    mark = f"{FORMAT} {sys.version} {program} {program.stat().st_mtime_ns}"
    target = folder / f"runtime-{hashlib.sha256(mark.encode()).hexdigest()[:16]}"
    if target.is_dir():
        return target
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / "runtime.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not target.is_dir():
                made = target.with_suffix(".part")
                shutil.rmtree(made, ignore_errors=True)
                _make(made, program)
                made.rename(target)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        raise NamespaceError(f"cannot make a Python that runs below another root: {error}") from error
    return target


def complete(target: Path) -> None:
    """Makes `target`, which has an environment `venv` with the executor, all that runs beside another image: with
    bubblewrap, a busybox that no library touches, and the places of a pod's mounts. Raises OSError and ValueError.
    """
    _make(target, Path(sys.executable).resolve(), [Path("/usr/bin/bwrap")])
    (target / "lib" / VERSION / "site-packages").rmdir()
    (target / "lib" / VERSION / "site-packages").symlink_to(f"../../venv/lib/{VERSION}/site-packages")
    shutil.copy("/usr/bin/busybox", target / "bin")
    _write(target / "bin" / "start", START.encode())
    for place in PLACES_OF_A_POD:
        (Path(str(target) + POD.removeprefix(RUNTIME)) / place).mkdir(parents=True)


def _make(target: Path, program: Path, others: Sequence[Path] = ()) -> None:
    for name in ("bin", "lib", WORKER_PACKAGE, RULES_PACKAGE):
        (target / name).mkdir(parents=True)
    library = target / "lib" / VERSION
    shutil.copytree(sysconfig.get_path("stdlib"), library, ignore=_left_out)
    (library / "site-packages").mkdir()
    # Debian's Python looks for packages in folders of this name.
    (library / "dist-packages").symlink_to("site-packages")
    loader = loader_of(program.read_bytes())
    for path, name in ((program, VERSION), *((other, other.name) for other in others)):
        _write(target / "bin" / name, replaced(path.read_bytes(), loader, LOADER.encode()))
    _write(target / "ld.so", own_folders_only(Path(os.fsdecode(loader)).read_bytes()))
    for name, found in _libraries([program, *others, *library.rglob("*.so")]).items():
        shutil.copy(found, target / "lib" / name)


def _left_out(_: str, names: list[str]) -> list[str]:
    return [name for name in names if name in LEFT_OUT or name.startswith("config-")]


def _write(path: Path, data: bytes) -> None:
    path.write_bytes(data)
    path.chmod(0o755)


def _libraries(programs: Iterable[Path]) -> dict[str, str]:
    """Path by name of all that the programs are linked with, and of what wheels may ask for."""
    listed = subprocess.run(["ldd", *map(str, programs)], capture_output=True, text=True, check=True).stdout
    found = dict(re.findall(r"(\S+) => (/\S+)", listed))
    near = {Path(path).parent for path in found.values()}
    for name in OF_WHEELS:
        path = next((folder / name for folder in near if (folder / name).exists()), None)
        if path is not None:
            found.setdefault(name, str(path))
    return found


def loader_of(program: bytes) -> bytes:
    """The path of the loader that a program names. Raises ValueError."""
    found = re.search(rb"/lib[a-z0-9/_-]*/ld-linux-[^\0]*(?=\0)", program)
    if found is None:
        raise ValueError("the interpreter names no loader of the GNU C library")
    return found[0]


def replaced(data: bytes, old: bytes, new: bytes) -> bytes:
    """`data` with the text `new` in the place of `old`. Raises ValueError where there is none, or no room."""
    if len(new) > len(old) or old + b"\0" not in data:
        raise ValueError(f"there is no room for {new.decode()!r} in the place of {old.decode()!r}")
    return data.replace(old + b"\0", new.ljust(len(old), b"\0") + b"\0")


def own_folders_only(loader: bytes) -> bytes:
    """The loader with the runtime's folder in the place of the system's, and without a cache and a preload."""
    for old in set(FOLDER_OF_LIBRARIES.findall(loader)):
        loader = loader.replace(b"\0" + old + b"\0", b"\0" + _as_long(old) + b"\0")
    for old in FILES_OF_LOADER:
        loader = replaced(loader, old, f"{RUNTIME}/-".encode())
    if f"{RUNTIME}/".encode() not in loader:
        raise ValueError("the loader names no folder that could be replaced")
    return loader


def _as_long(old: bytes) -> bytes:
    """The runtime's folder of libraries, written in as many bytes; a short name becomes the root, which has none."""
    room = len(old) - len(f"{RUNTIME}/lib/")
    if room < 0:
        return b"/" * len(old)
    return f"{RUNTIME}/{'./' * (room // 2)}{'/' * (room % 2)}lib/".encode()

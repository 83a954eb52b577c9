"""Installs what the template declares, in the session and with its rights. A program of its own: prints one JSON list.

[{"name", "version", "origin", "state": "installed"|"missing"|"not-needed"}, …], in the order of the requirements. What pip says
goes to standard error. The exit code is 0 where pip had nothing to do or has done it.

pip works in a folder beside the packages, on the disk that is limited; what it is about to put in place stands there before it
does. Where that is left, whoever comes next takes back what may be half there: a package is one when it says so itself.
"""

import contextlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from . import packages
from .distributions import records
from .requirements import Installed

AREA = "installing"
PENDING = "pending.json"
# Where the template says nothing else: an index that cannot be reached is not waited for as long as pip would.
PATIENCE = {"PIP_RETRIES": "2", "PIP_TIMEOUT": "10"}


def main(mode: str, folder: str, wanted: str) -> None:
    """`mode`: "install", or "settle" to take back what an installation that was killed has left; `wanted`: a JSON list."""
    requirements: list[str] = json.loads(wanted)
    target = Path(folder)
    area = target.parent / AREA
    code = 0
    recover(target, area)
    if mode == "install" and any(each["state"] == "missing" for each in look(folder, requirements)):
        try:
            code = install(requirements, target, area)
        except (OSError, ValueError, LookupError, TypeError, packages.CannotInstall) as error:
            code = 1
            print(error, file=sys.stderr)
        finally:
            recover(target, area, whole=code == 0)
    print(json.dumps(look(folder, requirements)))
    sys.exit(code)


def look(folder: str, requirements: list[str]) -> list[dict[str, str]]:
    found = Installed(folder)
    return [found.look(each) for each in requirements]


def recover(target: Path, area: Path, *, whole: bool = False) -> None:
    """Removes what was left on the way; unless it is `whole`, what may be half in place counts as not installed."""
    if not area.is_symlink() and not area.exists():
        return
    if area.is_symlink() or not area.is_dir():
        area.unlink()
        return
    if not whole:
        with contextlib.suppress(OSError, ValueError, TypeError, AttributeError):
            for path in records(target, json.loads((area / PENDING).read_text())):
                shutil.rmtree(path, ignore_errors=True)
    shutil.rmtree(area, ignore_errors=True)


def install(requirements: list[str], target: Path, area: Path) -> int:
    """The exit code of pip. What the image has stays as it is: `import` would find nothing else."""
    temporary = area / "tmp"
    temporary.mkdir(parents=True)
    (area / "image.txt").write_text("".join(f"{line}\n" for line in Installed(str(target)).of_image()))
    (area / "wanted.txt").write_text("".join(f"{each}\n" for each in requirements))
    # Asked twice: with a target pip installs again what the image has, and does not say so.
    report = str(area / "report.json")
    held = ["--constraint", str(area / "image.txt"), "--requirement", str(area / "wanted.txt")]
    if code := _pip(area, "install", "--dry-run", "--report", report, *held):
        return code
    chosen = [each["metadata"] for each in json.loads(Path(report).read_text())["install"]]
    if not chosen:
        return 0
    names = [each["name"] for each in chosen]
    _write_whole(area / PENDING, json.dumps(names))
    for path in records(target, names):
        shutil.rmtree(path)
    pins = [f"{each['name']}=={each['version']}" for each in chosen]
    return _pip(area, "install", "--no-deps", "--upgrade", "--target", str(target), *pins)


def _write_whole(path: Path, text: str) -> None:
    """There as a whole, or not at all."""
    partial = path.with_suffix(".partial")
    partial.write_text(text)
    partial.replace(path)


def _pip(area: Path, *arguments: str) -> int:
    envs = {
        **PATIENCE,
        **os.environ,
        **packages.QUIET,
        # Both runs need the same files; neither fits into a /tmp in memory.
        "PIP_CACHE_DIR": str(area / "cache"),
        "TMPDIR": str(area / "tmp"),
    }
    argv = [sys.executable, "-I", *packages.find_pip(), *arguments]
    return subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=2, env=envs, check=False).returncode

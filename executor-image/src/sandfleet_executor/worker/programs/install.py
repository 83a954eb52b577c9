"""A program: installs the packages that the template declares, inside the session and with its rights.

Prints one JSON list: [{"name", "version", "origin", "state": "installed"|"missing"|"not-needed"}, …], in the order of
the requirements. pip's output goes to standard error. The exit code is 0 if pip had nothing to do, or succeeded.

pip works in a folder beside the packages, on the disk that is limited. The names of the packages that it is about to
install are written there first. If that list is left over, the next run removes the records of these packages, which
may be half there: a package counts as installed if its record (*.dist-info) exists.
"""

import contextlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from ..packages import pip
from ..packages.distributions import records
from ..packages.requirements import Installed

AREA = "installing"
PENDING = "pending.json"


def main(mode: str, folder: str, wanted: str) -> None:
    """`mode`: "install", or "settle" to undo what a killed installation has left.

    `wanted`: requirements, a JSON list.
    """
    requirements: list[str] = json.loads(wanted)
    target = Path(folder)
    area = target.parent / AREA
    code = 0
    recover(target, area)
    if mode == "install" and any(each["state"] == "missing" for each in find_all(folder, requirements)):
        try:
            code = install(requirements, target, area)
        except (OSError, ValueError, LookupError, TypeError, pip.CannotInstall) as error:
            code = 1
            print(error, file=sys.stderr)
        finally:
            recover(target, area, whole=code == 0)
    print(json.dumps(find_all(folder, requirements)))
    sys.exit(code)


def find_all(folder: str, requirements: list[str]) -> list[dict[str, str]]:
    found = Installed(folder)
    return [found.find(each) for each in requirements]


def recover(target: Path, area: Path, *, whole: bool = False) -> None:
    """Removes the working folder; unless the installation is `whole`, also the records of the packages in it."""
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
    """Runs pip; its exit code. Packages of the image stay as they are, because `import` finds those first."""
    temporary = area / "tmp"
    temporary.mkdir(parents=True)
    (area / "image.txt").write_text("".join(f"{line}\n" for line in Installed(str(target)).of_image()))
    (area / "wanted.txt").write_text("".join(f"{each}\n" for each in requirements))
    # Two runs: with --target pip would install again what the image has. The first run tells what is missing.
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
    """Writes the file as a whole or not at all."""
    partial = path.with_suffix(".partial")
    partial.write_text(text)
    partial.replace(path)


def _pip(area: Path, *arguments: str) -> int:
    envs = {
        **pip.WAITING,
        **os.environ,
        **pip.QUIET,
        # Both runs use the same files, which would not fit into a /tmp in memory.
        "PIP_CACHE_DIR": str(area / "cache"),
        "TMPDIR": str(area / "tmp"),
    }
    argv = [sys.executable, "-I", *pip.find_pip(), *arguments]
    return subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=2, env=envs, check=False).returncode

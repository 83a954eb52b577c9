"""`pip uninstall` from the session's folder. pip removes nothing that an installation with --target has put there."""

import contextlib
import shutil
import sys
from importlib.metadata import Distribution, distributions
from pathlib import Path

from packaging.utils import canonicalize_name

from .requirements import Installed

# Programs lie beside the packages, not where the record of an installation with --target says.
PROGRAMS = "../../bin/"


def uninstall(names: list[str], folder: str) -> int:
    """Says of each package what became of it; the exit code of all."""
    code = 0
    for name in names:
        wanted = canonicalize_name(name)
        found = [each for each in distributions(path=[folder]) if canonicalize_name(each.name or "") == wanted]
        if found:
            said = f"Successfully uninstalled {wanted}-{found[0].version}"
            for each in found:
                _remove(each, Path(folder))
            print(said)
        elif Installed(folder).has(wanted):
            print(f"cannot uninstall {name}: it is part of the sandbox's image", file=sys.stderr)
            code = 1
        else:
            print(f"WARNING: Skipping {name} as it is not installed.", file=sys.stderr)
    return code


def _remove(distribution: Distribution, folder: Path) -> None:
    folders: set[Path] = set()
    for file in distribution.files or ():
        text = str(file)
        path = folder / ("bin/" + text.removeprefix(PROGRAMS) if text.startswith(PROGRAMS) else text)
        # A record is a file like others: it may name anything.
        if ".." in path.parts or folder not in path.parents:
            continue
        with contextlib.suppress(OSError):
            path.unlink()
        folders.update(parent for parent in path.parents if folder in parent.parents)
    for path in sorted(folders, key=lambda each: len(each.parts), reverse=True):
        shutil.rmtree(path / "__pycache__", ignore_errors=True)
        with contextlib.suppress(OSError):
            # One that holds files of others stays.
            path.rmdir()
    place = getattr(distribution, "_path", None)
    if isinstance(place, Path):
        shutil.rmtree(place, ignore_errors=True)

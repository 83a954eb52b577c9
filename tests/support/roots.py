"""Roots of images that the tests make of this machine's own programs: with what these need, and nothing else."""

import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

PROGRAMS = ("sh", "cat", "id", "ls", "mkdir", "rm", "sleep")


def make_root(path: Path, programs: Sequence[str] = PROGRAMS) -> Path:
    """A root with these programs in /bin and their libraries where the machine has them."""
    (path / "bin").mkdir(parents=True)
    for name in programs:
        copy_program(path, str(shutil.which(name)), path / "bin" / name)
    return path


def copy_program(root: Path, program: str, target: Path) -> None:
    shutil.copy(program, target)
    listed = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    for library in re.findall(r"(?:=> |^\s*)(/\S+)", listed, re.MULTILINE):
        place = root / library.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        if not place.exists():
            shutil.copy(library, place)

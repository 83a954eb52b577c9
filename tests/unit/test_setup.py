"""Which Python `make setup` takes."""

import os
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts/python.sh"


def chosen(folder: Path, **pythons: bool) -> "subprocess.CompletedProcess[str]":
    """Run the script where PATH has these programs only, each new enough or not."""
    for name in ("bash", "env"):
        (folder / name).symlink_to(f"/usr/bin/{name}")
    for name, is_new in pythons.items():
        path = folder / name.replace("_", ".")
        path.write_text(f'#!/bin/bash\n[ "$1" = --version ] && echo Python 3.10.1 && exit 0\nexit {int(not is_new)}\n')
        path.chmod(0o755)
    return subprocess.run(
        [SCRIPT], env={**os.environ, "PATH": str(folder)}, capture_output=True, text=True, check=False
    )


@pytest.mark.process
@pytest.mark.parametrize(
    ("pythons", "taken"),
    [
        ({"python3_11": True, "python3": True}, "python3.11"),
        ({"python3": True, "python3_13": True}, "python3"),
        ({"python3": False, "python3_12": True}, "python3.12"),
        # As pyenv's are for versions that are not chosen.
        ({"python3_11": False, "python3": False, "python3_14": True}, "python3.14"),
    ],
)
def test_the_first_python_that_is_new_enough_is_taken(tmp_path: Path, pythons: dict[str, bool], taken: str) -> None:
    assert chosen(tmp_path, **pythons).stdout == f"{tmp_path}/{taken}\n"


@pytest.mark.process
@pytest.mark.parametrize(
    ("pythons", "said"), [({"python3": False}, "and Python 3.10.1 is"), ({}, "and no Python 3 is")]
)
def test_without_one_it_says_what_is_there_and_what_to_do(tmp_path: Path, pythons: dict[str, bool], said: str) -> None:
    done = chosen(tmp_path, **pythons)
    assert done.returncode == 1
    assert done.stderr.startswith("cannot set up: Python 3.11 or newer has to be on PATH, ")
    assert said in done.stderr

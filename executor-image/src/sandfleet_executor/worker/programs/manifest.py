"""A program: reports what is installed, as code in the session finds it.

Prints one JSON object:
  {"languages": {name: version}, "packages": [[name, version, "image"|"workspace"], …], "left_out": count,
   "declared": […]}
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

from .. import languages
from ..packages.distributions import installed
from ..packages.requirements import Installed

MAX_PACKAGES = 5000
MAX_TEXT = 200
VERSION_SECONDS = 10


def main(folder: str, wanted: str) -> None:
    """`folder`: the workspace's packages. `wanted`: the requirements of the template, a JSON list."""
    found = sorted({*_packages(sys.path, "image"), *_packages([folder], "workspace")})
    declared = Installed(folder)
    report = {
        "languages": dict(_languages()),
        "packages": found[:MAX_PACKAGES],
        "left_out": len(found[MAX_PACKAGES:]),
        "declared": [declared.find(each) for each in json.loads(wanted)],
    }
    print(json.dumps(report))


def _packages(path: list[str], origin: str) -> Iterator[tuple[str, str, str]]:
    for name, version, _ in installed(path):
        yield name[:MAX_TEXT], version[:MAX_TEXT], origin


def _languages() -> Iterator[tuple[str, str]]:
    for name in languages.available():
        yield name, _version(name)
    for name in languages.unsure():
        if version := _version(name):
            yield name, version


def _version(name: str) -> str:
    """The version of a language; of a Jupyter kernel its title."""
    if title := languages.title(name):
        return title[:MAX_TEXT]
    try:
        output: Any = subprocess.run(
            languages.version(name),
            capture_output=True,
            text=True,
            errors="replace",
            timeout=VERSION_SECONDS,
            check=False,
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return ""
    return str(output).strip()[:MAX_TEXT]

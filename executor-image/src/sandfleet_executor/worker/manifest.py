"""What is installed, as code in the session finds it. A program of its own, run as a command: prints one JSON object.

{"languages": {name: version}, "packages": [[name, version, "image"|"workspace"], …], "left_out": count}
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import distributions
from typing import Any

from . import languages

MAX_PACKAGES = 5000
MAX_TEXT = 200
VERSION_SECONDS = 10


def main(folder: str) -> None:
    """`folder` is where packages of the workspace are."""
    found = sorted({*_packages(sys.path, "image"), *_packages([folder], "workspace")})
    said = {
        "languages": {name: _version(languages.LANGUAGES[name]) for name in languages.available()},
        "packages": found[:MAX_PACKAGES],
        "left_out": len(found[MAX_PACKAGES:]),
    }
    print(json.dumps(said))


def _packages(path: list[str], origin: str) -> Iterator[tuple[str, str, str]]:
    for each in distributions(path=path):
        try:
            name, version = each.metadata["Name"], each.version
        except Exception:  # noqa: BLE001, S112 what is installed may say anything of itself, or be half gone
            continue
        if name and version:
            yield str(name)[:MAX_TEXT], str(version)[:MAX_TEXT], origin


def _version(language: languages.Language) -> str:
    try:
        said: Any = subprocess.run(
            language.version, capture_output=True, text=True, errors="replace", timeout=VERSION_SECONDS, check=False
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return ""
    return str(said).strip()[:MAX_TEXT]

"""The session's list of installed packages, checked: the program that made it ran beside user code."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from sandfleet_executor.core.errors import RpcError
from sandfleet_executor.core.packages import installation
from sandfleet_executor.core.packages.installation import BadReport, Declared

MAX_PACKAGES = 5000
MAX_LANGUAGES = 64
MAX_TEXT = 200
ORIGINS = ("image", "workspace")


class BadManifest(RpcError, ValueError, code="FAILED_PRECONDITION", reason="EnvironmentUnreadable"):
    """What was said is no list of languages and declared."""


@dataclass(frozen=True, order=True)
class Package:
    name: str
    version: str
    origin: str


@dataclass(frozen=True)
class Manifest:
    # (name, version)
    languages: tuple[tuple[str, str], ...]
    packages: tuple[Package, ...]
    fixed_envs: dict[str, str]
    # The packages that the template declares, in their present state.
    declared: tuple[Declared, ...] = ()


def parse(data: bytes, fixed_envs: dict[str, str], requirements: Sequence[str] = ()) -> Manifest:
    """Raises BadManifest."""
    try:
        said = json.loads(data)
        languages = [(_text(name), _text(version)) for name, version in said["languages"].items()]
        found = [Package(_text(name), _text(version), _origin(origin)) for name, version, origin in said["packages"]]
        left_out = int(said["left_out"])
        declared = installation.declared(said["declared"], requirements)
    except BadReport as error:
        raise BadManifest(str(error)) from error
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, OverflowError) as error:
        raise BadManifest(f"cannot read what is installed: {error!r:.200}") from error
    if left_out or len(found) > MAX_PACKAGES or len(languages) > MAX_LANGUAGES:
        raise BadManifest(f"cannot list what is installed: it is more than {MAX_PACKAGES} packages")
    return Manifest(tuple(languages), tuple(sorted(found)), fixed_envs, declared)


def _text(value: object) -> str:
    if not isinstance(value, str) or len(value) > MAX_TEXT:
        raise BadManifest(f"cannot read what is installed: {value!r:.80} is no short text")
    # Lone surrogates do not fit into a message of the API.
    return value.encode("utf-8", "replace").decode()


def _origin(value: object) -> str:
    if value not in ORIGINS:
        raise BadManifest(f"cannot read what is installed: {value!r:.80} is no origin")
    return str(value)

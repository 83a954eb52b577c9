"""The environment of a sandbox: its languages, packages and fixed variables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sandfleet.values import _show


@dataclass(frozen=True, slots=True)
class Notice:
    """A fact about the sandbox, told once: a CamelCase word for programs, a sentence for people and models."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Package:
    """A Python distribution. `origin` is "image", or "workspace" (installed by %pip or declared by the template)."""

    name: str
    version: str
    origin: str


@dataclass(frozen=True, slots=True)
class DeclaredPackage:
    """A package that the template declares.

    state  waiting, installing, installed, failed, or not-needed (its marker is for another Python).
    """

    requirement: str
    state: str
    name: str = ""
    version: str = ""
    origin: str = ""


@dataclass(frozen=True, slots=True)
class PreloadedModule:
    """A module that the template has loaded ahead of all contexts. `state` is waiting, loaded or failed.

    `problem` says why it failed: contexts run without it.
    """

    name: str
    state: str
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Installation:
    """The installation of the packages that the template declares: waiting, installing, installed or failed.

    reason, message  of a failure: one CamelCase word for programs, one sentence for people and models.
    log              the end of pip's output; only in `environment()`.
    """

    state: str
    reason: str = ""
    message: str = ""
    log: str = ""


@dataclass(frozen=True, slots=True)
class Environment:
    """The languages, packages and variables of a sandbox.

    python_version  as "3.11.2".
    kernel          the name of the kernel that code sees.
    languages       of contexts: name → version.
    packages        by name. If a name occurs twice, `import` finds the image's.
    fixed_envs      variables that make two runs alike: hash seed, time zone, locale, numbers of threads.
    declared        the packages that the template declares, in its order, with their current state.
    installation    their installation at the session's start; None if the template declares none.
    """

    python_version: str
    kernel: str
    languages: Mapping[str, str] = field(default_factory=dict)
    packages: tuple[Package, ...] = ()
    fixed_envs: Mapping[str, str] = field(default_factory=dict)
    declared: tuple[DeclaredPackage, ...] = ()
    installation: Installation | None = None

    def __repr__(self) -> str:
        languages = ", ".join(self.languages)
        return _show.short("Environment", f"Python {self.python_version}", languages, f"{len(self.packages)} packages")

    @property
    def missing(self) -> tuple[str, ...]:
        """The template's requirements that are not met."""
        return tuple(each.requirement for each in self.declared if each.state == "failed")

    def version_of(self, package: str) -> str | None:
        """The version that `import` finds; None if the package is missing.

        Case and dashes of the name do not matter.
        """
        wanted = _plain(package)
        found = {each.origin: each.version for each in self.packages if _plain(each.name) == wanted}
        return found.get("image", found.get("workspace"))


def _plain(name: str) -> str:
    return name.lower().replace("_", "-").replace(".", "-")

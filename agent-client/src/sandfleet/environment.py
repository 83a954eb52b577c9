"""What code finds in a sandbox: the manifest of its environment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Notice:
    """What is to be known of the sandbox: one CamelCase word for programs, one sentence for people and models."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Package:
    """A distribution of Python. `origin` is "image" (the template's) or "workspace" (%pip's, and what the template declares)."""

    name: str
    version: str
    origin: str


@dataclass(frozen=True, slots=True)
class DeclaredPackage:
    """What the template declares. `state` is waiting, installing, installed, failed or not-needed (its marker is for another Python)."""

    requirement: str
    state: str
    name: str = ""
    version: str = ""
    origin: str = ""


@dataclass(frozen=True, slots=True)
class Installation:
    """What became of the packages that the template declares: waiting, installing, installed or failed.

    reason, message  of a failure: one CamelCase word for programs, one sentence for people and models.
    log              the end of what pip said; only in `environment()`.
    """

    state: str
    reason: str = ""
    message: str = ""
    log: str = ""


@dataclass(frozen=True, slots=True)
class Environment:
    """What code finds in a sandbox.

    python_version  as "3.11.2".
    kernel          as the kernel that code sees names itself.
    languages       of contexts: name → version.
    packages        by name. Where one name is there twice, `import` finds the image's.
    fixed_envs      variables that make two runs alike: hash seed, time zone, locale, numbers of threads.
    declared        the packages that the template declares, in its order, as they are there now.
    installation    what became of them when the session began; None where there are none.
    """

    python_version: str
    kernel: str
    languages: Mapping[str, str] = field(default_factory=dict)
    packages: tuple[Package, ...] = ()
    fixed_envs: Mapping[str, str] = field(default_factory=dict)
    declared: tuple[DeclaredPackage, ...] = ()
    installation: Installation | None = None

    @property
    def missing(self) -> tuple[str, ...]:
        """Requirements of the template that are not met."""
        return tuple(each.requirement for each in self.declared if each.state == "failed")

    def version_of(self, package: str) -> str | None:
        """The version that `import` finds, whatever the case and the dashes of its name; None where it is not there."""
        wanted = _plain(package)
        found = {each.origin: each.version for each in self.packages if _plain(each.name) == wanted}
        return found.get("image", found.get("workspace"))


def _plain(name: str) -> str:
    return name.lower().replace("_", "-").replace(".", "-")

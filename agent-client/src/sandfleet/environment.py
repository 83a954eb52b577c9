"""What code finds in a sandbox: the manifest of its environment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Package:
    """A distribution of Python. `origin` is "image" (the template's) or "workspace" (what %pip installed)."""

    name: str
    version: str
    origin: str


@dataclass(frozen=True, slots=True)
class Environment:
    """What code finds in a sandbox.

    python_version  as "3.11.2".
    kernel          as the kernel that code sees names itself.
    languages       of contexts: name → version.
    packages        by name. Where one name is there twice, `import` finds the image's.
    fixed_envs      variables that make two runs alike: hash seed, time zone, locale, numbers of threads.
    """

    python_version: str
    kernel: str
    languages: Mapping[str, str] = field(default_factory=dict)
    packages: tuple[Package, ...] = ()
    fixed_envs: Mapping[str, str] = field(default_factory=dict)

    def version_of(self, package: str) -> str | None:
        """The version that `import` finds, whatever the case and the dashes of its name; None where it is not there."""
        wanted = _plain(package)
        found = {each.origin: each.version for each in self.packages if _plain(each.name) == wanted}
        return found.get("image", found.get("workspace"))


def _plain(name: str) -> str:
    return name.lower().replace("_", "-").replace(".", "-")

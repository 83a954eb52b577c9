"""Names and modules that are imported at their first use, so that `import sandfleet` costs little."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping


def attach(package: str, homes: Mapping[str, Iterable[str]]) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Make the `__getattr__` and `__dir__` of a package whose names live in other modules: {module: names}.

    Module names are relative to the package.
    """
    module_of = {name: module for module, names in homes.items() for name in names}
    namespace = vars(import_module(package))

    def get(name: str) -> object:
        if (module := module_of.get(name)) is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        namespace[name] = value = getattr(import_module(f"{package}.{module}"), name)
        return value

    def names() -> list[str]:
        return sorted({*namespace, *module_of})

    return get, names


def attach_modules(package: str, modules: Mapping[str, str]) -> Callable[[str], object]:
    """Make the `__getattr__` of a module whose names are other modules: {name: full name of the module}."""
    namespace = vars(import_module(package))

    def get(name: str) -> object:
        if (module := modules.get(name)) is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        namespace[name] = loaded = import_module(module)
        return loaded

    return get

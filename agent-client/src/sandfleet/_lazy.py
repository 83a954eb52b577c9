"""Names and modules that are imported at their first use, so that `import sandfleet` costs little."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def attach(package: str, module_of: Mapping[str, str]) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Make the `__getattr__` and `__dir__` of a package whose names live in other modules: {name: module}."""
    namespace = vars(import_module(package))

    def get(name: str) -> object:
        if (module := module_of.get(name)) is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        namespace[name] = value = getattr(import_module(module), name)
        return value

    def names() -> list[str]:
        return sorted({*namespace, *module_of})

    return get, names


def homes(package: str) -> dict[str, str]:
    """Return the module of each name that a package imports for type checkers alone, one name a line.

    So each name is written once. The package's own source is read, without `re` or `ast`, which take longer to import.
    """
    namespace = vars(import_module(package))
    source = namespace["__loader__"].get_data(namespace["__file__"]).decode()
    lines = (line.split() for line in source.splitlines() if line.startswith(f"    from {package}."))
    return {words[-1]: words[1] for words in lines}


def attach_modules(package: str, modules: Mapping[str, str]) -> Callable[[str], object]:
    """Make the `__getattr__` of a module whose names are other modules: {name: full name of the module}."""
    namespace = vars(import_module(package))

    def get(name: str) -> object:
        if (module := modules.get(name)) is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        namespace[name] = loaded = import_module(module)
        return loaded

    return get

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
    """Return the module of each name that a package imports for type checkers alone, one name a line."""
    return {words[-1]: words[1] for words in _imports(package) if words[1].startswith(f"{package}.")}


def attach_modules(module: str) -> Callable[[str], object]:
    """Make the `__getattr__` of a module whose names are other modules: those that it imports for type checkers."""
    namespace = vars(import_module(module))
    full_names = {words[-1]: ".".join(words[1:4:2]) for words in _imports(module)}

    def get(name: str) -> object:
        if (full_name := full_names.get(name)) is None:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        namespace[name] = loaded = import_module(full_name)
        return loaded

    return get


def _imports(module: str) -> list[list[str]]:
    """The words of each indented import in the source of a module: so no name is written twice.

    `ast` and `re` would find them as well, and take longer to import.
    """
    namespace = vars(import_module(module))
    source = namespace["__loader__"].get_data(namespace["__file__"]).decode()
    return [line.split() for line in source.splitlines() if line.startswith(("    from ", "    import "))]

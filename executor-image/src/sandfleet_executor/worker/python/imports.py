"""Work that follows the import of a module which code may import at any time, or never."""

import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType


def after(name: str, call: Callable[[ModuleType], None]) -> None:
    """Calls it with the module: at once, if it is imported already, otherwise as soon as code imports it."""
    if (module := sys.modules.get(name)) is not None:
        call(module)
    else:
        sys.meta_path.insert(0, _Finder(name, call))


class _Finder:
    """Finds one module as Python does, once."""

    def __init__(self, name: str, call: Callable[[ModuleType], None]) -> None:
        self._name, self._call = name, call

    def find_spec(self, name: str, path: Sequence[str] | None, _target: ModuleType | None = None) -> ModuleSpec | None:
        if name != self._name:
            return None
        sys.meta_path.remove(self)
        spec = PathFinder.find_spec(name, path)
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def loaded(module: ModuleType) -> None:
                load(module)
                self._call(module)

            spec.loader.exec_module = loaded  # type: ignore[method-assign] # of this one module
        return spec

"""The names by which saved states refer to functions of the worker.

A pickle names a function by its module. A state may be read by a later version than the one that wrote it, or by an
earlier one: such a function keeps the module name of its first version, wherever its code is now.
"""

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any, TypeVar

# In the session it is another name than the executor's own.
WORKER = (__package__ or "").removesuffix(".python.state")
Function = TypeVar("Function", bound=Callable[..., Any])


def stored_as(module: str, *former: str) -> Callable[[Function], Function]:
    """Decorator: in pickles the function belongs to `module`, directly below the worker's package.

    `former` names find it in states of earlier versions.
    """
    name = f"{WORKER}.{module}"

    def keep(function: Function) -> Function:
        for each in (function.__name__, *former):
            setattr(sys.modules.setdefault(name, ModuleType(name)), each, function)
        function.__module__ = name
        return function

    return keep

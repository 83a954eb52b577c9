"""Modules that are imported at their first use, so that `from sandfleet import Sandbox` costs little.

Nothing here is needed before there is a sandbox; then gRPC is, which costs more than all of this.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

__all__ = [
    "asyncio",
    "claiming",
    "cluster",
    "collect",
    "convert",
    "convert_states",
    "door",
    "egress",
    "embedded",
    "file_values",
    "file_watch",
    "follow",
    "interpreter",
    "service_values",
    "serviceconvert",
    "status",
    "telemetry",
    "transfers",
    "transport",
    "uploading",
    "usage",
    "values",
    "watching",
]

if TYPE_CHECKING:
    import asyncio

    from sandfleet import _convert as convert
    from sandfleet import _convert_states as convert_states
    from sandfleet import _serviceconvert as serviceconvert
    from sandfleet import _status as status
    from sandfleet import _usage as usage
    from sandfleet import (
        claiming,
        cluster,
        collect,
        door,
        egress,
        embedded,
        file_values,
        file_watch,
        follow,
        interpreter,
        service_values,
        telemetry,
        transfers,
        transport,
        uploading,
        values,
        watching,
    )
else:
    from importlib import import_module

    _MODULES = {
        "asyncio": "asyncio",
        "convert": "sandfleet._convert",
        "convert_states": "sandfleet._convert_states",
        "serviceconvert": "sandfleet._serviceconvert",
        "status": "sandfleet._status",
        "usage": "sandfleet._usage",
    }

    def __getattr__(name: str) -> object:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = loaded = import_module(_MODULES.get(name, f"sandfleet.{name}"))
        return loaded

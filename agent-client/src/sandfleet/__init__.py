"""Sandboxes for agents that act by writing code.

    from sandfleet import Sandbox
    with Sandbox.create() as sandbox:
        sandbox.run_code("x = 20")
        print(sandbox.run_code("x + 1").text)

`AsyncSandbox` has the same calls for asyncio. Everything here is imported at its first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sandfleet.codeact import CodeActAgent as CodeActAgent
    from sandfleet.commands import AsyncCommandHandle as AsyncCommandHandle
    from sandfleet.egress import EgressInfo as EgressInfo
    from sandfleet.egress import EgressState as EgressState
    from sandfleet.environment import DeclaredPackage as DeclaredPackage
    from sandfleet.environment import Environment as Environment
    from sandfleet.environment import Installation as Installation
    from sandfleet.environment import Notice as Notice
    from sandfleet.environment import Package as Package
    from sandfleet.errors import ClaimError as ClaimError
    from sandfleet.errors import CommandFailed as CommandFailed
    from sandfleet.errors import FileError as FileError
    from sandfleet.errors import SandboxEnded as SandboxEnded
    from sandfleet.errors import SandboxError as SandboxError
    from sandfleet.errors import SandfleetError as SandfleetError
    from sandfleet.errors import ServiceNotReadyError as ServiceNotReadyError
    from sandfleet.errors import TransferIncomplete as TransferIncomplete
    from sandfleet.errors import UnavailableError as UnavailableError
    from sandfleet.file_values import FileEvent as FileEvent
    from sandfleet.file_values import FileEventType as FileEventType
    from sandfleet.file_values import Found as Found
    from sandfleet.file_values import Match as Match
    from sandfleet.file_values import Progress as Progress
    from sandfleet.file_values import Transfer as Transfer
    from sandfleet.file_watch import AsyncFileWatch as AsyncFileWatch
    from sandfleet.fleet import AsyncFleet as AsyncFleet
    from sandfleet.fleet_values import Bound as Bound
    from sandfleet.fleet_values import PoolInfo as PoolInfo
    from sandfleet.fleet_values import Queued as Queued
    from sandfleet.fleet_values import SandboxChange as SandboxChange
    from sandfleet.ports import AsyncForward as AsyncForward
    from sandfleet.pty import AsyncPtyHandle as AsyncPtyHandle
    from sandfleet.rollback import OnFailure as OnFailure
    from sandfleet.rollback import Rollback as Rollback
    from sandfleet.sandbox import AsyncSandbox as AsyncSandbox
    from sandfleet.service_values import Probe as Probe
    from sandfleet.service_values import Service as Service
    from sandfleet.service_values import ServiceSpec as ServiceSpec
    from sandfleet.service_values import ServiceState as ServiceState
    from sandfleet.service_values import exec_ as exec_
    from sandfleet.service_values import http as http
    from sandfleet.service_values import tcp as tcp
    from sandfleet.state_values import Autosave as Autosave
    from sandfleet.sync import Fleet as Fleet
    from sandfleet.sync import Sandbox as Sandbox
    from sandfleet.sync_commands import CommandHandle as CommandHandle
    from sandfleet.sync_files import FileWatch as FileWatch
    from sandfleet.sync_ports import Forward as Forward
    from sandfleet.sync_pty import PtyHandle as PtyHandle
    from sandfleet.usage_values import ExecutionUsage as ExecutionUsage
    from sandfleet.usage_values import SandboxUsage as SandboxUsage
    from sandfleet.values import Blame as Blame
    from sandfleet.values import CommandResult as CommandResult
    from sandfleet.values import Execution as Execution
    from sandfleet.values import ExecutionError as ExecutionError
    from sandfleet.values import FileInfo as FileInfo
    from sandfleet.values import Isolation as Isolation
    from sandfleet.values import Limits as Limits
    from sandfleet.values import Outcome as Outcome
    from sandfleet.values import Result as Result
    from sandfleet.values import SandboxInfo as SandboxInfo
    from sandfleet.values import Usage as Usage

__version__ = "0.1.0"

_HOMES = {
    "codeact": ("CodeActAgent",),
    "commands": ("AsyncCommandHandle",),
    "egress": ("EgressInfo", "EgressState"),
    "environment": ("DeclaredPackage", "Environment", "Installation", "Notice", "Package"),
    "errors": (
        "ClaimError",
        "CommandFailed",
        "FileError",
        "SandboxEnded",
        "SandboxError",
        "SandfleetError",
        "TransferIncomplete",
        "ServiceNotReadyError",
        "UnavailableError",
    ),
    "file_values": ("FileEvent", "FileEventType", "Found", "Match", "Progress", "Transfer"),
    "file_watch": ("AsyncFileWatch",),
    "fleet": ("AsyncFleet",),
    "fleet_values": ("Bound", "PoolInfo", "Queued", "SandboxChange"),
    "ports": ("AsyncForward",),
    "pty": ("AsyncPtyHandle",),
    "rollback": ("OnFailure", "Rollback"),
    "sandbox": ("AsyncSandbox",),
    "service_values": ("Probe", "Service", "ServiceSpec", "ServiceState", "exec_", "http", "tcp"),
    "state_values": ("Autosave",),
    "sync": ("Fleet", "Sandbox"),
    "sync_commands": ("CommandHandle",),
    "sync_files": ("FileWatch",),
    "sync_ports": ("Forward",),
    "sync_pty": ("PtyHandle",),
    "usage_values": ("ExecutionUsage", "SandboxUsage"),
    "values": (
        "Blame",
        "CommandResult",
        "Execution",
        "ExecutionError",
        "FileInfo",
        "Isolation",
        "Limits",
        "Outcome",
        "Result",
        "SandboxInfo",
        "Usage",
    ),
}
_MODULE_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = ["__version__", *sorted(_MODULE_OF)]  # noqa: PLE0604  strings they are, which the test of the public names holds


def __getattr__(name: str) -> object:
    if (module := _MODULE_OF.get(name)) is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(f"{__name__}.{module}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_MODULE_OF])

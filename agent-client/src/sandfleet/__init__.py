"""Sandboxes for agents that act by writing code.

    from sandfleet import Sandbox
    with Sandbox.create() as sandbox:
        sandbox.run_code("x = 20")
        print(sandbox.run_code("x + 1").text)

`AsyncSandbox` has the same calls for asyncio. Everything here is imported at its first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sandfleet._lazy import attach, homes

if TYPE_CHECKING:
    from sandfleet._fleets.fleet import AsyncFleet as AsyncFleet
    from sandfleet._sync.commands import CommandHandle as CommandHandle
    from sandfleet._sync.fleet import Fleet as Fleet
    from sandfleet._sync.ports import Forward as Forward
    from sandfleet._sync.pty import PtyHandle as PtyHandle
    from sandfleet._sync.sandbox import Sandbox as Sandbox
    from sandfleet._sync.tables import ContextHandle as ContextHandle
    from sandfleet._sync.tools import ToolServer as ToolServer
    from sandfleet._sync.watch import FileWatch as FileWatch
    from sandfleet._toolkit import AsyncToolkit as AsyncToolkit
    from sandfleet._toolkit import Toolkit as Toolkit
    from sandfleet._toolkit import ToolSchema as ToolSchema
    from sandfleet._toolkit import ToolText as ToolText
    from sandfleet._toolkit import toolkit as toolkit
    from sandfleet.codeact import CodeActAgent as CodeActAgent
    from sandfleet.codeact.ask import AskedModel as AskedModel
    from sandfleet.codeact.ask import ask_model as ask_model
    from sandfleet.errors import AccessDenied as AccessDenied
    from sandfleet.errors import AlreadyExistsError as AlreadyExistsError
    from sandfleet.errors import AuthenticationError as AuthenticationError
    from sandfleet.errors import ClaimError as ClaimError
    from sandfleet.errors import CommandFailed as CommandFailed
    from sandfleet.errors import DirectoryNotEmpty as DirectoryNotEmpty
    from sandfleet.errors import ExecutionFailed as ExecutionFailed
    from sandfleet.errors import FileError as FileError
    from sandfleet.errors import FileExists as FileExists
    from sandfleet.errors import FileNotFound as FileNotFound
    from sandfleet.errors import FilePermission as FilePermission
    from sandfleet.errors import InvalidArgument as InvalidArgument
    from sandfleet.errors import InvalidPath as InvalidPath
    from sandfleet.errors import IsADirectory as IsADirectory
    from sandfleet.errors import LimitReached as LimitReached
    from sandfleet.errors import NoSpace as NoSpace
    from sandfleet.errors import NotADirectory as NotADirectory
    from sandfleet.errors import NotARegularFile as NotARegularFile
    from sandfleet.errors import NotFoundError as NotFoundError
    from sandfleet.errors import PreconditionFailed as PreconditionFailed
    from sandfleet.errors import ProtocolError as ProtocolError
    from sandfleet.errors import RpcTimeout as RpcTimeout
    from sandfleet.errors import SandboxEnded as SandboxEnded
    from sandfleet.errors import SandboxError as SandboxError
    from sandfleet.errors import SandboxPreempted as SandboxPreempted
    from sandfleet.errors import SandboxSuspended as SandboxSuspended
    from sandfleet.errors import SandfleetError as SandfleetError
    from sandfleet.errors import ServiceNotReadyError as ServiceNotReadyError
    from sandfleet.errors import TooManyLinks as TooManyLinks
    from sandfleet.errors import TransferIncomplete as TransferIncomplete
    from sandfleet.errors import UnavailableError as UnavailableError
    from sandfleet.observe.intent import intent as intent
    from sandfleet.resources.commands import AsyncCommandHandle as AsyncCommandHandle
    from sandfleet.resources.files.watch import AsyncFileWatch as AsyncFileWatch
    from sandfleet.resources.ports import AsyncForward as AsyncForward
    from sandfleet.resources.pty import AsyncPtyHandle as AsyncPtyHandle
    from sandfleet.resources.tables import AsyncContextHandle as AsyncContextHandle
    from sandfleet.sandbox import AsyncSandbox as AsyncSandbox
    from sandfleet.skills.library import SkillError as SkillError
    from sandfleet.skills.library import SkillLibrary as SkillLibrary
    from sandfleet.skills.skill import Skill as Skill
    from sandfleet.skills.skill import SkillState as SkillState
    from sandfleet.skills.skill import WasmModule as WasmModule
    from sandfleet.tools.declared import tool as tool
    from sandfleet.tools.mcp.source import McpServer as McpServer
    from sandfleet.tools.mcp.source import mcp_server as mcp_server
    from sandfleet.tools.server import AsyncToolServer as AsyncToolServer
    from sandfleet.values.egress import Egress as Egress
    from sandfleet.values.egress import EgressReport as EgressReport
    from sandfleet.values.egress import Header as Header
    from sandfleet.values.egress import HostUse as HostUse
    from sandfleet.values.environment import DeclaredPackage as DeclaredPackage
    from sandfleet.values.environment import Environment as Environment
    from sandfleet.values.environment import Installation as Installation
    from sandfleet.values.environment import Notice as Notice
    from sandfleet.values.environment import Package as Package
    from sandfleet.values.environment import PreloadedModule as PreloadedModule
    from sandfleet.values.execution import Blame as Blame
    from sandfleet.values.execution import CommandResult as CommandResult
    from sandfleet.values.execution import Execution as Execution
    from sandfleet.values.execution import ExecutionError as ExecutionError
    from sandfleet.values.execution import OnFailure as OnFailure
    from sandfleet.values.execution import Outcome as Outcome
    from sandfleet.values.execution import Result as Result
    from sandfleet.values.execution import Rollback as Rollback
    from sandfleet.values.execution import Usage as Usage
    from sandfleet.values.files import FileEvent as FileEvent
    from sandfleet.values.files import FileEventType as FileEventType
    from sandfleet.values.files import FileInfo as FileInfo
    from sandfleet.values.files import Found as Found
    from sandfleet.values.files import Match as Match
    from sandfleet.values.files import Progress as Progress
    from sandfleet.values.files import Transfer as Transfer
    from sandfleet.values.fleet import Bound as Bound
    from sandfleet.values.fleet import Explanation as Explanation
    from sandfleet.values.fleet import PoolInfo as PoolInfo
    from sandfleet.values.fleet import Queued as Queued
    from sandfleet.values.fleet import QueueInfo as QueueInfo
    from sandfleet.values.fleet import Quota as Quota
    from sandfleet.values.fleet import SandboxChange as SandboxChange
    from sandfleet.values.options import CodeOptions as CodeOptions
    from sandfleet.values.options import ContextOptions as ContextOptions
    from sandfleet.values.options import CreateOptions as CreateOptions
    from sandfleet.values.options import ExplainOptions as ExplainOptions
    from sandfleet.values.options import ListenOptions as ListenOptions
    from sandfleet.values.options import LookOptions as LookOptions
    from sandfleet.values.options import RunOptions as RunOptions
    from sandfleet.values.reviews import Answer as Answer
    from sandfleet.values.reviews import Review as Review
    from sandfleet.values.sandbox import EgressInfo as EgressInfo
    from sandfleet.values.sandbox import EgressState as EgressState
    from sandfleet.values.sandbox import Isolation as Isolation
    from sandfleet.values.sandbox import Limits as Limits
    from sandfleet.values.sandbox import SandboxInfo as SandboxInfo
    from sandfleet.values.services import Probe as Probe
    from sandfleet.values.services import Service as Service
    from sandfleet.values.services import ServiceSpec as ServiceSpec
    from sandfleet.values.services import ServiceState as ServiceState
    from sandfleet.values.services import exec_ as exec_
    from sandfleet.values.services import http as http
    from sandfleet.values.services import tcp as tcp
    from sandfleet.values.suspension import KeptContext as KeptContext
    from sandfleet.values.suspension import Preemption as Preemption
    from sandfleet.values.suspension import Restoration as Restoration
    from sandfleet.values.suspension import Resumption as Resumption
    from sandfleet.values.suspension import Snapshot as Snapshot
    from sandfleet.values.suspension import SnapshotContents as SnapshotContents
    from sandfleet.values.suspension import Suspension as Suspension
    from sandfleet.values.suspension import UnsavedFile as UnsavedFile
    from sandfleet.values.tools import Decision as Decision
    from sandfleet.values.tools import Tool as Tool
    from sandfleet.values.tools import ToolCall as ToolCall
    from sandfleet.values.tools import ToolLimits as ToolLimits
    from sandfleet.values.tools import ToolSession as ToolSession
    from sandfleet.values.usage import ExecutionUsage as ExecutionUsage
    from sandfleet.values.usage import LanguageUsage as LanguageUsage
    from sandfleet.values.usage import SandboxUsage as SandboxUsage
    from sandfleet.values.variables import Autosave as Autosave

__version__ = "0.1.0"

if not TYPE_CHECKING:
    _HOMES = homes(__name__)
    __getattr__, __dir__ = attach(__name__, _HOMES)
    __all__ = ["__version__", *sorted(_HOMES)]  # noqa: PLE0604  they are strings

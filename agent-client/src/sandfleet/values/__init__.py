"""Frozen answers and requests, free of gRPC and protobuf: what the calls of a sandbox give and take."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sandfleet._lazy import attach, homes

if TYPE_CHECKING:
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
    from sandfleet.values.execution import Cleared as Cleared
    from sandfleet.values.execution import CommandOutput as CommandOutput
    from sandfleet.values.execution import CommandResult as CommandResult
    from sandfleet.values.execution import Completion as Completion
    from sandfleet.values.execution import Context as Context
    from sandfleet.values.execution import Execution as Execution
    from sandfleet.values.execution import ExecutionError as ExecutionError
    from sandfleet.values.execution import FileChanges as FileChanges
    from sandfleet.values.execution import Frame as Frame
    from sandfleet.values.execution import Gap as Gap
    from sandfleet.values.execution import InputRequest as InputRequest
    from sandfleet.values.execution import Inspection as Inspection
    from sandfleet.values.execution import Logs as Logs
    from sandfleet.values.execution import MimeParts as MimeParts
    from sandfleet.values.execution import OnClear as OnClear
    from sandfleet.values.execution import OnFailure as OnFailure
    from sandfleet.values.execution import OnInput as OnInput
    from sandfleet.values.execution import OnResult as OnResult
    from sandfleet.values.execution import OnText as OnText
    from sandfleet.values.execution import Outcome as Outcome
    from sandfleet.values.execution import Result as Result
    from sandfleet.values.execution import Rollback as Rollback
    from sandfleet.values.execution import RunningCommand as RunningCommand
    from sandfleet.values.execution import Stream as Stream
    from sandfleet.values.execution import Usage as Usage
    from sandfleet.values.files import FileEvent as FileEvent
    from sandfleet.values.files import FileEventType as FileEventType
    from sandfleet.values.files import FileInfo as FileInfo
    from sandfleet.values.files import FileType as FileType
    from sandfleet.values.files import Found as Found
    from sandfleet.values.files import Match as Match
    from sandfleet.values.files import OnProgress as OnProgress
    from sandfleet.values.files import Progress as Progress
    from sandfleet.values.files import Skipped as Skipped
    from sandfleet.values.files import Transfer as Transfer
    from sandfleet.values.fleet import FLEET_UNAVAILABLE as FLEET_UNAVAILABLE
    from sandfleet.values.fleet import Bound as Bound
    from sandfleet.values.fleet import EgressWord as EgressWord
    from sandfleet.values.fleet import Explanation as Explanation
    from sandfleet.values.fleet import OnQueued as OnQueued
    from sandfleet.values.fleet import PoolInfo as PoolInfo
    from sandfleet.values.fleet import Queued as Queued
    from sandfleet.values.fleet import QueueInfo as QueueInfo
    from sandfleet.values.fleet import Quota as Quota
    from sandfleet.values.fleet import SandboxChange as SandboxChange
    from sandfleet.values.options import DEFAULT_LEASE as DEFAULT_LEASE
    from sandfleet.values.options import DEFAULT_MAX_WAIT as DEFAULT_MAX_WAIT
    from sandfleet.values.options import DEFAULT_RPC_TIMEOUT as DEFAULT_RPC_TIMEOUT
    from sandfleet.values.options import CodeOptions as CodeOptions
    from sandfleet.values.options import ContextOptions as ContextOptions
    from sandfleet.values.options import CreateOptions as CreateOptions
    from sandfleet.values.options import ExplainOptions as ExplainOptions
    from sandfleet.values.options import ListenOptions as ListenOptions
    from sandfleet.values.options import LookOptions as LookOptions
    from sandfleet.values.options import RunOptions as RunOptions
    from sandfleet.values.reviews import Answer as Answer
    from sandfleet.values.reviews import OnReview as OnReview
    from sandfleet.values.reviews import Review as Review
    from sandfleet.values.sandbox import EgressInfo as EgressInfo
    from sandfleet.values.sandbox import EgressState as EgressState
    from sandfleet.values.sandbox import Isolation as Isolation
    from sandfleet.values.sandbox import Limits as Limits
    from sandfleet.values.sandbox import SandboxInfo as SandboxInfo
    from sandfleet.values.services import Applied as Applied
    from sandfleet.values.services import LogPiece as LogPiece
    from sandfleet.values.services import Probe as Probe
    from sandfleet.values.services import RestartPolicy as RestartPolicy
    from sandfleet.values.services import Service as Service
    from sandfleet.values.services import ServiceExit as ServiceExit
    from sandfleet.values.services import ServiceSpec as ServiceSpec
    from sandfleet.values.services import ServiceState as ServiceState
    from sandfleet.values.services import exec_ as exec_
    from sandfleet.values.services import http as http
    from sandfleet.values.services import tcp as tcp
    from sandfleet.values.usage import ExecutionUsage as ExecutionUsage
    from sandfleet.values.usage import Health as Health
    from sandfleet.values.usage import LanguageUsage as LanguageUsage
    from sandfleet.values.usage import SandboxUsage as SandboxUsage
    from sandfleet.values.variables import Autosave as Autosave
    from sandfleet.values.variables import Autosaved as Autosaved
    from sandfleet.values.variables import SavedState as SavedState
    from sandfleet.values.variables import StateItem as StateItem
    from sandfleet.values.variables import StateRestored as StateRestored
    from sandfleet.values.variables import StateSaved as StateSaved
    from sandfleet.values.variables import brought_back as brought_back

if not TYPE_CHECKING:
    __getattr__, __dir__ = attach(__name__, homes(__name__))

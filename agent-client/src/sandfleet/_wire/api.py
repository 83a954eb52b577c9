"""gRPC and the generated code of both APIs, each imported at its first use: they are the slowest imports."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from sandfleet._lazy import attach_modules

# gRPC's handlers start its threads anew in a forked child, where they go on with what the parent's threads left half
# done: about one child in seventy ended with SIGSEGV on a busy machine. gRPC reads this when it is first used.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

__all__ = [
    "aio",
    "common",
    "duration",
    "egress",
    "egress_grpc",
    "executor_snapshot",
    "filesystem",
    "filesystem_grpc",
    "fleet",
    "fleet_grpc",
    "gateway",
    "gateway_grpc",
    "grpc",
    "interpreter",
    "interpreter_grpc",
    "journal",
    "journal_grpc",
    "message",
    "port",
    "port_grpc",
    "process",
    "process_grpc",
    "service",
    "service_grpc",
    "session",
    "session_grpc",
    "snapshots",
    "snapshots_grpc",
    "timestamp",
    "tools",
    "tools_grpc",
]

if TYPE_CHECKING:
    import grpc
    from google.protobuf import duration_pb2 as duration
    from google.protobuf import message
    from google.protobuf import timestamp_pb2 as timestamp
    from grpc import aio
    from sandfleet_api.executor.v1 import common_pb2 as common
    from sandfleet_api.executor.v1 import filesystem_pb2 as filesystem
    from sandfleet_api.executor.v1 import filesystem_pb2_grpc as filesystem_grpc
    from sandfleet_api.executor.v1 import interpreter_pb2 as interpreter
    from sandfleet_api.executor.v1 import interpreter_pb2_grpc as interpreter_grpc
    from sandfleet_api.executor.v1 import journal_pb2 as journal
    from sandfleet_api.executor.v1 import journal_pb2_grpc as journal_grpc
    from sandfleet_api.executor.v1 import port_pb2 as port
    from sandfleet_api.executor.v1 import port_pb2_grpc as port_grpc
    from sandfleet_api.executor.v1 import process_pb2 as process
    from sandfleet_api.executor.v1 import process_pb2_grpc as process_grpc
    from sandfleet_api.executor.v1 import service_pb2 as service
    from sandfleet_api.executor.v1 import service_pb2_grpc as service_grpc
    from sandfleet_api.executor.v1 import session_pb2 as session
    from sandfleet_api.executor.v1 import session_pb2_grpc as session_grpc
    from sandfleet_api.executor.v1 import snapshot_pb2 as executor_snapshot
    from sandfleet_api.executor.v1 import tools_pb2 as tools
    from sandfleet_api.executor.v1 import tools_pb2_grpc as tools_grpc
    from sandfleet_api.fleet.v1 import egress_pb2 as egress
    from sandfleet_api.fleet.v1 import egress_pb2_grpc as egress_grpc
    from sandfleet_api.fleet.v1 import fleet_pb2 as fleet
    from sandfleet_api.fleet.v1 import fleet_pb2_grpc as fleet_grpc
    from sandfleet_api.fleet.v1 import gateway_pb2 as gateway
    from sandfleet_api.fleet.v1 import gateway_pb2_grpc as gateway_grpc
    from sandfleet_api.fleet.v1 import snapshot_pb2 as snapshots
    from sandfleet_api.fleet.v1 import snapshot_pb2_grpc as snapshots_grpc
else:
    __getattr__ = attach_modules(__name__)

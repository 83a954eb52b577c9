"""gRPC and the generated code of the two APIs, each imported at its first use: they cost more than the rest of the client."""

from __future__ import annotations

from typing import TYPE_CHECKING

__all__ = [
    "aio",
    "common",
    "duration",
    "filesystem",
    "filesystem_grpc",
    "fleet",
    "fleet_grpc",
    "grpc",
    "interpreter",
    "interpreter_grpc",
    "message",
    "port",
    "port_grpc",
    "process",
    "process_grpc",
    "service",
    "service_grpc",
    "session",
    "session_grpc",
    "timestamp",
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
    from sandfleet_api.executor.v1 import port_pb2 as port
    from sandfleet_api.executor.v1 import port_pb2_grpc as port_grpc
    from sandfleet_api.executor.v1 import process_pb2 as process
    from sandfleet_api.executor.v1 import process_pb2_grpc as process_grpc
    from sandfleet_api.executor.v1 import service_pb2 as service
    from sandfleet_api.executor.v1 import service_pb2_grpc as service_grpc
    from sandfleet_api.executor.v1 import session_pb2 as session
    from sandfleet_api.executor.v1 import session_pb2_grpc as session_grpc
    from sandfleet_api.fleet.v1 import fleet_pb2 as fleet
    from sandfleet_api.fleet.v1 import fleet_pb2_grpc as fleet_grpc
else:
    from importlib import import_module

    _MODULES = {
        "grpc": "grpc",
        "aio": "grpc.aio",
        "duration": "google.protobuf.duration_pb2",
        "message": "google.protobuf.message",
        "timestamp": "google.protobuf.timestamp_pb2",
        "common": "sandfleet_api.executor.v1.common_pb2",
        "filesystem": "sandfleet_api.executor.v1.filesystem_pb2",
        "filesystem_grpc": "sandfleet_api.executor.v1.filesystem_pb2_grpc",
        "interpreter": "sandfleet_api.executor.v1.interpreter_pb2",
        "interpreter_grpc": "sandfleet_api.executor.v1.interpreter_pb2_grpc",
        "port": "sandfleet_api.executor.v1.port_pb2",
        "port_grpc": "sandfleet_api.executor.v1.port_pb2_grpc",
        "process": "sandfleet_api.executor.v1.process_pb2",
        "process_grpc": "sandfleet_api.executor.v1.process_pb2_grpc",
        "service": "sandfleet_api.executor.v1.service_pb2",
        "service_grpc": "sandfleet_api.executor.v1.service_pb2_grpc",
        "session": "sandfleet_api.executor.v1.session_pb2",
        "session_grpc": "sandfleet_api.executor.v1.session_pb2_grpc",
        "fleet": "sandfleet_api.fleet.v1.fleet_pb2",
        "fleet_grpc": "sandfleet_api.fleet.v1.fleet_pb2_grpc",
    }

    def __getattr__(name: str) -> object:
        if (module := _MODULES.get(name)) is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = loaded = import_module(module)
        return loaded

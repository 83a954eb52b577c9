"""gRPC channels, to a socket of this machine or by TLS."""

from __future__ import annotations

import os
import time
import weakref
from pathlib import Path

from sandfleet._wire import api
from sandfleet.errors import UnavailableError

MAX_MESSAGE = 32 * 1024 * 1024
# gRPC's own threads, by the beginnings of their names. They end a moment after the last connection.
_THREADS = ("event_engine", "grpc_", "lifeguard")
_TASKS = Path("/proc/self/task")
# How long a fork waits for them, in seconds, and how often it looks.
_END, _LOOK = 2.0, 0.001

_channels: weakref.WeakSet[api.aio.Channel] = weakref.WeakSet()
# Of the parent: in a forked child gRPC crashes when it frees them.
_parents: list[api.aio.Channel] = []


class _Forks:
    """Looks after gRPC at forks. A lock that one of its threads holds then is never released in the child."""

    def __init__(self) -> None:
        # This process had connections, and how long its next fork waits for threads that were for them.
        self.used = False
        self.patience = 0.0
        # Threads outlived the wait: something else in this process uses gRPC.
        self.left = False
        # This process was forked while its parent had connections.
        self.connected = False

    def before(self) -> None:
        """Wait until the threads have ended that were for connections of this client."""
        self.left = self.used and not _channels and _has_threads()
        until = time.monotonic() + self.patience
        while self.left and time.monotonic() < until:
            time.sleep(_LOOK)
            self.left = _has_threads()
        self.patience = 0.0

    def in_child(self) -> None:
        self.connected = self.connected or self.left or bool(_channels)
        _parents.extend(_channels)


_forks = _Forks()
os.register_at_fork(before=_forks.before, after_in_child=_forks.in_child)


def _has_threads() -> bool:
    """Whether this process has threads of gRPC; False where the system does not tell."""
    try:
        return any(_name(task).startswith(_THREADS) for task in _TASKS.iterdir())
    except OSError:
        return False


def _name(task: Path) -> str:
    try:
        return (task / "comm").read_text()
    except OSError:
        return ""


def open_channel(address: str, *, ca: bytes = b"", name: str = "") -> api.aio.Channel:
    """Open a channel to "unix:/path" or "host:port"; with a `ca` (PEM) by TLS, for a certificate of that `name`.

    Raises UnavailableError when gRPC would hang.
    """
    if _forks.connected:
        # Measured: gRPC then skips its own fork handlers, and every call in the child hangs.
        raise UnavailableError(
            "cannot connect in this process: it was forked while its parent had connections, which gRPC does not survive;"
            " fork before the first sandbox or after the last one, or start processes with spawn",
            reason="Forked",
        )
    options: list[tuple[str, int]] = [
        ("grpc.max_send_message_length", MAX_MESSAGE),
        ("grpc.max_receive_message_length", MAX_MESSAGE),
        # A channel that replaces a dead one must not inherit its back-off.
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.max_reconnect_backoff_ms", 1000),
        ("grpc.enable_http_proxy", 0),
    ]
    if not address.startswith("unix:"):
        options += [("grpc.keepalive_time_ms", 30_000), ("grpc.keepalive_timeout_ms", 10_000)]
    _forks.used, _forks.patience = True, _END
    channel = api.aio.insecure_channel(address, options=options) if not ca else secure(address, ca, name, options)
    _channels.add(channel)
    return channel


def secure(address: str, ca: bytes, name: str, options: list[tuple[str, int]]) -> api.aio.Channel:
    """Open a channel to an executor: the certificate names its sandbox's uid, not its address."""
    credentials = api.grpc.ssl_channel_credentials(ca)
    return api.aio.secure_channel(address, credentials, options=[*options, ("grpc.ssl_target_name_override", name)])

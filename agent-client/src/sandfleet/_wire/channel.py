"""gRPC channels, to a socket of this machine or by TLS."""

from __future__ import annotations

import os
import weakref

from sandfleet._wire import api
from sandfleet.errors import UnavailableError

MAX_MESSAGE = 32 * 1024 * 1024

_channels: weakref.WeakSet[api.aio.Channel] = weakref.WeakSet()
_forked_while_connected = False
# Of the parent: in a forked child gRPC crashes when it frees them.
_parents: list[api.aio.Channel] = []


def _look_after_fork() -> None:
    global _forked_while_connected  # noqa: PLW0603  of the process, as the threads that are missing in it
    _forked_while_connected = bool(_channels)
    _parents.extend(_channels)


os.register_at_fork(after_in_child=_look_after_fork)


def open_channel(address: str, *, ca: bytes = b"", name: str = "") -> api.aio.Channel:
    """Open a channel to "unix:/path" or "host:port"; with a `ca` (PEM) by TLS, for a certificate of that `name`.

    Raises UnavailableError when gRPC would hang.
    """
    if _forked_while_connected:
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
    channel = api.aio.insecure_channel(address, options=options) if not ca else secure(address, ca, name, options)
    _channels.add(channel)
    return channel


def secure(address: str, ca: bytes, name: str, options: list[tuple[str, int]]) -> api.aio.Channel:
    """Open a channel to an executor: the certificate names its sandbox's uid, not its address."""
    credentials = api.grpc.ssl_channel_credentials(ca)
    return api.aio.secure_channel(address, credentials, options=[*options, ("grpc.ssl_target_name_override", name)])

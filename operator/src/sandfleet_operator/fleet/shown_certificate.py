"""Ports of gRPC whose certificate changes while they serve."""

import threading
from collections.abc import Callable
from typing import cast

import grpc


def server_credentials(shown: Callable[[], grpc.ServerCertificateConfiguration]) -> grpc.ServerCredentials:
    """`shown` gives what the port is to show, the same object until that changes. Threads of gRPC's call it."""
    last, one_by_one = shown(), threading.Lock()

    def changed() -> grpc.ServerCertificateConfiguration | None:
        """What gRPC asks for at each handshake. None unless something changed: handshakes that each bring a new one at
        the same time end the process, because gRPC frees what another one is about to use.
        """
        nonlocal last
        with one_by_one:
            before, last = last, shown()
            return None if last is before else last

    # The stubs do not know of None, which is documented.
    fetch = cast("Callable[[], grpc.ServerCertificateConfiguration]", changed)
    return grpc.dynamic_ssl_server_credentials(last, fetch, require_client_authentication=False)

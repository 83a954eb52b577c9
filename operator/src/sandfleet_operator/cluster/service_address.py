"""The address of a Service, looked up once: what is told it resolves no names."""

import socket
from dataclasses import replace

from sandfleet_operator.api.settings import Settings


def located(settings: Settings) -> Settings:
    """The settings with the address of the egress process's Service, where one is installed. Raises OSError."""
    service = settings.egress.service
    if not service:
        return settings
    host, _, port = service.rpartition(":")
    try:
        found = socket.getaddrinfo(host, int(port), type=socket.SOCK_STREAM)
    except OSError as error:
        raise OSError(f"cannot look up the egress process at {host}: {error}") from error
    address = str(found[0][4][0])
    shown = f"[{address}]" if ":" in address else address
    return replace(settings, egress=replace(settings.egress, address=f"{shown}:{port}"))

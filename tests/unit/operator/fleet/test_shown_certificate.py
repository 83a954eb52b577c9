"""What a port of gRPC is told at each handshake about its certificate.

Hundreds of connections at once end the process where each of their handshakes brings one (SIGSEGV, SIGFPE, a failed
check): gRPC replaces what another handshake is about to use.
"""

import time

import grpc
import pytest
from sandfleet_operator.api.settings import Settings
from sandfleet_operator.fleet.gateway.identity import Identity
from sandfleet_operator.fleet.kubernetes.serve import CERTIFICATE_SECONDS, Options, PortCertificate
from support.fleet.on_kubernetes import SYSTEM, new_signing


@pytest.fixture
def asked(monkeypatch):
    """Calls what gRPC would call at a handshake."""
    made = []
    monkeypatch.setattr(grpc, "dynamic_ssl_server_credentials", lambda *given, **_: made.append(given))

    def handshake():
        return made[-1][1]()

    return handshake


async def test_the_port_of_the_fleet_tells_a_certificate_once(asked):
    now = [time.time()]
    options = Options(namespace=SYSTEM, settings=Settings(control_plane_namespace=SYSTEM), identity="fleet-0")
    port = PortCertificate(await new_signing(), options, lambda: now[0])
    port.server_credentials()
    assert [asked() for _ in range(3)] == [None] * 3
    now[0] += CERTIFICATE_SECONDS / 2
    assert asked() is port.configuration()
    assert asked() is None


async def test_the_port_of_the_gateway_tells_a_certificate_once(asked, tmp_path):
    port = Identity(None, tmp_path)
    port._shown = first = object()
    port.server_credentials()
    assert [asked() for _ in range(3)] == [None] * 3
    port._shown = second = object()
    assert (asked(), asked()) == (second, None)
    assert first is not second

"""How the gateway gets its certificate from the fleet, with the account of its own and no other."""

import asyncio
import contextlib
import ssl
import time

import pytest
from cryptography import x509
from sandfleet_operator.api.errors import FleetError
from sandfleet_operator.cluster import reviews
from sandfleet_operator.fleet.gateway import identity
from sandfleet_operator.fleet.gateway.identity import NAME, Identity
from sandfleet_operator.fleet.gateway_signer import CERTIFICATE_SECONDS
from sandfleet_operator.fleet.links.fleet_link import FleetLink
from support.fleet.gateway import as_the_gateway, fleet_world, gateway_bed
from support.fleet.on_kubernetes import SYSTEM, new_signing


@pytest.fixture
async def world():
    async with fleet_world() as made:
        yield made


@contextlib.asynccontextmanager
async def asking(world, folder):
    link = FleetLink(f"localhost:{world.port}", folder / "ca.crt")
    yield Identity(link, folder)
    await link.close()


async def shown(port, **trusted):
    """The certificate that a port shows to a client that asks for the gateway."""
    context = ssl.create_default_context(**trusted)
    context.set_alpn_protocols(["h2"])
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname=NAME)
    der = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    return x509.load_der_x509_certificate(der)


@pytest.mark.process
async def test_the_certificate_has_the_gateways_name_alone_for_thirty_days(tmp_path):
    async with gateway_bed(tmp_path) as bed:
        found = await shown(bed.port, cadata=bed.world.signing.authority.pem.decode())
    names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert list(names) == [x509.DNSName(NAME)]
    assert 0 < found.not_valid_after_utc.timestamp() - time.time() <= CERTIFICATE_SECONDS
    assert not found.extensions.get_extension_for_class(x509.BasicConstraints).value.ca


@pytest.mark.parametrize("missing", ["right", "token"])
async def test_an_account_without_the_right_gets_no_certificate(world, tmp_path, monkeypatch, missing):
    """Control: with both it gets one."""
    monkeypatch.setattr(reviews, "ALLOWED", 0.0)
    folder = as_the_gateway(world, tmp_path)
    async with asking(world, folder) as one:
        await one._signed()
        if missing == "right":
            world.kube.allowed.discard(("gateway", "create/gateway", SYSTEM, ""))
            # Rights of a caller are others.
            world.kube.allowed |= {("gateway", "create/connect", SYSTEM, ""), ("gateway", "create", SYSTEM, "")}
        else:
            (folder / "token").write_text("another")
        with pytest.raises(FleetError, match=r"may not create codesandboxes/gateway|invalid bearer token"):
            await one._signed()


async def test_it_waits_for_its_files_and_for_the_fleet(world, tmp_path, monkeypatch):
    monkeypatch.setattr(identity, "BACKOFF", identity.Backoff(0.05, 0.1))
    async with asking(world, tmp_path) as one:
        waiting = asyncio.create_task(one.obtain())
        await asyncio.sleep(0.3)
        assert not waiting.done()
        as_the_gateway(world, tmp_path)
        await asyncio.wait_for(waiting, 60)


async def test_another_authority_leads_to_another_certificate(world, tmp_path, monkeypatch):
    monkeypatch.setattr(identity, "LOOK_SECONDS", 0.05)
    folder = as_the_gateway(world, tmp_path)
    async with asking(world, folder) as one:
        await one.obtain()
        first = one._configuration()
        renewing = asyncio.create_task(one.run())
        await asyncio.sleep(0.3)
        assert one._configuration() is first
        world.signing._material = (await new_signing()).material
        (folder / "ca.crt").write_bytes(world.signing.authority.pem)
        async with asyncio.timeout(60):
            while one._configuration() is first:
                await asyncio.sleep(0.05)
        renewing.cancel()
        await asyncio.gather(renewing, return_exceptions=True)

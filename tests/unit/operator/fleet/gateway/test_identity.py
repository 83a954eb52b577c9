"""How the fleet hands the gateway its certificate, and what the gateway makes of the file."""

import asyncio
import contextlib
import time
from types import SimpleNamespace

import pytest
from cryptography import x509
from sandfleet_operator.executors.authority import Authority
from sandfleet_operator.fleet import certificates
from sandfleet_operator.fleet.certificates import GATEWAY, IDENTITY_FILE, handed_over, read_identity
from sandfleet_operator.fleet.gateway.identity import Identity


@pytest.fixture
def credentials():
    return SimpleNamespace(authority=Authority.new(time.time()))


@contextlib.asynccontextmanager
async def handing_over(credentials, folder):
    task = asyncio.create_task(handed_over(credentials, folder, time.time))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_the_gateway_waits_for_the_fleets_file_and_only_its_owner_reads_it(tmp_path, credentials):
    identity = Identity(tmp_path, "127.0.0.1:1")
    waiting = asyncio.create_task(identity.wait())
    await asyncio.sleep(0.3)
    assert not waiting.done()
    (tmp_path / IDENTITY_FILE).write_text("{}")
    await asyncio.sleep(0.3)
    assert not waiting.done()
    async with handing_over(credentials, tmp_path):
        await asyncio.wait_for(waiting, 5)
    assert (tmp_path / IDENTITY_FILE).stat().st_mode & 0o777 == 0o600


async def test_the_certificate_names_the_gateway_and_neither_the_fleet_nor_a_pod(tmp_path, credentials):
    async with handing_over(credentials, tmp_path):
        await Identity(tmp_path, "127.0.0.1:1").wait()
    made = x509.load_pem_x509_certificate(read_identity(tmp_path).certificate.encode())
    names = made.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert set(names.get_values_for_type(x509.DNSName)) == {GATEWAY, "localhost"}
    assert credentials.authority.signed(made)


async def test_another_authority_reaches_the_gateway_and_gives_it_another_channel(tmp_path, credentials, monkeypatch):
    monkeypatch.setattr(certificates, "LOOK_SECONDS", 0.05)
    identity = Identity(tmp_path, "127.0.0.1:1")
    async with handing_over(credentials, tmp_path):
        await identity.wait()
        first = identity.stub()
        assert identity.stub() is first
        credentials.authority = Authority.new(time.time())
        async with asyncio.timeout(5):
            while identity.stub() is first:
                await asyncio.sleep(0.05)
    assert identity._read().authority.encode() == credentials.authority.pem
    await identity.close()


async def test_a_file_that_is_lost_or_broken_later_leaves_the_last_certificate(tmp_path, credentials):
    identity = Identity(tmp_path, "127.0.0.1:1")
    async with handing_over(credentials, tmp_path):
        await identity.wait()
    known = identity._read()
    (tmp_path / IDENTITY_FILE).write_text('{"key": "x"}')
    assert identity._read() is known
    (tmp_path / IDENTITY_FILE).unlink()
    assert identity._read() is known


async def test_a_fleet_without_a_gateway_hands_nothing_over(tmp_path, credentials):
    async with handing_over(credentials, None):
        await asyncio.sleep(0.1)
    assert list(tmp_path.iterdir()) == []

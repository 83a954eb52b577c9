"""Files, ports, resumption, and failures of the platform as the SDK's own errors."""

import io
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from agents.sandbox import Manifest
from agents.sandbox.entries import File
from agents.sandbox.errors import (
    ExecTimeoutError,
    InvalidManifestPathError,
    SandboxError,
    WorkspaceArchiveWriteError,
    WorkspaceReadNotFoundError,
    WorkspaceStartError,
)
from agents.sandbox.manifest import Environment
from agents.sandbox.snapshot import LocalSnapshotSpec
from sandfleet import AsyncSandbox
from sandfleet.errors import SandboxEnded, UnavailableError
from sandfleet.integrations.openai_agents import SandfleetClient


@pytest.fixture
async def session() -> AsyncIterator[Any]:
    async with await SandfleetClient(exposed_ports=(8000,)).create() as made:
        yield made


async def test_files_stay_below_the_workspace(session: Any) -> None:
    await session.write(Path("folder/file"), io.BytesIO(b"text"))
    assert (await session.read(Path("folder/file"))).read() == b"text"
    assert [each.path for each in await session.ls("folder")] == ["/workspace/folder/file"]
    with pytest.raises(WorkspaceReadNotFoundError):
        await session.read(Path("absent"))
    await session.exec("ln -s /etc etc")
    for outside in ("/etc/hostname", "etc/hostname"):
        with pytest.raises(InvalidManifestPathError):
            await session.read(Path(outside))


async def test_a_command_that_takes_too_long_is_told_apart(session: Any) -> None:
    with pytest.raises(ExecTimeoutError):
        await session.exec("sleep 60", timeout=0.5)


async def test_a_port_is_reached(session: Any) -> None:
    # Nothing listens: the connection opens, and ends.
    endpoint = await session.resolve_exposed_port(8000)
    assert endpoint.url_for("http").startswith("http://127.0.0.1:")


async def test_a_session_goes_on_by_its_state_and_by_its_snapshot(tmp_path: Path) -> None:
    client = SandfleetClient()
    manifest = Manifest(entries={"given": File(content=b"given")}, environment=Environment(value={"WHO": "agent"}))
    first = await client.create(manifest=manifest, snapshot=LocalSnapshotSpec(base_path=tmp_path))
    await first.start()
    await first.exec("echo more > made; ln -s made link")
    state = client.serialize_session_state(first.state)
    second = await client.resume(client.deserialize_session_state(dict(state)))
    assert second.state.sandbox_id == first.state.sandbox_id
    async with second:
        assert (await second.exec("cat given link; echo $WHO")).stdout == b"givenmore\nagent\n"
    assert not await first.running()
    third = await client.resume(client.deserialize_session_state(dict(state)))
    assert third.state.sandbox_id != first.state.sandbox_id
    async with third:
        assert (await third.exec("cat given link")).stdout == b"givenmore\n"


async def test_an_archive_that_leads_outside_is_refused(session: Any) -> None:
    with pytest.raises(WorkspaceArchiveWriteError):
        await session.hydrate_workspace(io.BytesIO(b"no archive"))


async def test_each_call_of_a_sandbox_that_has_ended_is_theirs_with_the_cause() -> None:
    session = await SandfleetClient(exposed_ports=(8000,)).create()
    await session.start()
    await session._inner.sandbox.kill()
    calls = [
        lambda: session.exec("true"),
        lambda: session.read(Path("a")),
        lambda: session.write(Path("a"), io.BytesIO(b"a")),
        lambda: session.pty_exec_start("true"),
        lambda: session.resolve_exposed_port(8000),
        session.persist_workspace,
    ]
    for call in calls:
        with pytest.raises(SandboxError) as failed:
            await call()
        assert isinstance(failed.value.__cause__, SandboxEnded)
    assert not await session.running()
    await session.shutdown()


async def test_a_sandbox_that_cannot_be_made_is_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    async def create(**_: object) -> None:
        raise UnavailableError("cannot create a sandbox: the fleet is full")

    monkeypatch.setattr(AsyncSandbox, "create", create)
    with pytest.raises(WorkspaceStartError, match="the fleet is full"):
        await SandfleetClient().create()

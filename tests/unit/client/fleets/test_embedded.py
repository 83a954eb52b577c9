"""How a fleet is found and started, without starting one."""

import os
import py_compile
from pathlib import Path

import grpc
import pytest
from sandfleet._fleets import embedded
from sandfleet._fleets.embedded import Options
from sandfleet._fleets.fleet import AsyncFleet
from sandfleet.errors import InvalidArgument, SandboxEnded, UnavailableError
from sandfleet.sandbox import AsyncSandbox
from sandfleet.testing import Fails, FakeFleet
from sandfleet.values.sandbox import Isolation


@pytest.fixture(autouse=True)
def no_fleet() -> None:
    """Other tests of this process may have begun its fleet."""
    embedded.stop()


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in os.environ if name.startswith("SANDFLEET_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("SANDFLEET_STATE", str(tmp_path))


def test_arguments_come_before_the_environment_and_that_before_the_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SANDFLEET_POOL_SIZE", "4")
    monkeypatch.setenv("SANDFLEET_MAX_SANDBOXES", "9")
    monkeypatch.setenv("SANDFLEET_ISOLATION", "none")
    assert Options(7).filled() == Options(7, 9, Isolation.NONE)
    assert Options(7).filled().arguments() == ["--pool-size", "7", "--max-sandboxes", "9", "--isolation", "none"]
    assert Options().arguments() == []


def test_modules_to_preload_come_from_the_caller_or_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SANDFLEET_PRELOAD", "numpy, matplotlib.pyplot")
    assert Options().filled().arguments() == ["--preload", "numpy,matplotlib.pyplot"]
    assert Options(preload=("pandas",)).filled().arguments() == ["--preload", "pandas"]
    assert Options(preload=()).filled().arguments() == []
    with pytest.raises(InvalidArgument, match="cannot preload 'os; evil': it is no name of a module"):
        Options(preload=("os; evil",)).filled()


@pytest.mark.parametrize(
    ("name", "value"),
    [("SANDFLEET_POOL_SIZE", "many"), ("SANDFLEET_MAX_SANDBOXES", "1.5"), ("SANDFLEET_ISOLATION", "jail")],
)
def test_an_environment_that_makes_no_sense_is_refused(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(InvalidArgument, match=f"{name}='{value}'"):
        Options().filled()


def test_a_running_fleet_serves_callers_without_other_options() -> None:
    running = Options(pool_size=2, isolation=Isolation.NAMESPACE)
    assert running.agree_with(Options())
    assert running.agree_with(Options(pool_size=2))
    assert not running.agree_with(Options(pool_size=3))
    assert not running.agree_with(Options(preload=("pandas",)))


def test_state_lives_where_the_environment_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert embedded.state_base() == tmp_path
    monkeypatch.delenv("SANDFLEET_STATE")
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/run/user/1")
    assert embedded.state_base() == Path("/run/user/1/sandfleet")


def test_without_the_extra_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "find_spec", lambda _: None)
    open_before = sum(1 for _ in Path("/proc/self/fd").iterdir())
    with pytest.raises(UnavailableError, match=r"cannot start an embedded fleet: install sandfleet\[local\]"):
        embedded.start(Options())
    assert sum(1 for _ in Path("/proc/self/fd").iterdir()) == open_before


@pytest.mark.process
def test_a_fleet_that_cannot_start_says_why(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text(
        '#!/bin/sh\nwhile [ "$1" != --ready-fd ]; do shift; done\necho "failed: cannot bind: why" >/proc/self/fd/$2\n'
    )
    python.chmod(0o755)
    monkeypatch.setattr(embedded.sys, "executable", str(python))
    with pytest.raises(UnavailableError, match="cannot start an embedded fleet: cannot bind: why"):
        embedded.start(Options())
    assert embedded.running() is None


async def test_the_named_address_is_the_only_place_where_sandboxes_are_looked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with FakeFleet() as fake:
        monkeypatch.setenv("SANDFLEET_ADDRESS", fake.address)
        sandbox = await AsyncSandbox.create()
        assert (await AsyncFleet.connect()).address == fake.address
        assert [call.method for call in fake.calls] == ["Claim"]
        again = await AsyncSandbox.connect(sandbox.sandbox_id)
        assert (await again.run_code("code")).ok
        await again.close()
        assert await sandbox.kill()
        assert not await sandbox.kill()
        with pytest.raises(SandboxEnded, match="no fleet has it"):
            await AsyncSandbox.connect("s-1")


async def test_fleets_of_other_processes_are_found_below_the_base_and_dead_ones_passed_over(tmp_path: Path) -> None:
    for name in ("f-dead", "f-live"):
        (tmp_path / name).mkdir()
    (tmp_path / "f-dead" / "fleet.sock").touch()
    async with FakeFleet() as fake:
        (tmp_path / "f-live" / "fleet.sock").symlink_to(fake.address.removeprefix("unix:"))
        sandbox = await AsyncSandbox.connect("s-1")
        assert (await sandbox.run_code("code")).ok
        assert await AsyncSandbox.list() == []
        await sandbox.close()


async def test_a_sandbox_of_no_fleet_has_ended() -> None:
    with pytest.raises(SandboxEnded, match="no fleet has it"):
        await AsyncSandbox.connect("nope")


@pytest.mark.process
async def test_a_sandbox_whose_fleet_was_killed_has_ended_and_a_fleet_that_is_only_busy_is_waited_for() -> None:
    async with FakeFleet() as fake, await AsyncFleet.connect(fake.address) as fleet:
        sandbox = await AsyncSandbox.create(fleet=fleet, rpc_timeout=2.0, keep_alive=False)
        busy = Fails(grpc.StatusCode.UNAVAILABLE, "", "Socket closed")
        fake.fail("Get", busy)
        with pytest.raises(UnavailableError):
            await fleet.get(sandbox.sandbox_id)
        await fake.break_executor(replaced=False)
        await fake.leave()
        for _ in range(2):
            with pytest.raises(SandboxEnded, match="its fleet has ended, and its sandboxes with it") as caught:
                await sandbox.run_code("x")
            assert (caught.value.reason, caught.value.retryable) == ("FleetEnded", False)
        assert repr(sandbox) == "AsyncSandbox(s-1, ended: FleetEnded)"
        # Nothing is left to be killed, and nothing is said of one sandbox where none is meant.
        assert not await sandbox.kill()
        with pytest.raises(UnavailableError):
            await fleet.list()


async def test_a_context_manager_keeps_the_lease_and_kills_what_it_created() -> None:
    async with FakeFleet() as fake, await AsyncFleet.connect(fake.address) as fleet:
        async with await AsyncSandbox.create(fleet=fleet, timeout=0.1):
            while len(fake.called("Renew")) < 2:
                await _turn()
        assert fake.called("Renew")[0].request.lease.nanos == 100_000_000
        assert fake.ended


async def test_a_context_manager_does_not_kill_a_connected_sandbox() -> None:
    async with FakeFleet() as fake, await AsyncFleet.connect(fake.address) as fleet:
        async with await AsyncSandbox.connect("s-1", fleet=fleet, keep_alive=False):
            pass
        assert not fake.ended
        assert not fake.called("Renew")


async def test_renewing_stops_when_the_sandbox_has_ended() -> None:
    async with FakeFleet() as fake, await AsyncFleet.connect(fake.address) as fleet:
        sandbox = await AsyncSandbox.create(fleet=fleet, timeout=0.02, keep_alive=True)
        fake.ended = True
        with pytest.raises(SandboxEnded):
            while True:
                await sandbox.run_code("code")
        await sandbox.close()


def test_a_first_start_without_byte_code_says_what_is_slow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "uncompiled.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert not embedded.compiled("uncompiled")
    assert embedded.compiled("no_such_module")
    monkeypatch.setattr(embedded, "compiled", lambda _: False)
    monkeypatch.setattr(embedded.subprocess, "Popen", lambda *_, **__: None)
    monkeypatch.setattr(embedded.Process, "stop", lambda _: None)
    with pytest.raises(UnavailableError):
        embedded.Process(embedded.Options(), tmp_path)
    assert "compiles the installed packages" in caplog.text
    py_compile.compile(str(tmp_path / "uncompiled.py"))
    monkeypatch.undo()
    monkeypatch.syspath_prepend(str(tmp_path))
    assert embedded.compiled("uncompiled")


async def _turn() -> None:
    import asyncio

    await asyncio.sleep(0.01)

"""Failures of the platform are Inspect's own error of a sandbox, whichever call meets them."""

import pytest
from inspect_ai.util import SandboxUnavailableError
from sandfleet import AsyncSandbox
from sandfleet.errors import SandboxEnded, UnavailableError
from sandfleet.integrations.inspect import SandfleetEnvironment


async def test_each_call_of_a_sandbox_that_has_ended_is_theirs_with_the_cause() -> None:
    environment = (await SandfleetEnvironment.sample_init())["default"]
    assert isinstance(environment, SandfleetEnvironment)
    await environment.sandbox.kill()
    calls = [
        lambda: environment.exec(["true"]),
        lambda: environment.write_file("a", "a"),
        lambda: environment.read_file("a"),
    ]
    for call in calls:
        with pytest.raises(
            SandboxUnavailableError, match="the sandbox failed, which is no fault of the code"
        ) as failed:
            await call()
        assert isinstance(failed.value.__cause__, SandboxEnded)


async def test_a_sandbox_that_cannot_be_made_is_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    async def create(**_: object) -> None:
        raise UnavailableError("cannot create a sandbox: the fleet is full")

    monkeypatch.setattr(AsyncSandbox, "create", create)
    with pytest.raises(SandboxUnavailableError, match="the fleet is full"):
        await SandfleetEnvironment.sample_init()

"""Failures of the platform end a sample with an error, and are no answers of a tool."""

import pytest
from inspect_ai.util import SandboxUnavailableError
from sandfleet import AsyncSandbox
from sandfleet.errors import SandboxEnded, UnavailableError
from sandfleet.integrations.inspect import SandfleetEnvironment


async def test_no_call_of_a_sandbox_that_has_ended_becomes_an_answer_of_a_tool() -> None:
    environment = (await SandfleetEnvironment.sample_init())["default"]
    assert isinstance(environment, SandfleetEnvironment)
    await environment.sandbox.kill()
    calls = [
        lambda: environment.exec(["true"]),
        lambda: environment.write_file("a", "a"),
        lambda: environment.read_file("a"),
    ]
    for call in calls:
        with pytest.raises(SandboxEnded):
            await call()


async def test_a_sandbox_that_cannot_be_made_is_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    async def create(**_: object) -> None:
        raise UnavailableError("cannot create a sandbox: the fleet is full")

    monkeypatch.setattr(AsyncSandbox, "create", create)
    with pytest.raises(SandboxUnavailableError, match="the fleet is full"):
        await SandfleetEnvironment.sample_init()

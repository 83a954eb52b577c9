"""Failures of the platform are Pydantic AI's own errors; what may succeed again is not."""

import pytest
from pydantic_ai.workspaces import WorkspaceUnavailableError
from sandfleet import AsyncSandbox
from sandfleet.errors import SandboxEnded, UnavailableError
from sandfleet.integrations.pydantic_ai import SandfleetWorkspaceBackend

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_each_call_of_a_sandbox_that_has_ended_is_theirs_with_the_cause() -> None:
    backend = SandfleetWorkspaceBackend()
    await (await backend.sandbox()).kill()
    calls = [
        lambda: backend.run(["true"]),
        lambda: backend.read_bytes("/workspace/a"),
        lambda: backend.write_bytes("/workspace/a", b"a"),
        lambda: backend.list_dir("/workspace"),
        lambda: backend.remove("/workspace/a"),
    ]
    for call in calls:
        with pytest.raises(
            WorkspaceUnavailableError, match="the sandbox failed, which is no fault of the code"
        ) as failed:
            await call()
        assert isinstance(failed.value.__cause__, SandboxEnded)


async def test_a_failure_that_may_succeed_again_is_raised_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    async def create(**_: object) -> None:
        raise UnavailableError("cannot create a sandbox: the fleet is busy", retryable=True)

    monkeypatch.setattr(AsyncSandbox, "create", create)
    with pytest.raises(UnavailableError, match="the fleet is busy"):
        await SandfleetWorkspaceBackend().working_dir()

"""What tests of the client on a fleet of their own share."""

from collections.abc import AsyncIterator

import pytest
from sandfleet import AsyncFleet
from sandfleet._fleets.embedded import Process
from sandfleet.cli.doctor import examine


def pytest_sessionstart(session: pytest.Session) -> None:
    """End the run where no sandbox can start: each test would fail for the same reason."""
    config = session.config
    if hasattr(config, "workerinput") or config.getoption("--executor", None) == "pod":
        return
    if lacking := [f"{check.name}: {check.detail}" for check in examine() if check.needed and not check.ok]:
        raise pytest.UsageError(
            f"cannot run tests/contract on this machine: {lacking[0]} (`sandfleet doctor` says what it lacks)"
        )


@pytest.fixture
async def fleet(served: Process) -> AsyncIterator[AsyncFleet]:
    """Connected to the fleet that the file serves."""
    async with await AsyncFleet.connect(served.address) as connected:
        yield connected

"""What tests of the client on a fleet of their own share."""

from collections.abc import AsyncIterator

import pytest
from sandfleet import AsyncFleet
from sandfleet._fleets.embedded import Process


@pytest.fixture
async def fleet(served: Process) -> AsyncIterator[AsyncFleet]:
    """Connected to the fleet that the file serves."""
    async with await AsyncFleet.connect(served.address) as connected:
        yield connected

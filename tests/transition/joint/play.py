"""Plays scenarios on a world of their own, in time that jumps from event to event."""

import asyncio
import logging
import random
from unittest import mock

from sandfleet_operator.api.errors import FleetError
from sandfleet_operator.fleet.kubernetes import catalog
from transition.fake_time import FakeLoop
from transition.joint.scenarios import Scenario
from transition.joint.world import World


class Errors(logging.Handler):
    """What the control plane could not carry out."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(record.getMessage())


async def _play(scenario: Scenario, guarded: bool) -> None:
    async with World(guarded=guarded) as world:
        await scenario(world)
        await world.end()


def faults(scenario: Scenario, *, guarded: bool = False) -> list[str]:
    """What is wrong after the scenario; `guarded`: with the chart's admission policy."""
    found: list[str] = []
    random.seed(1)
    with mock.patch.object(catalog, "secrets", random.Random(1)), asyncio.Runner(loop_factory=FakeLoop) as runner:
        loop = runner.get_loop()
        assert isinstance(loop, FakeLoop)
        loop.set_exception_handler(lambda _, context: found.append(str(context)))
        try:
            runner.run(_play(scenario, guarded))
        except (AssertionError, FleetError) as error:
            found.append(f"{type(error).__name__}: {error}")
        if loop.busy:
            found.append(f"something turned for ever at {loop.busy}")
    return found

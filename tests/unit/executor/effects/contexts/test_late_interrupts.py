"""An interrupt that is on its way when its cell ends does not reach the next cell."""

import asyncio
import contextlib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

from sandfleet_executor.core.contexts.frames import Done
from sandfleet_executor.core.executions.outcomes import Cause
from sandfleet_executor.effects.contexts import context
from sandfleet_executor.effects.contexts.queue import CellRequest
from sandfleet_executor.effects.executions.execution import Execution

ENDED = Done("ok", 0.0, 0, 0)


class SlowNamespace:
    """PID 1 that does nothing of what it is asked before it has to answer."""

    def __init__(self) -> None:
        self.waiting = 0
        self.interrupted: list[int] = []
        self.cell = 0

    @contextlib.contextmanager
    def busy(self) -> Iterator[None]:
        yield

    async def ping(self) -> None:
        await asyncio.sleep(0)
        self.catch_up()

    def catch_up(self) -> None:
        self.interrupted += [self.cell] * self.waiting
        self.waiting = 0


class CellThatEnds:
    """An interpreter whose cell ends when it is asked to, before the signal is there."""

    def __init__(self, namespace: SlowNamespace) -> None:
        self._namespace = namespace
        self._end: asyncio.Future[Done]

    def begin(self, _meter: Any, header: dict[str, Any], _code: str) -> Any:
        self._namespace.cell = header["cell"]
        self._end = asyncio.get_running_loop().create_future()
        return SimpleNamespace(end=self._end)

    def interrupt(self) -> None:
        self._namespace.waiting += 1
        self._end.set_result(ENDED)


async def run(namespace: SlowNamespace, number: int) -> Any:
    execution = Execution(f"e-{number}", 1000)
    meter = SimpleNamespace(
        execution=execution,
        environment=dict,
        trace=SimpleNamespace(enter=lambda _: None),
        waited=lambda: 0.0,
    )
    execution.stop(Cause.INTERRUPT, 1.0)
    request = CellRequest("", 10.0, {}, None, 0, 0)
    return await context.run_in(CellThatEnds(namespace), namespace, meter, request, number)  # type: ignore[arg-type]


async def begin_the_next(namespace: SlowNamespace) -> list[int]:
    """The cells that an interrupt reached, of which the first was interrupted."""
    _, end = await run(namespace, 1)
    assert end == ENDED
    namespace.cell = 2
    namespace.catch_up()
    return namespace.interrupted


async def test_a_cell_has_ended_when_its_interrupt_is_there():
    assert await begin_the_next(SlowNamespace()) == [1]


async def test_control_an_end_that_does_not_wait_lets_the_interrupt_reach_the_next_cell(monkeypatch):
    async def go_on(_namespace: Any) -> None:
        """At once."""

    monkeypatch.setattr(context, "let_arrive", go_on)
    assert await begin_the_next(SlowNamespace()) == [2]

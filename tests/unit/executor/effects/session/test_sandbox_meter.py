"""Who is ended when the workspace is over its limit: looks that go by, and what ended between them."""

from types import SimpleNamespace

import pytest
from sandfleet_executor.core.executions.usage import Totals
from sandfleet_executor.effects.session.sandbox_meter import SandboxMeter

MIB = 1 << 20


class Sandbox:
    """What the meter sees of a session and its disk. Nothing is running but what cells have left behind."""

    def __init__(self, *, counts_writes=True):
        self.ledger = SimpleNamespace(running={}, ended=Totals(), counts_writes=counts_writes)
        self.interpreters_ended = 0
        self.is_full = False
        self.is_hopeless = False
        self.disk = self.contexts = self
        self.meter = SandboxMeter(self)

    async def end_idle_interpreters(self):
        self.interpreters_ended += 1

    def a_cell_ends(self, written):
        ended = self.ledger.ended
        self.ledger.ended = Totals(executions=ended.executions + 1, written_bytes=ended.written_bytes + written)

    async def look(self, *, full=True, grown=True):
        self.is_full = full
        await self.meter._settle(over=full and grown)


async def test_cells_that_wrote_nothing_do_not_hide_what_is_left_running():
    sandbox = Sandbox()
    sandbox.a_cell_ends(0)
    await sandbox.look()
    assert sandbox.interpreters_ended == 1


@pytest.mark.parametrize("counts_writes", [True, False])
async def test_a_cell_that_ended_may_have_been_it_but_not_twice_in_a_row(counts_writes):
    sandbox = Sandbox(counts_writes=counts_writes)
    for _ in range(2):
        assert sandbox.interpreters_ended == 0
        sandbox.a_cell_ends(MIB)
        await sandbox.look()
    assert sandbox.interpreters_ended == 1


@pytest.mark.parametrize(("full", "ended"), [(True, 1), (False, 0)])
async def test_a_look_without_growth_excuses_anew_only_when_there_is_room_again(full, ended):
    sandbox = Sandbox(counts_writes=False)
    sandbox.a_cell_ends(0)
    await sandbox.look()
    await sandbox.look(full=full, grown=False)
    sandbox.a_cell_ends(0)
    await sandbox.look()
    assert sandbox.interpreters_ended == ended


async def test_what_a_cell_wrote_before_the_last_look_is_not_counted_again():
    sandbox = Sandbox()
    sandbox.ledger.running["cell"] = SimpleNamespace(written_bytes=MIB)
    await sandbox.look(full=False)
    del sandbox.ledger.running["cell"]
    sandbox.a_cell_ends(MIB)
    await sandbox.look()
    assert sandbox.interpreters_ended == 1

"""When variables are saved behind cells, and that a save lets cells go first."""

import asyncio
from dataclasses import dataclass, field

import pytest
from sandfleet_executor.core.contexts import autosave
from sandfleet_executor.core.contexts.autosave import LONGEST_SECONDS, MOST_QUIET_SECONDS, QUIET_SECONDS, SHARE, Pace
from sandfleet_executor.core.contexts.states import Bounds
from sandfleet_executor.effects.contexts.state_store import BrokenOffError, StateStore
from sandfleet_executor.effects.contexts.variables import Held, Place, Variables


def test_nothing_is_saved_where_nothing_has_changed():
    pace = Pace()
    assert (pace.due, pace.presses(1e9)) == (None, False)


def test_a_save_waits_for_a_pause():
    pace = Pace()
    for moment in (100.0, 100.5, 101.2):
        pace.changed(moment)
    assert pace.due == 101.2 + QUIET_SECONDS


def test_where_no_pause_comes_changes_wait_no_longer_than_was_said():
    pace = Pace()
    moment = 100.0
    while pace.due is None or moment < pace.due:
        assert not pace.presses(moment)
        pace.changed(moment)
        moment += 0.125
    assert moment == 100.0 + LONGEST_SECONDS
    assert pace.presses(moment)


@pytest.mark.parametrize(
    ("cost", "quiet"), [(0.1, QUIET_SECONDS), (4.0, 4.0), (25.0, MOST_QUIET_SECONDS), (1e6, MOST_QUIET_SECONDS)]
)
def test_what_takes_long_waits_for_a_longer_pause(cost, quiet):
    pace = Pace()
    pace.took(cost)
    pace.changed(100.0)
    assert pace.due == 100.0 + quiet


@pytest.mark.parametrize("cost", [0.1, 2.0, 30.0, 300.0])
def test_in_a_busy_context_saves_take_a_tenth_of_the_time_at_most(cost):
    pace = Pace()
    pace.took(cost)
    now, saving, end = 0.0, 0.0, 100_000.0
    while now < end:
        pace.changed(now)
        if pace.presses(now):
            pace.begins()
            now, saving = now + cost, saving + cost
        now += 0.5
    assert 0 < saving / now <= SHARE


def test_a_change_while_a_save_goes_on_is_saved_by_the_next():
    pace = Pace()
    pace.changed(100.0)
    pace.begins()
    assert pace.due is None
    pace.changed(101.0)
    assert pace.due == 101.0 + QUIET_SECONDS
    pace.forget()
    assert pace.due is None


# What carries it out


async def no_namespace():
    raise AssertionError


@dataclass
class Saves(Variables):
    """Counts what would be saved."""

    began: list = field(default_factory=list)
    error: Exception | None = None

    def __post_init__(self):
        self.turn = asyncio.Lock()
        held = Held("c", self.turn, lambda: None, lambda: 0)
        super().__init__(held, Place(StateStore(None), lambda: 0, no_namespace), Bounds())

    async def save(self, kind, name, bounds):
        async with self.turn:
            self.began.append((kind, name))
        if self.error:
            raise self.error


async def test_what_was_not_saved_is_saved_at_the_end_and_once():
    saves = Saves()
    await saves.settle()
    assert not saves.began
    saves.cell_ended()
    await saves.settle()
    await saves.settle()
    assert len(saves.began) == 1


async def test_at_the_end_a_save_that_fails_is_not_tried_for_ever():
    saves = Saves(error=BrokenOffError("cannot"))
    saves.cell_ended()
    await saves.settle()
    assert (len(saves.began), saves.problem) == (1, "cannot")


async def test_a_cell_that_runs_is_waited_for_unless_changes_have_waited_too_long(monkeypatch):
    monkeypatch.setattr(autosave, "QUIET_SECONDS", 0.0)
    monkeypatch.setattr(autosave, "AGAIN_SECONDS", 0.001)
    saves = Saves()
    async with saves.turn:
        saves.cell_ended()
        await asyncio.sleep(0.05)
        assert saves._task is None
    while not saves.began:
        await asyncio.sleep(0.001)


async def test_what_presses_comes_right_after_the_cell_that_runs(monkeypatch):
    monkeypatch.setattr(autosave, "LONGEST_SECONDS", 0.0)
    saves = Saves()
    async with saves.turn:
        saves.cell_ended()
        while saves._task is None:
            await asyncio.sleep(0.001)
        assert not saves.began
    await saves.settle()
    assert len(saves.began) == 1


async def test_a_save_gives_way_to_a_cell():
    saves = Saves()
    way = saves._way()
    await way()
    await saves.turn.acquire()
    held_up = asyncio.create_task(way())
    await asyncio.sleep(0.05)
    assert not held_up.done()
    saves.turn.release()
    await held_up
    assert not saves.turn.locked()


async def test_a_save_does_not_wait_for_cells_for_ever(monkeypatch):
    monkeypatch.setattr(autosave, "GIVE_WAY_SECONDS", 0.01)
    saves = Saves()
    way = saves._way()
    async with saves.turn:
        await way()
        await way()

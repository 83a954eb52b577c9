"""The crash matrix: the operator ends at each write, each write fails, reads are stale; the final state is the same."""

import asyncio
from collections.abc import Callable
from functools import cache

import pytest
from sandfleet_operator.api import kube
from sandfleet_operator.api.kube import Json, failure
from support.fakes.kube_memory import After, Before
from transition.fake_time import run
from transition.scenarios import SCENARIOS, delete
from transition.world import World

pytestmark = pytest.mark.slow

Make = Callable[[World], Before | After | None]


def ends_with_the_reply(world: World) -> None:
    world.end_operator()


def ends_before_the_reply(world: World) -> After:
    world.end_operator()
    return After(asyncio.CancelledError())


def loses_the_reply(_world: World) -> After:
    return After()


def meets_a_conflict(_world: World) -> Before:
    return Before(failure("write", 409, {"reason": "Conflict"}))


def is_told_to_wait(_world: World) -> Before:
    return Before(failure("write", 429, {}, retry_after=3.0))


def meets_a_failure(_world: World) -> Before:
    return Before(failure("write", 500, {}))


REVISIONS = "controllerrevisions."
ENDS = (ends_with_the_reply, ends_before_the_reply)
ANSWERS = (loses_the_reply, meets_a_conflict, is_told_to_wait, meets_a_failure)


class Result:
    """A run of a scenario: its writes and the final state."""

    def __init__(self, scenario, *, at: int = 0, happens: Make | None = None, lag: int = 0) -> None:
        self.writes: list[str] = []
        self.outcome: Json = {}
        self.wrong: list[str] = []
        self.begun = self.lives = 0
        try:
            run(self._go(scenario, at, happens, lag))
        except AssertionError as error:
            self.wrong.append(str(error))

    async def _go(self, scenario, at: int, happens: Make | None, lag: int) -> None:
        world = World(lag=lag)
        if happens is not None:
            world.fault = lambda number, _write: happens(world) if number == at else None
        async with world:
            try:
                await scenario(world)
                await world.settle()
            finally:
                self.writes, self.outcome = world.writes, world.outcome()
                self.begun, self.lives = world.begun, world.lives
                self.wrong += world.cluster.wrong


@cache
def undisturbed(scenario) -> Result:
    return Result(scenario)


def differences(result: Result, scenario) -> list[str]:
    expected = undisturbed(scenario)
    there, right = result.outcome, expected.outcome
    # Whether the spec of a template that is still there has been kept depends on which of two pods came first.
    refs = [ref for ref in sorted({*there, *right}) if not ref.startswith(REVISIONS) or (ref in there and ref in right)]
    changed = [ref for ref in refs if there.get(ref) != right.get(ref)]
    found = [f"{ref} is {there.get(ref)} instead of {right.get(ref)}" for ref in changed]
    if len(result.writes) > 3 * len(expected.writes) + 20:
        found.append(f"{len(result.writes)} writes instead of {len(expected.writes)}")
    return result.wrong + found


def named(functions):
    return [pytest.param(one, id=one.__name__) for one in functions]


def failures(scenario, happens: Make, *, events: bool) -> list[str]:
    """At each of the scenario's own writes."""
    found = []
    writes, begun = undisturbed(scenario).writes, undisturbed(scenario).begun
    for number in range(begun + 1, len(writes) + 1):
        if not events and f" {kube.EVENT}/" in writes[number - 1]:
            continue
        result = Result(scenario, at=number, happens=happens)
        if wrong := differences(result, scenario):
            found.append(f"{happens.__name__} at write {number} ({writes[number - 1]}): {wrong[0]}")
    return found


@pytest.mark.parametrize("scenario", named(SCENARIOS))
def test_without_faults_each_scenario_comes_to_rest(scenario):
    assert undisturbed(scenario).wrong == []
    assert undisturbed(scenario).lives == 1


@pytest.mark.parametrize("happens", named(ENDS))
@pytest.mark.parametrize("scenario", named(SCENARIOS))
def test_the_next_operator_finishes_after_a_crash_at_any_write(scenario, happens):
    assert failures(scenario, happens, events=True) == []


@pytest.mark.parametrize("happens", named(ANSWERS))
@pytest.mark.parametrize("scenario", named(SCENARIOS))
def test_a_write_is_done_once_under_any_failure(scenario, happens):
    # What an Event is answered changes nothing: test_events says so.
    assert failures(scenario, happens, events=False) == []


@pytest.mark.parametrize("lag", [1, 2, 3])
@pytest.mark.parametrize("scenario", named(SCENARIOS))
def test_stale_reads_change_nothing(scenario, lag):
    assert differences(Result(scenario, lag=lag), scenario) == []


def test_a_deleted_sandbox_leaves_nothing():
    # What keeps the spec of a template stays as long as the template has that spec.
    kinds = {"namespaces", "nodes", "storageclasses.storage.k8s.io", "sandboxtemplates.sandfleet.io"}
    kinds.add("controllerrevisions.apps")
    assert {ref for ref in undisturbed(delete).outcome if ref.split("/")[0] not in kinds} == set()


def test_the_matrix_detects_an_operator_that_does_not_finish():
    """Negative control: an operator that ends at each of its writes makes no progress."""

    def always(world: World) -> None:
        world.end_operator()

    async def go() -> list[str]:
        world = World()
        world.fault = lambda _number, _write: always(world)
        async with world:
            with pytest.raises(AssertionError, match="never"):
                await world.until(lambda: world.says("Ready"), "ready")
        return world.writes

    assert run(go())

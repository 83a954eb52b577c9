"""Health of the operator: the heartbeat that has to come back through the watch, unless the API server is away."""

import asyncio
from contextlib import suppress
from functools import partial

import pytest
from sandfleet_operator.api.kube import POD, KubeError, Ref, failure
from sandfleet_operator.reconciler.health import BEAT_EVERY, HEARTBEAT, SILENT_AFTER, Health
from support.fakes.kube_memory import Before, MemoryKube
from transition.fake_time import run
from transition.mutant import Mutant

OWN = Ref(POD, "sandfleet-system", "operator-1")
AWAY = Before(failure("mark it", 503, {}))


async def a_kube():
    kube = MemoryKube()
    await kube.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": OWN.namespace}})
    metadata = {"namespace": OWN.namespace, "name": OWN.name}
    await kube.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {}})
    return kube


class Beating:
    """An operator that marks its pod, and a watch that shows `shown` pods at each mark while `watches` is true."""

    def __init__(self, kube, pod=OWN):
        self.kube, self.health = kube, Health(asyncio.get_running_loop().time, pod)
        self.watches, self.shown = True, OWN.name
        self.tasks = [asyncio.create_task(one) for one in (self.health.beat(kube), self._watch())]

    async def _watch(self):
        while True:
            if self.watches:
                self.health.echo({"metadata": {"name": self.shown}})
            await asyncio.sleep(1.0)

    async def alive_after(self, seconds):
        await asyncio.sleep(seconds)
        return self.health.alive

    def end(self):
        for task in self.tasks:
            task.cancel()


def beating(scene, pod=OWN):
    async def go():
        made = Beating(await a_kube(), pod)
        await scene(made)
        made.end()

    run(go())


def test_an_operator_whose_heartbeat_comes_back_is_alive():
    async def scene(it):
        assert await it.alive_after(10 * SILENT_AFTER)

    beating(scene)


@pytest.mark.parametrize("shown", [None, "operator-2"])
def test_an_operator_whose_watch_is_stuck_is_not_alive(shown):
    async def scene(it):
        it.watches, it.shown = shown is not None, shown
        assert await it.alive_after(SILENT_AFTER - 1)
        assert not await it.alive_after(BEAT_EVERY)

    beating(scene)


def test_an_outage_of_the_api_server_is_no_failure_of_the_operator():
    async def scene(it):
        assert await it.alive_after(BEAT_EVERY)
        it.kube.fault, it.watches = lambda _: AWAY, False
        for _ in range(10):
            assert await it.alive_after(SILENT_AFTER)
        it.kube.fault = lambda _: None
        # The watches need their time to come back.
        assert await it.alive_after(SILENT_AFTER - 2 * BEAT_EVERY)
        it.watches = True
        assert await it.alive_after(10 * SILENT_AFTER)

    beating(scene)


def test_a_watch_that_stays_away_after_an_outage_is_noticed():
    async def scene(it):
        it.kube.fault, it.watches = lambda _: AWAY, False
        assert await it.alive_after(10 * SILENT_AFTER)
        it.kube.fault = lambda _: None
        assert not await it.alive_after(SILENT_AFTER + 2 * BEAT_EVERY)

    beating(scene)


def test_without_a_pod_there_is_nothing_to_mark():
    async def scene(it):
        it.watches = False
        assert await it.alive_after(10 * SILENT_AFTER)
        assert all(write.verb == "create" for write in it.kube.writes)

    beating(scene, pod=None)


def test_the_heartbeat_continues_after_errors():
    async def go() -> None:
        loop = asyncio.get_running_loop()
        kube = await a_kube()
        began = len(kube.writes)
        kube.fault = lambda write: Before(failure("mark it", 500, {})) if write.number == began + 1 else None
        beats = asyncio.create_task(Health(loop.time, OWN).beat(kube))
        await asyncio.sleep(3.5 * BEAT_EVERY)
        beats.cancel()
        assert len(kube.writes) - began == 4
        assert kube.cluster.objects[OWN]["metadata"]["annotations"][HEARTBEAT] == str(int(3 * BEAT_EVERY))

    run(go())


async def _counts_refused_marks(self, kube, pod):
    """A mark that the API server did not take is missing like any other."""
    if self._missing is None:
        self._missing = self._clock()
    with suppress(KubeError):
        await kube.merge(pod, {"metadata": {"annotations": {HEARTBEAT: f"{self._clock():.0f}"}}})


MUTANTS = (
    Mutant(
        "B.9",
        test_an_outage_of_the_api_server_is_no_failure_of_the_operator,
        ((Health, "_mark", _counts_refused_marks),),
    ),
    Mutant(
        "B.9",
        partial(test_an_operator_whose_watch_is_stuck_is_not_alive, None),
        ((Health, "alive", property(lambda _: True)),),
    ),
    Mutant(
        "B.9",
        partial(test_an_operator_whose_watch_is_stuck_is_not_alive, "operator-2"),
        ((Health, "echo", lambda self, _obj: setattr(self, "_missing", None)),),
    ),
)


@pytest.mark.parametrize("mutant", MUTANTS)
def test_each_mend_has_its_test(mutant):
    mutant.finder()
    with mutant.applied(), pytest.raises(AssertionError):
        mutant.finder()

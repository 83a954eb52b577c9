"""When executors are polled for their services, how many at once, and how many answers become writes."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sandfleet_operator.api.kinds.sandbox import CodeSandbox, SandboxSpec, SandboxStatus, ServiceState, ServiceStatus
from sandfleet_operator.api.kube import EVENT
from sandfleet_operator.executors import services
from sandfleet_operator.executors.contact import Unreachable
from sandfleet_operator.executors.services import ServiceWatch
from sandfleet_operator.plan.lanes import Bounds
from sandfleet_operator.plan.sandbox.actions import AskServices
from sandfleet_operator.plan.sandbox.services import polling
from sandfleet_operator.plan.sandbox.services.polling import ANEW, BURST, LONGEST, REFILL, RESTING, SILENT_AFTER
from support.operator.builders import a_meta
from transition.fake_time import run
from transition.service_scenarios import FAILED, READY, serving, shown
from transition.world import NAME, World

WHOM = AskServices("team-a", "demo", "uid-1", "10.0.0.1:50051")
# Neither less nor more.
MIDDLE = 0.5


def service(state=ServiceState.READY, **changes) -> ServiceStatus:
    return ServiceStatus(name="db", state=state, **changes)


def begun(*, known=False, asked=1, before=None, now=0.0, chance=MIDDLE):
    return polling.begun(WHOM, before, now, known=known, asked=asked, chance=chance)


def answered(one, *services, now=1.0, asked=1, chance=MIDDLE):
    return polling.answered(one, services, now, asked=asked, chance=chance)


def failed(one, now=1.0, chance=MIDDLE):
    return polling.failed(one, "silent", now, chance=chance)


def test_a_new_sandbox_is_polled_soon_and_those_of_an_earlier_leader_are_spread():
    assert begun().wait == 1.0
    assert [begun(known=True, chance=chance).wait for chance in (0.0, 0.5)] == [0.0, RESTING / 2]


def test_changing_services_are_polled_soon_and_then_ever_more_seldom():
    step, waits = begun(), []
    for _ in range(8):
        step = answered(step.state, service(ServiceState.RUNNING))
        waits.append(step.wait)
    assert waits == [1.0, 2.0, 4.0, 8.0, 16.0, RESTING, RESTING, RESTING]
    assert answered(step.state, service(ServiceState.STARTING)).wait == 1.0


@pytest.mark.parametrize(
    "state", [ServiceState.READY, ServiceState.COMPLETED, ServiceState.FAILED, ServiceState.STOPPED]
)
def test_services_at_rest_are_polled_seldom(state):
    assert answered(begun().state, service(state)).wait == RESTING


def test_many_sandboxes_are_each_polled_more_seldom():
    assert answered(begun().state, service(), asked=4000).wait == 100.0


def test_simultaneous_polls_are_spread():
    assert [answered(begun().state, service(), chance=chance).wait for chance in (0.0, 0.5, 1.0)] == [22.5, 30, 37.5]


def test_only_changed_services_are_news():
    first = answered(begun().state, service())
    assert (first.news, first.state.heard.services) == (True, (service(),))
    second = answered(first.state, service())
    assert not second.news
    assert answered(second.state, service(restarts=1)).news


def test_silence_is_reported_after_three_polls_and_polled_ever_more_seldom():
    step, waits, news = answered(begun().state, service()), [], []
    for _ in range(12):
        step = failed(step.state)
        waits.append(step.wait)
        news.append(step.news)
    assert waits == [2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, *[LONGEST] * 4]
    assert [number for number, new in enumerate(news, 1) if new] == [SILENT_AFTER]
    assert step.state.heard.problem == "silent"
    again = answered(step.state, service())
    assert (again.news, again.wait, again.state.heard.problem) == (True, RESTING, "")


def test_occasional_silence_is_not_reported():
    step = answered(begun().state, service())
    for _ in range(10):
        step = answered(failed(failed(step.state).state).state, service())
        assert not step.news


def flapping(seconds: float, now: float = 0.0, step=None) -> tuple[int, int, polling.PollState]:
    """Polls services that change with every answer; the count of polls, the count of reports, and the last step."""
    step, times, news = step or begun(), 0, 0
    end = now + seconds
    while (now := now + step.wait) < end:
        times += 1
        step = answered(step.state, service(ServiceState.BACK_OFF, restarts=times), now=now)
        news += step.news
    return times, news, step


def test_restless_services_are_polled_and_reported_at_a_bounded_rate():
    times, news, _ = flapping(3600)
    assert news <= BURST + 3600 / REFILL
    assert times <= news + BURST


def test_without_the_bound_each_answer_would_be_reported(monkeypatch):
    monkeypatch.setattr(polling, "REFILL", 1e-9)
    assert flapping(3600)[1] > 3000


def test_the_next_pod_of_a_sandbox_gets_few_new_reports():
    _, _, step = flapping(60)
    anew = begun(before=step.state, now=60.0)
    assert (step.state.left < 1, anew.state.left, anew.state.heard) == (True, ANEW, None)
    rested = begun(before=begun().state, now=60.0)
    assert rested.state.left == BURST


@given(
    st.lists(
        st.tuples(st.sampled_from([None, service(), service(restarts=1), service(ServiceState.RUNNING)]), st.floats(0, 0.99)),
        max_size=80,
    )
)  # fmt: skip
def test_delays_and_reports_are_bounded_for_any_answers(answers):
    step, now, news = begun(), 0.0, 0
    for answer, chance in answers:
        now += step.wait
        step = (
            failed(step.state, now, chance) if answer is None else answered(step.state, answer, now=now, chance=chance)
        )
        news += step.news
        assert 0.75 <= step.wait <= LONGEST * 1.25
        assert news <= BURST + now / REFILL + 0.01


# The watch.


class Bed:
    """A watch whose executors answer after a second."""

    def __init__(self, workers: int = 4) -> None:
        self.loop = asyncio.get_running_loop()
        self.asked: list[AskServices] = []
        self.news: list[AskServices] = []
        self.told: list[str] = []
        self.at_once = self.most = 0
        self.services: tuple[ServiceStatus, ...] | None = READY
        self.watch = ServiceWatch(
            self._ask, news=self.news.append, tell=self._tell, clock=self.loop.time, chance=lambda: MIDDLE, workers=workers
        )  # fmt: skip

    async def _ask(self, whom: AskServices) -> tuple[ServiceStatus, ...]:
        self.asked.append(whom)
        self.at_once += 1
        self.most = max(self.most, self.at_once)
        await asyncio.sleep(1)
        self.at_once -= 1
        if self.services is None:
            raise Unreachable("cannot reach it")
        return self.services

    async def _tell(self, _sandbox, note) -> None:
        self.told.append(note.reason)

    async def during(self, seconds: float) -> None:
        task = asyncio.create_task(self.watch.run())
        await asyncio.sleep(seconds)
        task.cancel()


def sandbox(uid: str = "uid", *, pod_uid: str = "", services: tuple[ServiceStatus, ...] = ()) -> CodeSandbox:
    meta = a_meta()
    object.__setattr__(meta, "uid", uid)
    status = SandboxStatus(pod_uid=pod_uid, services=services)
    return CodeSandbox(meta=meta, spec=SandboxSpec(template="python"), status=status)


def whom(number: int = 1, namespace: str = "team-a") -> AskServices:
    return AskServices(namespace, f"demo-{number}", f"uid-{number}", "10.0.0.1:50051")


def test_concurrent_polls_are_bounded_and_each_executor_gets_its_turn():
    async def go() -> None:
        bed = Bed(workers=4)
        for number in range(40):
            bed.watch.follow(sandbox(f"s{number}"), whom(number))
        await bed.during(20)
        assert bed.most == 4
        assert {one.name for one in bed.asked} == {f"demo-{number}" for number in range(40)}

    run(go())


@pytest.mark.parametrize(("bound", "are_held_up"), [(8, False), (64, True)])
def test_silent_executors_of_a_namespace_hold_up_no_other_one(monkeypatch, bound, are_held_up):
    """The control is a lane without a bound for a namespace."""
    monkeypatch.setattr(services, "BOUNDS", Bounds(total=64, per_namespace=bound, per_node=64, rounds=1 << 30))

    async def go() -> list[str]:
        bed = Bed(workers=64)
        for number in range(200):
            bed.watch.follow(sandbox(f"s{number}"), whom(number, "mean"))
        bed.loop.call_later(0.1, bed.watch.follow, sandbox("t"), whom(1000))
        await bed.during(1.5)
        return [one.namespace for one in bed.asked]

    assert ("team-a" not in run(go())) is are_held_up


def test_a_pod_followed_twice_is_polled_once():
    async def go() -> None:
        bed = Bed()
        for _ in range(5):
            bed.watch.follow(sandbox(), whom())
        await bed.during(20)
        assert bed.asked == bed.news == [whom()]

    run(go())


@pytest.mark.parametrize("how", ["no plan", "gone"])
def test_an_unfollowed_executor_is_not_polled(how):
    async def go() -> None:
        bed = Bed()
        bed.watch.follow(sandbox(), whom())
        await bed.during(10)
        if how == "no plan":
            bed.watch.follow(sandbox(), None)
        else:
            bed.watch.forget("uid")
        assert bed.watch.heard("uid") is None
        await bed.during(500)
        assert len(bed.asked) == 1

    run(go())


def test_an_answer_of_a_replaced_pod_is_dropped():
    async def go() -> None:
        bed = Bed()
        bed.watch.follow(sandbox(), whom(1))
        asyncio.get_running_loop().call_later(1.5, bed.watch.follow, sandbox(), whom(2))
        asyncio.get_running_loop().call_later(1.5, setattr, bed, "services", FAILED)
        await bed.during(2.3)
        assert (bed.asked, bed.watch.heard("uid")) == ([whom(1)], None)
        await bed.during(5)
        assert bed.asked == [whom(1), whom(2)]
        assert bed.watch.heard("uid").pod_uid == "uid-2"

    run(go())


def test_a_new_leader_delays_the_first_poll_if_the_status_has_an_answer():
    async def go(services, first: bool) -> None:
        bed = Bed()
        bed.watch.follow(sandbox(pod_uid="uid-1", services=services), whom())
        await bed.during(3)
        assert bool(bed.asked) == first

    run(go(READY, first=False))
    run(go((ServiceStatus(name="db", state=ServiceState.UNKNOWN),), first=True))


def test_an_unexpected_failure_does_not_stop_other_polls():
    async def go() -> None:
        bed = Bed()
        answer = bed._ask

        async def ask(one: AskServices) -> tuple[ServiceStatus, ...]:
            if one.name == "demo-1":
                raise RuntimeError("a mistake")
            return await answer(one)

        bed.watch._ask = ask
        for number in range(3):
            bed.watch.follow(sandbox(f"s{number}"), whom(number))
        await bed.during(20)
        assert {one.name for one in bed.asked} == {"demo-0", "demo-2"}

    run(go())


# In a cluster.


def status_writes(world: World) -> list[str]:
    return [one for one in world.writes if one.endswith("status")]


def test_a_sandbox_without_services_is_not_polled_and_costs_no_extra_write():
    async def go() -> None:
        async with World() as here:
            await here.make_sandbox()
            await here.until_ready()
            await here.settle()
            before = len(status_writes(here))
            assert before <= 3
            await asyncio.sleep(600)
            assert here.asked == []
            assert len(status_writes(here)) == before
            assert "services" not in here.status()

    run(go())


def test_ready_services_cost_one_extra_write():
    async def go() -> None:
        async with World() as here:
            await here.make_sandbox("other")
            await here.until_ready("other")
            await here.settle()
            before = len(status_writes(here))
            await serving(here)
            await asyncio.sleep(3600)
            assert len(status_writes(here)) - before == before + 1
            assert 60 <= len(here.asked) <= 150

    run(go())


@pytest.mark.slow
def test_restless_services_do_not_flood_the_api_server_and_the_last_state_is_shown():
    async def go() -> None:
        async with World() as here:
            await serving(here)
            before, events = len(status_writes(here)), _events(here)
            for number in range(3600):
                restless = ServiceStatus(name="web", state=ServiceState.BACK_OFF, restarts=number)
                here.services = (READY[0], restless) if number % 3 else READY
                await asyncio.sleep(1)
            assert len(status_writes(here)) - before <= BURST + 3600 / REFILL + 1
            assert 2 <= _events(here) - events <= BURST + 3600 / REFILL + 1
            here.services = FAILED
            await here.until(lambda: shown(here)["web"] == "Failed", "told that it is given up")

    run(go())


def test_a_suspended_sandbox_is_not_polled_and_shows_no_services():
    async def go() -> None:
        async with World() as here:
            await serving(here)
            await here.change(operatingMode="Suspended")
            await here.until(lambda: here.says("Suspended"), "suspended")
            assert not here.status().get("services")
            times = len(here.asked)
            await asyncio.sleep(600)
            assert len(here.asked) == times

    run(go())


def test_events_report_trouble_and_its_end():
    async def go() -> None:
        async with World() as here:
            await serving(here)
            here.services = FAILED
            await here.until(lambda: shown(here)["web"] == "Failed", "told that it is given up")
            await here.until(lambda: "ServiceFailed" in _reasons(here), "an Event")
            here.services = READY
            await here.until(lambda: "ServiceReady" in _reasons(here), "an Event")

    run(go())


def _reasons(world: World) -> list[str]:
    return [obj["reason"] for ref, obj in world.cluster.objects.items() if ref.kind == EVENT]


def _events(world: World) -> int:
    return sum(one.startswith("Service") for one in _reasons(world))


def test_the_next_leader_shows_the_current_state():
    async def go() -> None:
        async with World() as here:
            await serving(here)
            here.end_operator()
            here.services = FAILED
            await here.until(
                lambda: here.lives == 2 and shown(here)["web"] == "Failed", f"told of {NAME} by the next one"
            )

    run(go())

"""The fleet probes whether egress works: after the answer to a claim, within bounds, and again after a change."""

import asyncio

import pytest
from sandfleet_operator.api.errors import Code, FleetError, Problem
from sandfleet_operator.api.kube import CODE_SANDBOX, SANDBOX_TEMPLATE, Ref
from sandfleet_operator.fleet.kubernetes import egress
from sandfleet_operator.plan.pods import names
from support.kubernetes.world import TEAM, World, pool_object, sandbox_object, template_object

HOST = "203.0.113.7"
OPENS = {"allow": [{"cidr": f"{HOST}/32", "ports": [{"protocol": "TCP", "port": 443}]}]}


@pytest.fixture(autouse=True)
def _soon(monkeypatch):
    monkeypatch.setattr(egress, "PAUSES", (0.0, 0.01, 0.02, 0.04))


@pytest.fixture
async def world():
    async with World() as made:
        await made.add(template_object(egress=OPENS), pool_object())
        yield made


def said(fleet, name):
    known = fleet.egresses.of(name)
    return known and (known.reach.state.value, known.reach.reason)


async def until_said(world, fleet, name, *expected):
    await world.until(lambda: said(fleet, name) == expected)


async def test_a_claim_is_answered_before_its_egress_is_probed_and_becomes_open(world):
    fleet = await world.fleet()
    asked, answer = asyncio.Event(), asyncio.Event()

    async def reaches(targets):
        asked.set()
        await answer.wait()
        return [True]

    fleet.pretended.reaches = reaches
    sandbox = await world.claim(fleet)
    name = fleet.note_session(sandbox)
    assert said(fleet, name) == ("opening", "Asking")
    await asyncio.wait_for(asked.wait(), 60)
    assert said(fleet, name) == ("opening", "Asking")
    answer.set()
    await until_said(world, fleet, name, "open", "Answered")
    known = fleet.egresses.of(name)
    assert known.reach.message == f"answered: {HOST}:443"
    assert abs(known.since - world.clock()) < 60
    assert fleet.pretended.probed == [(sandbox.sandbox_uid, (f"{HOST}:443",))]


async def test_an_unanswered_egress_probe_is_repeated(world):
    fleet = await world.fleet()
    answers = iter([[False], FleetError(Problem(Code.UNAVAILABLE, "X", "cannot reach it")), [], [True]])

    def reaches(targets):
        one = next(answers)
        if isinstance(one, FleetError):
            raise one
        return one

    fleet.pretended.reaches = reaches
    name = fleet.note_session(await world.claim(fleet))
    await until_said(world, fleet, name, "open", "Answered")
    assert len(fleet.pretended.probed) == 4


@pytest.mark.parametrize("answer", [[False], [], [True, True]])
async def test_probing_ends_without_an_answer_and_does_not_report_open(world, answer):
    fleet = await world.fleet()
    fleet.pretended.reaches = lambda _: answer
    name = fleet.note_session(await world.claim(fleet))
    await until_said(world, fleet, name, "opening", "NoAnswer")
    assert f"no answer from {HOST}:443" in fleet.egresses.of(name).reach.message
    assert len(fleet.pretended.probed) == len(egress.PAUSES)


async def test_a_failed_probe_reports_the_executors_failure(world):
    fleet = await world.fleet()

    def reaches(_):
        raise FleetError(Problem(Code.UNAVAILABLE, "X", "cannot reach the executor: it sleeps"))

    fleet.pretended.reaches = reaches
    name = fleet.note_session(await world.claim(fleet))
    await until_said(world, fleet, name, "opening", "NoAnswer")
    assert "it sleeps" in fleet.egresses.of(name).reach.message


async def test_a_claim_without_egress_is_not_probed(world):
    fleet = await world.fleet()
    name = fleet.note_session(await world.claim(fleet, egress=False))
    assert said(fleet, name) == ("denied", "NothingAllowed")
    await world.until(lambda: fleet.egresses.of(name).since)
    assert said(fleet, name) == ("denied", "NothingAllowed")
    assert not fleet.pretended.probed


async def test_the_next_leader_probes_again(world):
    fleet = await world.fleet()
    name = fleet.note_session(await world.claim(fleet))
    await until_said(world, fleet, name, "open", "Answered")
    await world.kill(fleet)
    heir = world.process()
    heir.pretended.reaches = lambda _: [False]
    await world.until(lambda: heir.serving)
    assert said(heir, name)[0] == "opening"
    await until_said(world, heir, name, "opening", "NoAnswer")
    await world.kill(heir)
    last = await world.fleet()
    await until_said(world, last, name, "open", "Answered")


async def test_the_next_fleet_probes_if_a_fleet_ends_before_the_answer(world):
    fleet = await world.fleet()
    fleet.pretended.reaches = lambda _: asyncio.sleep(60)
    name = fleet.note_session(await world.claim(fleet))
    await world.until(lambda: fleet.pretended.probed)
    await world.kill(fleet)
    heir = await world.fleet()
    await until_said(world, heir, name, "open", "Answered")


async def test_a_replaced_executor_is_probed_anew_and_the_old_answer_is_dropped(world):
    fleet = await world.fleet()
    sandbox = await world.claim(fleet)
    name = fleet.note_session(sandbox)
    await until_said(world, fleet, name, "open", "Answered")
    fleet.pretended.reaches = lambda _: [False]
    await world.until(world.objects)
    pod = Ref("Pod", TEAM, sandbox.sandbox_uid.partition("/")[2])
    await world.kube.delete(next(ref for ref in world.cluster.objects if ref.name == pod.name))
    await world.until(lambda: said(fleet, name) == ("opening", "Asking"))
    await world.recover(name.partition("/")[2])
    await until_said(world, fleet, name, "opening", "NoAnswer")
    assert fleet.pretended.probed[-1][0] == name
    assert fleet.pretended.probed[0][0] == sandbox.sandbox_uid


async def test_a_changed_template_is_probed_again(world):
    fleet = await world.fleet()
    name = fleet.note_session(await world.claim(fleet))
    await until_said(world, fleet, name, "open", "Answered")
    template = Ref(SANDBOX_TEMPLATE, TEAM, "python")
    await world.kube.merge(template, {"spec": {"egress": {"allow": None, "dns": True}}})
    await world.until(lambda: len(fleet.pretended.probed) == 2)
    assert fleet.pretended.probed[1][1] == ("name resolution",)
    await until_said(world, fleet, name, "open", "Answered")
    await world.kube.merge(template, {"spec": {"egress": None}})
    await until_said(world, fleet, name, "denied", "NothingAllowed")


async def test_changes_without_egress_cause_no_probe(world):
    fleet = await world.fleet()
    name = fleet.note_session(await world.claim(fleet))
    await until_said(world, fleet, name, "open", "Answered")
    await world.kube.merge(Ref(CODE_SANDBOX, *name.split("/")), {"metadata": {"labels": {"some": "thing"}}})
    await world.kube.merge(Ref(SANDBOX_TEMPLATE, TEAM, "python"), {"metadata": {"labels": {"some": "thing"}}})
    second = fleet.note_session(await world.claim(fleet, request="r2"))
    await until_said(world, fleet, second, "open", "Answered")
    assert len(fleet.pretended.probed) == 2


async def test_many_claims_at_once_are_all_answered_with_few_probes_at_a_time(world, monkeypatch):
    monkeypatch.setattr(egress, "AT_ONCE", 3)
    await world.add(pool_object("wide", 12))
    fleet = await world.fleet()
    running, most, go = set(), [], asyncio.Event()

    async def reaches(_):
        me = object()
        running.add(me)
        most.append(len(running))
        await go.wait()
        running.discard(me)
        return [True]

    fleet.pretended.reaches = reaches
    await world.until(lambda: fleet.scheduler.summary("team/wide").warm == 12)
    claims = [world.claim(fleet, request=f"r{n}", pool="wide") for n in range(12)]
    sandboxes = await asyncio.gather(*claims)
    await world.until(lambda: len(running) == 3)
    go.set()
    for sandbox in sandboxes:
        await until_said(world, fleet, fleet.note_session(sandbox), "open", "Answered")
    assert max(most) == 3


async def test_a_released_sandbox_is_no_longer_probed_and_is_forgotten(world):
    fleet = await world.fleet()
    fleet.pretended.reaches = lambda _: asyncio.sleep(60)
    sandbox = await world.claim(fleet)
    name = fleet.note_session(sandbox)
    await world.until(lambda: fleet.pretended.probed)
    task = fleet.egresses._entries[name].task
    assert await fleet.fleet.release(sandbox.sandbox_id)
    await world.until(lambda: not fleet.egresses._entries)
    await world.until(task.done)
    assert said(fleet, name) is None


async def test_a_codesandbox_with_a_narrower_list_gets_no_label_that_opens_the_templates(world):
    fleet = await world.fleet()
    narrow = {"allow": [{"cidr": f"{HOST}/32", "ports": [{"protocol": "TCP", "port": 80}]}]}
    await world.add(sandbox_object("narrow", egress=narrow), sandbox_object("wide"))
    await world.until(lambda: len(world.pods("claimed")) == 2)
    labels = {one["metadata"]["labels"][names.SANDBOX]: one["metadata"]["labels"] for one in world.pods("claimed")}
    assert labels["wide"][names.EGRESS_CLASS] == "python"
    assert names.EGRESS_CLASS not in labels["narrow"]
    for name in labels:
        await until_said(world, fleet, f"{TEAM}/{name}", "open", "Answered")
    assert {targets for _, targets in fleet.pretended.probed} == {(f"{HOST}:80",), (f"{HOST}:443",)}

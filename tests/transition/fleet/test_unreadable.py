"""Objects that the fleet cannot read: List and Watch leave them out, their pool says so, and all else is served."""

import logging

import pytest
from sandfleet_api.fleet.v1 import fleet_pb2
from sandfleet_operator.api.errors import FleetError
from sandfleet_operator.api.kube import CODE_SANDBOX, SANDBOX_POOL, SANDBOX_TEMPLATE, Ref
from sandfleet_operator.cluster.reviews import Caller
from sandfleet_operator.fleet.kubernetes.api import KubernetesFleetApi
from support.kubernetes.world import TEAM, World, pool_object, sandbox_object, template_object

CALLER = Caller(username="alice", uid="", groups=(), extra={})
HIBERNATED = {"operatingMode": "Hibernated"}


class AllowsAll:
    async def authorize(self, *_: object) -> None:
        return None


@pytest.fixture
async def world():
    async with World() as made:
        await made.add(template_object(), pool_object())
        yield made


def unreadable(name):
    made = sandbox_object(name)
    return {**made, "spec": {**made["spec"], **HIBERNATED}}


async def an_api(world):
    fleet = await world.fleet()
    return fleet, KubernetesFleetApi(world.kube, AllowsAll(), None, fleet, None)


async def seen(world, api, name):
    """A list answers from what the watch has shown, and it shows objects in the order of their changes."""

    async def is_listed():
        listed = await api.list(CALLER, fleet_pb2.ListRequest(namespace=TEAM))
        return f"{TEAM}/{name}" in {one.sandbox_id for one in listed.sandboxes}

    await world.until(is_listed)


async def test_a_list_leaves_an_unreadable_object_out_and_logs_it_once(world, caplog):
    fleet, api = await an_api(world)
    await world.add(unreadable("odd"), sandbox_object("fine", pool=""))
    await seen(world, api, "fine")
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            listed = await api.list(CALLER, fleet_pb2.ListRequest(namespace=TEAM))
            assert [one.sandbox_id for one in listed.sandboxes] == [f"{TEAM}/fine"]
    told = [one for one in caplog.messages if "odd" in one]
    why = "cannot read spec.operatingMode: 'Hibernated' is none of Running, Suspended"
    assert told == [f"skipping codesandboxes.sandfleet.io {TEAM}/odd (1 unreadable so far): {why}"]
    assert fleet.feed.unreadable.count == 1


async def test_a_page_goes_on_after_an_unreadable_object(world):
    _, api = await an_api(world)
    await world.add(sandbox_object("a", pool=""), unreadable("b"), sandbox_object("c", pool=""))
    await seen(world, api, "c")
    first = await api.list(CALLER, fleet_pb2.ListRequest(namespace=TEAM, page_size=1))
    rest = await api.list(CALLER, fleet_pb2.ListRequest(namespace=TEAM, page_token=first.next_page_token))
    assert [one.sandbox_id for page in (first, rest) for one in page.sandboxes] == [f"{TEAM}/a", f"{TEAM}/c"]


async def test_a_get_names_the_field(world):
    _, api = await an_api(world)
    await world.add(unreadable("odd"))
    with pytest.raises(FleetError, match=r"cannot get sandbox team/odd: cannot read spec\.operatingMode") as refused:
        await api.get(CALLER, fleet_pb2.GetRequest(sandbox_id=f"{TEAM}/odd"))
    assert refused.value.problem.reason == "SandboxUnreadable"


async def test_a_watch_says_why_it_cannot_be_read_until_it_is_gone(world):
    fleet, _ = await an_api(world)
    await world.add(sandbox_object("fine", pool=""), unreadable("odd"))
    await world.until(lambda: len(list(fleet.feed._store.all(CODE_SANDBOX))) == 2)
    news = fleet.feed.watch(TEAM, lambda _: True)

    async def heard():
        found = await anext(news)
        event = found.WhichOneof("event")
        return event, getattr(getattr(found, event), "sandbox_id", "")

    assert {await heard(), await heard()} == {("changed", f"{TEAM}/fine"), ("unreadable", f"{TEAM}/odd")}
    assert await heard() == ("synced", "")
    await world.kube.merge(Ref(CODE_SANDBOX, TEAM, "fine"), {"spec": HIBERNATED})
    said = (await anext(news)).unreadable
    assert (said.sandbox_id, said.reason) == (f"{TEAM}/fine", "SandboxUnreadable")
    assert said.message == "cannot read spec.operatingMode: 'Hibernated' is none of Running, Suspended"
    await world.kube.merge(Ref(CODE_SANDBOX, TEAM, "fine"), {"spec": {"operatingMode": "Running"}})
    assert await heard() == ("changed", f"{TEAM}/fine")
    await world.kube.delete(Ref(CODE_SANDBOX, TEAM, "odd"))
    assert await heard() == ("removed", f"{TEAM}/odd")
    await news.aclose()


async def test_a_watch_of_other_labels_does_not_hear_of_it(world):
    fleet, _ = await an_api(world)
    await world.add(unreadable("odd"))
    await world.until(lambda: list(fleet.feed._store.all(CODE_SANDBOX)))
    news = fleet.feed.watch(TEAM, lambda labels: "app" in labels)
    assert (await anext(news)).synced
    await news.aclose()


async def test_a_session_ends_with_its_object_although_that_is_unreadable(world):
    fleet = await world.fleet()
    await world.add(sandbox_object())
    await world.until(lambda: fleet.session_of(f"{TEAM}/mine") is not None and world.pods("claimed"))
    await world.kube.merge(Ref(CODE_SANDBOX, TEAM, "mine"), {"spec": HIBERNATED})
    await world.kube.delete(Ref(CODE_SANDBOX, TEAM, "mine"))
    await world.until(lambda: fleet.session_of(f"{TEAM}/mine") is None and not world.pods("claimed"))


def ready(world):
    status = world.cluster.objects[Ref(SANDBOX_POOL, TEAM, "fast")].get("status") or {}
    return next((one for one in status.get("conditions", ())), {"reason": ""})


async def test_an_unreadable_pool_says_so_and_fills_again_when_corrected(world):
    fleet = await world.fleet()
    await world.kube.merge(Ref(SANDBOX_POOL, TEAM, "fast"), {"spec": {"replicas": "many"}})
    await world.until(lambda: ready(world)["reason"] == "Unreadable")
    assert ready(world)["message"] == "cannot read spec.replicas: a text stands where a whole number should be"
    await world.kube.merge(Ref(SANDBOX_POOL, TEAM, "fast"), {"spec": {"replicas": 3}})
    await world.until(lambda: len(world.pods("warm")) == 3)
    assert fleet.serving


async def test_an_unreadable_pool_keeps_its_warm_pods_and_hands_none_out(world):
    fleet = await world.fleet()
    await world.until(lambda: len(world.pods("warm")) == 2)
    await world.kube.merge(Ref(SANDBOX_POOL, TEAM, "fast"), {"spec": {"maxSize": "many"}})
    await world.until(lambda: ready(world)["reason"] == "Unreadable")
    with pytest.raises((FleetError, TimeoutError)):
        await world.claim(fleet, within=0.2)
    assert len(world.pods("warm")) == 2 == len(world.pods())


async def test_a_pool_names_the_field_of_an_unreadable_template(world):
    await world.fleet()
    await world.kube.merge(Ref(SANDBOX_TEMPLATE, TEAM, "python"), {"spec": {"contracts": ["Watched"]}})
    await world.until(lambda: ready(world)["reason"] == "TemplateInvalid")
    assert ready(world)["message"].startswith("cannot read spec.contracts[0]: 'Watched' is none of")


async def test_an_unreadable_object_keeps_its_workspace_from_claims(world):
    _, api = await an_api(world)
    made = unreadable("odd")
    await world.add({**made, "spec": {**made["spec"], "workspace": {"claimName": "old"}}})
    found = await api._kubernetes.workspaces._users(TEAM, "old")
    assert [one.name for one in found] == ["CodeSandbox odd, which cannot be read"]

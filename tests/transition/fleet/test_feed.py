"""How callers see CodeSandboxes: each version is encoded once for all of them, and no caller keeps the loop busy."""

import asyncio

import pytest
from sandfleet_api.fleet.v1 import fleet_pb2
from sandfleet_operator.api.errors import FleetError
from sandfleet_operator.api.kube import CODE_SANDBOX
from sandfleet_operator.api.selectors import parse_selector
from sandfleet_operator.api.settings import Settings
from sandfleet_operator.cluster.store import Store
from sandfleet_operator.fleet.kubernetes import feed as module
from sandfleet_operator.fleet.kubernetes.feed import TURN, SandboxFeed
from sandfleet_operator.fleet.kubernetes.sessions.young import YoungSessions
from sandfleet_operator.plan.pods.egress_probe import Known, Reach, ReachState

ANY = parse_selector("")
SANDBOXES = 10 * TURN


def young():
    return YoungSessions(Settings(control_plane_namespace="system"), lambda _name: False)


def a_store():
    return Store(in_order=(CODE_SANDBOX,))


def put(store, name, version=1, spec=None, **labels):
    meta = {"namespace": "team", "name": name, "uid": name, "resourceVersion": str(version), "labels": labels}
    obj = {"kind": CODE_SANDBOX.kind, "metadata": meta, "spec": spec or {"templateRef": {"name": "python"}}}
    assert store.put(CODE_SANDBOX, obj)
    return store.get_like(CODE_SANDBOX, obj)


@pytest.fixture
def encoded(monkeypatch):
    """The names of the sandboxes that were described, each time."""
    found, describe = [], module.message

    def describing(sandbox, egress):
        found.append(sandbox.meta.name)
        return describe(sandbox, egress)

    monkeypatch.setattr(module, "message", describing)
    return found


async def turns(count):
    while True:
        count[0] += 1
        await asyncio.sleep(0)


async def begun(feed, matches=ANY, namespace="", caller="ann"):
    """A watch that has shown what is there, and what that was."""
    watch, seen = feed.watch(namespace, matches, caller), []
    while not (response := await anext(watch)).synced:
        seen.append(response.changed.sandbox_id)
    return watch, seen


async def test_a_change_is_encoded_once_for_all_watches_and_lists(encoded):
    store = a_store()
    feed = SandboxFeed(store, lambda _name: None, young())
    put(store, "a")
    watches = [(await begun(feed))[0] for _ in range(3)]
    assert encoded == ["a"]
    feed.say(put(store, "a", 2, x="new"), gone=False)
    shown = [await anext(watch) for watch in watches]
    page, _ = await feed.page("team", ANY, "", 10)
    assert [one.changed.labels["x"] for one in shown] == ["new"] * 3
    assert fleet_pb2.Sandbox.FromString(page[0]) == shown[0].changed
    assert encoded == ["a", "a"]


async def test_news_of_the_egress_alone_is_encoded_again(encoded):
    store, known = a_store(), [None]
    feed = SandboxFeed(store, lambda _name: known[0], young())
    put(store, "a")
    watch, _ = await begun(feed)
    known[0] = Known(Reach(ReachState.OPEN, "Open", ""))
    feed.say_again("team/a")
    assert (await anext(watch)).changed.egress.state == fleet_pb2.EGRESS_STATE_OPEN
    assert encoded == ["a", "a"]


async def test_others_get_their_turn_while_a_watch_or_a_page_begins():
    store = a_store()
    feed, count = SandboxFeed(store, lambda _name: None, young()), [0]
    for number in range(SANDBOXES):
        put(store, f"s-{number:04}")
    other = asyncio.create_task(turns(count))
    _, seen = await begun(feed)
    assert (len(seen), count[0] >= SANDBOXES // TURN) == (SANDBOXES, True)
    count[0] = 0
    page, following = await feed.page("", ANY, "", SANDBOXES - 1)
    assert (len(page), following, count[0] >= SANDBOXES // TURN - 1) == (
        SANDBOXES - 1,
        f"team/s-{SANDBOXES - 2:04}",
        True,
    )
    other.cancel()


async def test_an_unreadable_sandbox_is_on_no_page_and_makes_none_empty():
    store = a_store()
    feed = SandboxFeed(store, lambda _name: None, young())
    put(store, "a")
    put(store, "b", spec={"templateRef": 7})
    assert (await feed.page("", ANY, "", 1))[1] == ""
    put(store, "c")
    _, following = await feed.page("", ANY, "", 1)
    page, end = await feed.page("", ANY, following, 1)
    assert (following, fleet_pb2.Sandbox.FromString(page[0]).sandbox_id, end) == ("team/a", "team/c", "")


async def test_a_sandbox_that_is_gone_is_shown_to_each_watch_that_wants_its_labels():
    store = a_store()
    feed = SandboxFeed(store, lambda _name: None, young())
    obj = put(store, "a", x="1")
    wanted, _ = await begun(feed, parse_selector("x=1"))
    other, _ = await begun(feed, parse_selector("x=2"))
    store.remove(CODE_SANDBOX, obj)
    feed.say(dict(obj), gone=True)
    assert (await anext(wanted)).removed.sandbox_id == "team/a"
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(anext(other), 0.01)


async def test_a_watch_that_begins_loses_no_change_of_the_meantime():
    """What it has not come to yet is shown once, as it is then; what it has shown is shown again."""
    store = a_store()
    feed = SandboxFeed(store, lambda _name: None, young())
    for name in "abd":
        put(store, name)
    watch = feed.watch("", ANY)
    assert (await anext(watch)).changed.sandbox_id == "team/a"
    for name in "abd":
        feed.say(put(store, name, 2, x="new"), gone=False)
    gone = put(store, "c")
    feed.say(gone, gone=False)
    store.remove(CODE_SANDBOX, store.get_like(CODE_SANDBOX, gone))
    feed.say(gone, gone=True)
    seen = [await anext(watch) for _ in range(5)]
    said = [(one.WhichOneof("event"), one.changed.sandbox_id, one.changed.labels["x"]) for one in seen]
    assert said == [
        ("changed", "team/b", "new"),
        ("changed", "team/d", "new"),
        ("synced", "", ""),
        ("changed", "team/a", "new"),
        ("removed", "", ""),
    ]


async def test_a_change_reaches_the_watches_of_its_namespace_and_of_all_and_wakes_no_other_one():
    store = a_store()
    feed = SandboxFeed(store, lambda _name: None, young())
    watches = {name: (await begun(feed, namespace=name))[0] for name in ("team", "", "other")}
    woken = []

    async def read(name):
        await anext(watches[name])
        woken.append(name)

    tasks = [asyncio.create_task(read(name)) for name in watches]
    await asyncio.sleep(0)
    feed.say(put(store, "a"), gone=False)
    assert [reader.news for reader in feed._readers["other"]] == [{}]
    await asyncio.wait(tasks[:2])
    assert sorted(woken) == ["", "team"]
    tasks[2].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for watch in watches.values():
        await watch.aclose()
    assert (feed._readers, feed._watches) == ({}, {})


@pytest.mark.parametrize(("bound", "why"), [("MAX_WATCHES", "2 watches of ann"), ("MAX_READERS", "of namespace team")])
async def test_watches_are_bounded_for_a_caller_and_a_namespace(monkeypatch, bound, why):
    monkeypatch.setattr(module, bound, 2)
    feed = SandboxFeed(a_store(), lambda _name: None, young())
    opened = [(await begun(feed, namespace="team", caller="ann"))[0] for _ in range(2)]
    with pytest.raises(FleetError, match=f"cannot watch: .*{why}") as caught:
        await begun(feed, namespace="team", caller="ann")
    assert caught.value.problem.reason == "TooManyWatches"
    await begun(feed, namespace="other", caller="bob")
    await opened[0].aclose()
    await begun(feed, namespace="team", caller="ann")

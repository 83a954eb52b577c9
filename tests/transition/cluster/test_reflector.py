"""How the store is brought up to date: in pages, with turns for others, and with news of what has changed meanwhile."""

import asyncio

import pytest
from sandfleet_operator.api.kube import CONFIG_MAP, Ref
from sandfleet_operator.cluster import reflector as module
from sandfleet_operator.cluster.reflector import Reflector, relist, show_each
from sandfleet_operator.cluster.store import Store
from support.fakes.kube_memory import MemoryKube

SPACE = "team"


async def kube_with(*names):
    kube = MemoryKube()
    await kube.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SPACE}})
    for name in names:
        await make(kube, name)
    return kube


async def make(kube, name):
    meta = {"namespace": SPACE, "name": name}
    await kube.create({"apiVersion": "v1", "kind": CONFIG_MAP.kind, "metadata": meta})


def names(store):
    return sorted(obj["metadata"]["name"] for obj in store.all(CONFIG_MAP))


async def test_a_list_is_taken_in_page_by_page_and_others_get_their_turn(monkeypatch):
    monkeypatch.setattr(module, "PAGE", 2)
    kube, store, seen = await kube_with("a", "b", "c", "d", "e"), Store(), []
    others = asyncio.create_task(watch_growth(store, seen))
    await relist(kube, store, CONFIG_MAP, lambda *_: None)
    others.cancel()
    assert {2, 4} <= set(seen)
    assert names(store) == ["a", "b", "c", "d", "e"]


async def watch_growth(store, seen):
    while True:
        seen.append(len(names(store)))
        await asyncio.sleep(0)


async def test_others_get_their_turn_between_the_parsing_of_a_page_and_its_first_object(monkeypatch):
    """An API server's answers may be there without any wait."""
    kube, store, turns = await kube_with("a", "b"), Store(), []

    class Parsed:
        async def pages(self, *words, **named):
            async for page in kube.pages(*words, **named):
                turns.clear()
                asyncio.get_running_loop().call_soon(turns.append, "others")
                yield page

    await relist(Parsed(), store, CONFIG_MAP, lambda *_: turns.append("object"))
    assert turns == ["others", "object", "object"]


async def test_a_takeover_shows_each_object_as_it_is_in_its_turn_and_others_get_theirs(monkeypatch):
    monkeypatch.setattr(module, "TURN", 2)
    kube, store, shown = await kube_with("a", "b", "c", "d", "e"), Store(), []
    await relist(kube, store, CONFIG_MAP, lambda *_: None)

    def changed():
        newest = store.get(Ref(CONFIG_MAP, SPACE, "d"))
        version = str(int(newest["metadata"]["resourceVersion"]) + 100)
        store.put(CONFIG_MAP, {**newest, "metadata": {**newest["metadata"], "resourceVersion": version}, "data": {}})
        store.remove(CONFIG_MAP, store.get(Ref(CONFIG_MAP, SPACE, "e")))

    def see(obj):
        shown.append((obj["metadata"]["name"], "data" in obj))
        if len(shown) == 1:
            asyncio.get_running_loop().call_soon(changed)

    await show_each(store, CONFIG_MAP, see)
    assert shown == [("a", False), ("b", False), ("c", False), ("d", True)]


async def test_a_list_tells_what_it_brings_and_what_it_has_no_more():
    kube, store, news = await kube_with("a", "b"), Store(), []

    def saw(_kind, gone, obj, _before):
        news.append((obj["metadata"]["name"], gone))

    await relist(kube, store, CONFIG_MAP, saw)
    await kube.delete(Ref(CONFIG_MAP, SPACE, "a"))
    await make(kube, "c")
    await relist(kube, store, CONFIG_MAP, saw)
    assert news == [("a", False), ("b", False), ("c", False), ("a", True)]


async def test_an_object_that_is_deleted_while_its_list_is_read_does_not_come_back(monkeypatch):
    monkeypatch.setattr(module, "PAGE", 1)
    kube, store = await kube_with("a", "b"), Store()

    def saw(_kind, _gone, obj, _before):
        # As a watch beside the list tells it, before the page with the object comes.
        if obj["metadata"]["name"] == "a":
            store.remove(CONFIG_MAP, kube.cluster.objects[Ref(CONFIG_MAP, SPACE, "b")])

    await relist(kube, store, CONFIG_MAP, saw)
    assert names(store) == ["a"]


async def test_a_reflector_tells_the_object_as_it_is_kept():
    kube, store, told = await kube_with("a"), Store(), []
    made = Reflector(kube, store, CONFIG_MAP, lambda _kind, _gone, obj, _before: told.append(obj))
    running = asyncio.create_task(made.run())
    await made.synced.wait()
    await make(kube, "b")
    while len(told) < 2:
        await asyncio.sleep(0)
    running.cancel()
    assert all(one is store.get(Ref(CONFIG_MAP, SPACE, one["metadata"]["name"])) for one in told)


class Counting(MemoryKube):
    """Counts the objects that lists have shown, and holds the events of long watches back."""

    def __init__(self):
        super().__init__()
        self.listed, self.may_show, self.is_silent = 0, asyncio.Event(), False
        self.may_show.set()

    async def pages(self, *words, **named):
        async for page in super().pages(*words, **named):
            self.listed += len(page.items)
            yield page

    async def watch(self, *words, seconds=None, **named):
        async for event in super().watch(*words, seconds=seconds, **named):
            if seconds is None:
                await self.may_show.wait()
            elif self.is_silent:
                await asyncio.Event().wait()
            yield event


async def following(*names):
    kube = Counting()
    await kube.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SPACE}})
    for name in names:
        await make(kube, name)
    made = Reflector(kube, Store(), CONFIG_MAP, lambda *_: None)
    running = asyncio.create_task(made.run())
    await made.synced.wait()
    kube.listed = 0
    return kube, made, running


@pytest.mark.parametrize("is_late", [False, True])
async def test_a_standby_that_follows_the_watches_catches_up_without_a_list(monkeypatch, is_late):
    monkeypatch.setattr(module, "FEW", 0)
    kube, made, running = await following("a", "b")
    if is_late:
        kube.may_show.clear()
    await make(kube, "c")
    await kube.delete(Ref(CONFIG_MAP, SPACE, "a"))
    # What is newest is of another kind: only a bookmark shows that nothing more comes.
    await kube.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}})
    await made.catch_up()
    assert (names(made._store), kube.listed) == (["b", "c"], 0)
    kube.may_show.set()
    await made.catch_up()
    assert (names(made._store), kube.listed) == (["b", "c"], 0)
    # The control.
    await made.refresh()
    assert kube.listed == 2
    running.cancel()


@pytest.mark.parametrize("trouble", ["silent", "expired"])
async def test_a_standby_whose_watch_does_not_come_to_the_barrier_lists_all_objects(monkeypatch, trouble):
    monkeypatch.setattr(module, "FEW", 0)
    kube, made, running = await following("a")
    kube.may_show.clear()
    await make(kube, "b")
    if trouble == "silent":
        monkeypatch.setattr(module, "CATCH_UP_SECONDS", 0.05)
        kube.is_silent = True
    else:
        kube.cluster.expire()
    await made.catch_up()
    assert (names(made._store), kube.listed >= 2) == (["a", "b"], True)
    running.cancel()


async def test_a_standby_lists_a_few_objects_at_once():
    kube, made, running = await following("a")
    kube.may_show.clear()
    await make(kube, "b")
    await made.catch_up()
    assert (names(made._store), kube.listed) == (["a", "b"], 2)
    running.cancel()

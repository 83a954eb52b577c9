"""What the product expects of the Kubernetes API, in memory and real: deleting, listing, watching.

Who runs these sentences has a fixture `bed`.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing

import pytest
from contract.kube.bed import STRANGER, THING, Bed, version
from sandfleet_operator.api.kube import (
    CONFIG_MAP,
    NAMESPACE,
    POD,
    AlreadyExists,
    Conflict,
    Event,
    Expired,
    Forbidden,
    Invalid,
    Ref,
    ref_of,
)

# Deleting.


async def test_delete_reports_whether_the_object_existed(bed: Bed):
    await bed.api.create(bed.config())
    assert await bed.api.delete(bed.ref(CONFIG_MAP)) is True
    assert await bed.api.delete(bed.ref(CONFIG_MAP)) is False
    assert not await bed.there(bed.ref(CONFIG_MAP))


async def test_delete_with_preconditions_deletes_only_that_object(bed: Bed):
    made = await bed.api.create(bed.config())
    ref, uid = bed.ref(CONFIG_MAP), made["metadata"]["uid"]
    await bed.api.merge(ref, {"data": {"color": "red"}})
    with pytest.raises(Conflict):
        await bed.api.delete(ref, uid=STRANGER)
    with pytest.raises(Conflict):
        await bed.api.delete(ref, uid=uid, resource_version=made["metadata"]["resourceVersion"])
    assert await bed.there(ref)
    assert await bed.api.delete(ref, uid=uid) is True
    assert await bed.api.delete(ref, uid=uid) is False


async def test_a_finalizer_keeps_an_object_until_its_removal(bed: Bed):
    await bed.api.create(bed.thing(finalizers=["sandfleet.io/one"]))
    ref = bed.ref(THING)
    assert await bed.api.delete(ref) is True
    marked = await bed.api.get(ref)
    assert "deletionTimestamp" in marked["metadata"]
    assert marked["metadata"]["generation"] == 2
    assert await bed.api.delete(ref) is True
    assert version(await bed.api.get(ref)) == version(marked)
    with pytest.raises(Invalid):
        await bed.api.merge(ref, {"metadata": {"finalizers": ["sandfleet.io/one", "sandfleet.io/two"]}})
    await bed.api.patch(ref, [{"op": "remove", "path": "/metadata/finalizers/0"}])
    assert not await bed.there(ref)


async def test_a_pod_without_a_node_is_deleted_at_once(bed: Bed):
    await bed.api.create(bed.pod(schedulingGates=[{"name": "sandfleet.io/never"}]))
    await bed.api.delete(bed.ref(POD))
    assert not await bed.there(bed.ref(POD))


async def test_a_pod_on_a_node_is_terminating_until_the_kubelet_has_ended_it(bed: Bed):
    await bed.api.create(bed.pod(nodeName="nowhere", terminationGracePeriodSeconds=50))
    ref = bed.ref(POD)
    await bed.api.delete(ref)
    pod = (await bed.api.get(ref))["metadata"]
    assert pod["deletionGracePeriodSeconds"] == 50
    assert pod["deletionTimestamp"] > pod["creationTimestamp"]
    with pytest.raises(AlreadyExists):
        await bed.api.create(bed.pod())
    await bed.kubelet(ref)
    assert not await bed.there(ref)


async def test_zero_grace_deletes_even_a_terminating_pod_at_once(bed: Bed):
    await bed.api.create(bed.pod(nodeName="nowhere"))
    await bed.api.delete(bed.ref(POD))
    assert await bed.there(bed.ref(POD))
    await bed.api.delete(bed.ref(POD), grace_seconds=0)
    assert not await bed.there(bed.ref(POD))


async def test_orphans_are_collected_and_owned_objects_stay(bed: Bed):
    owner = (await bed.api.create(bed.thing("owner")))["metadata"]

    def owned(name: str, uid: str):
        reference = {"apiVersion": THING.api_version, "kind": THING.kind, "name": "owner", "uid": uid}
        return bed.config(name, ownerReferences=[reference])

    await bed.api.create(owned("kept", owner["uid"]))
    await bed.api.create(owned("stranger", STRANGER))
    await bed.gone(bed.ref(CONFIG_MAP, "stranger"))
    assert await bed.there(bed.ref(CONFIG_MAP, "kept"))
    await bed.api.delete(bed.ref(THING, "owner"))
    await bed.gone(bed.ref(CONFIG_MAP, "kept"))


async def test_a_terminating_namespace_deletes_all_and_admits_nothing(bed: Bed):
    await bed.api.create(bed.config())
    await bed.api.create(bed.thing(finalizers=["sandfleet.io/one"]))
    home = Ref(NAMESPACE, "", bed.namespace)
    await bed.api.delete(home)
    with pytest.raises(Forbidden):
        await bed.api.create(bed.config("late"))
    await bed.gone(bed.ref(CONFIG_MAP))
    assert await bed.there(home)
    await bed.api.merge(bed.ref(THING), {"metadata": {"finalizers": None}})
    await bed.gone(home)


# Lists.

LABELS = {"one": {"app": "a", "tier": "x"}, "two": {"app": "b"}, "three": {"app": "c", "tier": "y"}, "four": {}}
SELECTORS = [
    ("", "one two three four"),
    ("app=a", "one"),
    ("app==a,tier=x", "one"),
    ("app!=a", "two three four"),
    ("app in (a, b)", "one two"),
    ("app notin (a,b)", "three four"),
    ("tier", "one three"),
    ("!tier", "two four"),
    ("app in (a,c),tier!=x", "three"),
]


@pytest.mark.parametrize(("selector", "names"), SELECTORS, ids=lambda value: value or "all")
async def test_a_list_selects_by_labels(bed: Bed, selector, names):
    for name, labels in LABELS.items():
        await bed.api.create(bed.thing(name, labels=labels))
    listing = await bed.api.list(THING, bed.namespace, selector)
    assert {item["metadata"]["name"] for item in listing.items} == set(names.split())


async def test_a_list_has_all_pages_and_a_version_to_watch_from(bed: Bed):
    made = [await bed.api.create(bed.config(f"page-{number}")) for number in range(5)]
    listing = await bed.api.list(CONFIG_MAP, bed.namespace, fields="metadata.name!=kube-root-ca.crt", limit=2)
    assert [ref_of(item) for item in listing.items] == [ref_of(item) for item in made]
    assert listing.items[0] == made[0]
    assert int(listing.resource_version) >= version(made[-1])
    everywhere = await bed.api.list(CONFIG_MAP)
    assert {ref_of(item) for item in listing.items} <= {ref_of(item) for item in everywhere.items}


async def test_a_list_selects_by_fields(bed: Bed):
    await bed.api.create(bed.pod("here", nodeName="nowhere"))
    await bed.api.create(bed.pod("unbound", schedulingGates=[{"name": "sandfleet.io/never"}]))
    for fields, name in (("spec.nodeName=nowhere", "here"), ("metadata.name=unbound,status.phase=Pending", "unbound")):
        listing = await bed.api.list(POD, bed.namespace, fields=fields)
        assert [item["metadata"]["name"] for item in listing.items] == [name]


# Watches.


async def take(stream: AsyncIterator[Event], count: int) -> list[Event]:
    """The next events, up to this number, without bookmarks."""
    found: list[Event] = []
    async with asyncio.timeout(30):
        while len(found) < count:
            event = await anext(stream)
            if event.type != "BOOKMARK":
                found.append(event)
    return found


def told(events: list[Event]) -> list[tuple[str, str]]:
    return [(event.type, event.object["metadata"]["name"]) for event in events]


async def test_a_watch_continues_from_a_list(bed: Bed):
    await bed.api.create(bed.config("before"))
    listing = await bed.api.list(CONFIG_MAP, bed.namespace)
    made = await bed.api.create(bed.config())
    async with aclosing(bed.api.watch(CONFIG_MAP, bed.namespace, resource_version=listing.resource_version)) as stream:
        assert (await take(stream, 1)) == [Event("ADDED", made)]
        changed = await bed.api.merge(bed.ref(CONFIG_MAP), {"data": {"color": "red"}})
        await bed.api.delete(bed.ref(CONFIG_MAP))
        modified, deleted = await take(stream, 2)
    assert modified == Event("MODIFIED", changed)
    assert deleted.type == "DELETED"
    assert deleted.object["data"] == {"color": "red"}
    assert version(deleted.object) > version(changed)


async def test_a_watch_without_a_version_starts_with_existing_objects(bed: Bed):
    await bed.api.create(bed.thing("first"))
    async with aclosing(bed.api.watch(THING, bed.namespace)) as stream:
        assert told(await take(stream, 1)) == [("ADDED", "first")]
        await bed.api.create(bed.thing("second"))
        assert told(await take(stream, 1)) == [("ADDED", "second")]


async def test_an_object_that_stops_matching_is_deleted_for_its_watch(bed: Bed):
    await bed.api.create(bed.thing(labels={"state": "warm"}))
    await bed.api.create(bed.thing("other", labels={"state": "cold"}))

    async def become(name: str, state: str) -> None:
        await bed.api.merge(bed.ref(THING, name), {"metadata": {"labels": {"state": state}}})

    async with aclosing(bed.api.watch(THING, bed.namespace, "state=warm")) as stream:
        assert told(await take(stream, 1)) == [("ADDED", "one")]
        await become("one", "cold")
        await become("other", "warm")
        assert told(await take(stream, 2)) == [("DELETED", "one"), ("ADDED", "other")]


async def test_a_watch_shows_a_pending_deletion_as_a_change_and_then_a_deletion(bed: Bed):
    await bed.api.create(bed.thing(finalizers=["sandfleet.io/one"]))
    async with aclosing(bed.api.watch(THING, bed.namespace)) as stream:
        await take(stream, 1)
        await bed.api.delete(bed.ref(THING))
        await bed.api.merge(bed.ref(THING), {"metadata": {"finalizers": None}})
        marked, ended = await take(stream, 2)
    assert (marked.type, ended.type) == ("MODIFIED", "DELETED")
    assert "deletionTimestamp" in marked.object["metadata"]


async def test_bookmarks_carry_the_version_of_a_watch(bed: Bed):
    made = await bed.api.create(bed.config())
    listing = await bed.api.list(CONFIG_MAP, bed.namespace)
    async with (
        asyncio.timeout(60),
        aclosing(bed.short.watch(CONFIG_MAP, bed.namespace, resource_version=listing.resource_version)) as stream,
    ):
        coming = asyncio.ensure_future(anext(stream))
        await asyncio.sleep(0)
        bed.bookmark()
        event = await coming
    assert event.type == "BOOKMARK"
    assert version(event.object) >= version(made)


async def test_a_watch_selects_by_fields(bed: Bed):
    listing = await bed.api.list(CONFIG_MAP, bed.namespace, fields="metadata.name=mine")
    await bed.api.create(bed.config("other"))
    made = await bed.api.create(bed.config("mine"))
    watch = bed.api.watch(CONFIG_MAP, None, "", listing.resource_version, fields="metadata.name=mine")
    async with aclosing(watch) as stream:
        assert await take(stream, 1) == [Event("ADDED", made)]
        await bed.api.delete(bed.ref(CONFIG_MAP, "other"))
        await bed.api.delete(bed.ref(CONFIG_MAP, "mine"))
        (event,) = await take(stream, 1)
    assert (event.type, event.object["metadata"]["name"]) == ("DELETED", "mine")


async def test_a_version_that_is_too_old_is_expired(bed: Bed):
    await bed.api.create(bed.thing())
    with pytest.raises(Expired) as refusal:
        async with aclosing(bed.api.watch(THING, bed.namespace, resource_version=bed.too_old())) as stream:
            await take(stream, 1)
    assert (refusal.value.status, refusal.value.reason) == (410, "Expired")
    listing = await bed.api.list(THING, bed.namespace)
    made = await bed.api.create(bed.thing("later"))
    async with aclosing(bed.api.watch(THING, bed.namespace, resource_version=listing.resource_version)) as stream:
        assert await take(stream, 1) == [Event("ADDED", made)]

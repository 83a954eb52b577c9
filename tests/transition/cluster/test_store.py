"""The store keeps the newest version of each object, in any order of events."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sandfleet_operator.api.kube import NODE, POD, Ref
from sandfleet_operator.cluster import store as module
from sandfleet_operator.cluster.store import Counts, Owned, Store

DEMO = Ref(POD, "team-a", "demo")


def a_pod(version: int, uid: str = "one", name: str = "demo", namespace: str = "team-a"):
    meta = {"namespace": namespace, "name": name, "uid": uid, "resourceVersion": str(version)}
    return {"metadata": {**meta, "labels": {"content": str(version)}}}


def known(store: Store) -> object:
    found = store.get(DEMO)
    return found and (found["metadata"]["uid"], int(found["metadata"]["labels"]["content"]))


# Events in turn → the known object, and whether the last event was news.
PUT, LOST, GONE = "put", "lost", "gone"
HEARD = {
    "nothing": ([], None, None),
    "one": ([(PUT, a_pod(5))], ("one", 5), True),
    "a newer one": ([(PUT, a_pod(5)), (PUT, a_pod(6))], ("one", 6), True),
    # An answer to our own write overtakes the watch.
    "an older one": ([(PUT, a_pod(6)), (PUT, a_pod(5))], ("one", 6), False),
    "the same again": ([(PUT, a_pod(6)), (PUT, a_pod(6))], ("one", 6), False),
    # Versions are numbers: 10 is newer than 9.
    "one with more digits": ([(PUT, a_pod(9)), (PUT, a_pod(10))], ("one", 10), True),
    "its deletion": ([(PUT, a_pod(5)), (LOST, a_pod(6))], None, True),
    "a late answer after its deletion": ([(PUT, a_pod(5)), (LOST, a_pod(7)), (PUT, a_pod(6))], None, False),
    "a label lost and put back": ([(PUT, a_pod(5)), (LOST, a_pod(6)), (PUT, a_pod(7))], ("one", 7), True),
    "a deletion for good": ([(PUT, a_pod(5)), (GONE, a_pod(5)), (PUT, a_pod(99))], None, False),
    "a namesake after it": ([(GONE, a_pod(5)), (PUT, a_pod(6, "two"))], ("two", 6), True),
    "the late deletion of a namesake": ([(PUT, a_pod(6, "two")), (LOST, a_pod(7))], ("two", 6), False),
    "a deletion of what was never known": ([(LOST, a_pod(6))], None, False),
    "its creation after its deletion": ([(LOST, a_pod(6)), (PUT, a_pod(5))], None, False),
}


@pytest.mark.parametrize("when", HEARD)
def test_the_store_keeps_the_newest_version(when):
    heard, expected, news = HEARD[when]
    store, said = Store(), None
    for what, obj in heard:
        said = store.put(POD, obj) if what == PUT else store.remove(POD, obj, for_good=what == GONE)
    assert (known(store), said) == (expected, news)


@given(st.permutations(range(1, 7)), st.integers(1, 6))
def test_a_deleted_object_stays_deleted_in_any_order_of_events(order, last):
    store = Store()
    for version in order:
        if version == last:
            store.remove(POD, a_pod(10))
        else:
            store.put(POD, a_pod(version))
    assert known(store) is None


def test_a_confirmed_deletion_is_remembered():
    store = Store()
    store.remove(POD, a_pod(6))
    assert not store.is_buried(a_pod(6))
    store.remove(POD, a_pod(6), for_good=True)
    assert store.is_buried(a_pod(6))
    assert not store.is_buried(a_pod(7, "two"))
    # A watch that says the same later changes nothing.
    store.remove(POD, a_pod(7))
    assert store.is_buried(a_pod(6))


def test_remembered_deletions_are_bounded(monkeypatch):
    monkeypatch.setattr(module, "MAX_BURIED", 3)
    store = Store()
    for number in range(10):
        store.remove(POD, a_pod(5, f"uid-{number}"))
    assert [store.put(POD, a_pod(5, f"uid-{number}", f"pod-{number}")) for number in range(10)] == [True] * 7 + [
        False
    ] * 3


def test_a_list_removes_what_it_has_not_and_what_is_no_newer_than_itself():
    store = Store()
    for obj in (a_pod(5, "a", "a"), a_pod(6, "b", "b"), a_pod(20, "c", "c"), a_pod(7, "x", "x", "team-b")):
        store.put(POD, obj)
    gone = store.keep_only(POD, {"team-a": {"a", "d"}}, "10", "team-a")
    assert [one["metadata"]["name"] for one in gone] == ["b"]
    # c is newer than the list; x is in another namespace.
    assert sorted(one["metadata"]["name"] for one in store.all(POD)) == ["a", "c", "x"]


def test_objects_are_read_by_kind_and_namespace_and_may_change_meanwhile():
    store = Store()
    store.put(POD, a_pod(5))
    store.put(POD, a_pod(5, "two", "demo", "team-b"))
    store.put(NODE, {"metadata": {"name": "demo", "uid": "n", "resourceVersion": "5"}})
    assert len(list(store.all(POD))) == 2
    for obj in store.all(POD, "team-a"):
        store.remove(POD, obj)
    assert [one["metadata"]["namespace"] for one in store.all(POD)] == ["team-b"]
    assert store.get(Ref(NODE, "", "demo"))


NAMED = st.lists(st.tuples(st.booleans(), st.sampled_from(["a", "a-b", "b"]), st.sampled_from(["x", "x-1", "y"])))


@given(NAMED, st.sampled_from(["", "a", "b"]), st.sampled_from(["", "a/x", "a-b/y", "c"]))
def test_names_come_in_order_from_any_of_them_on(steps, namespace, after):
    store, there = Store(in_order=(POD,)), set()
    for version, (comes, place, name) in enumerate(steps):
        meta = {"namespace": place, "name": name, "uid": f"{place}/{name}", "resourceVersion": str(version)}
        (store.put if comes else store.remove)(POD, {"metadata": meta})
        (there.add if comes else there.discard)(f"{place}/{name}")
    wanted = sorted(one for one in there if one > after and namespace in {"", one.partition("/")[0]})
    assert list(store.names(POD, namespace, after)) == wanted


def test_names_are_found_as_they_are_taken():
    store = Store(in_order=(POD,))
    pods = [{"metadata": {"namespace": "a", "name": name, "uid": name, "resourceVersion": "1"}} for name in "bcdef"]
    for one in pods[:4]:
        store.put(POD, one)
    found = store.names(POD)
    assert next(found) == "a/b"
    store.remove(POD, pods[1])
    store.put(POD, pods[4])
    assert list(found) == ["a/d", "a/e", "a/f"]


def test_managed_fields_are_not_kept():
    store = Store()
    obj = a_pod(5)
    obj["metadata"]["managedFields"] = [{"manager": "x"}]
    store.put(POD, obj)
    assert "managedFields" not in store.get(DEMO)["metadata"]
    assert "managedFields" in obj["metadata"]


OWNERS = st.lists(st.sampled_from(["u1", "u2", "u3"]), max_size=2, unique=True)


@given(st.lists(st.tuples(st.booleans(), st.sampled_from(["a", "b", "c"]), OWNERS), max_size=12))
def test_views_say_what_a_look_at_all_objects_would(steps):
    owned, counts = Owned(), Counts(lambda obj: [one["uid"] for one in obj["metadata"].get("ownerReferences") or ()])
    store = Store(views={POD: (owned, counts)})
    for version, (comes, name, owners) in enumerate(steps):
        obj = a_pod(version, name, name)
        obj["metadata"]["ownerReferences"] = [
            {"apiVersion": "v1", "kind": "CodeSandbox", "name": one, "uid": one} for one in owners
        ]
        (store.put if comes else store.remove)(POD, obj)
    there = {
        one["metadata"]["name"]: {each["uid"] for each in one["metadata"].get("ownerReferences") or ()}
        for one in store.all(POD)
    }
    for uid in ("u1", "u2", "u3"):
        names = {name for name, owners in there.items() if uid in owners}
        assert {name for _, name in owned.of(uid)} == names
        assert dict(counts.items()).get(uid, 0) == len(names)

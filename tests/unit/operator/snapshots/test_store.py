import os
from collections.abc import Callable
from functools import partialmethod
from pathlib import Path
from random import Random
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sandfleet_operator.plan.snapshots.collection import QUARANTINE_SECONDS
from sandfleet_operator.plan.snapshots.entries import Entry, Kind, RestoreLimits
from sandfleet_operator.plan.snapshots.errors import Reason, SnapshotError
from sandfleet_operator.plan.snapshots.manifest import About, Retention
from sandfleet_operator.snapshots import base, bundle, collector
from sandfleet_operator.snapshots.backends.directory import DirectoryObjects
from sandfleet_operator.snapshots.cutter import LEAST, MOST, Cutter
from sandfleet_operator.snapshots.keys import SecretKeys, key_file
from sandfleet_operator.snapshots.layout import TenantObjects
from sandfleet_operator.snapshots.store import SnapshotStore, open_store
from support.examples import examples
from support.snapshots import KEYS, ROOT, Clock, MemoryObjects, flat, load, save, store_in_memory, trees
from transition.mutant import Mutant

BIG = {b"%03d" % number: os.urandom(200_000) for number in range(40)}


@given(trees("state"), trees(), st.binary(max_size=100))
@settings(max_examples=examples(60), deadline=None)
def test_a_snapshot_is_read_as_it_was_saved(state: list, workspace: list, facts: bytes) -> None:
    store = store_in_memory()
    manifest = save(store, "team", [*state, *workspace], facts=facts)
    assert load(store, "team", manifest.id, digest=manifest.digest) == [*state, *workspace]
    assert store.reader("team", manifest.id).facts == facts
    assert manifest.totals.entries == len(state) + len(workspace)


def test_a_snapshot_in_a_folder_is_read_by_another_process_with_the_same_keys(tmp_path: Path) -> None:
    tree = flat(BIG)
    with_keys = lambda: open_store(f"file://{tmp_path}/store", key_file(tmp_path / "keys"))  # noqa: E731
    store = with_keys()
    manifest = save(store, "local", tree, name="after-etl", labels={"a": "b"}, parents=("x",), keep=Retention(3, 2.5))
    store.close()
    other = with_keys()
    assert load(other, "local", manifest.id) == tree
    assert other.get("local", manifest.id) == manifest == other.find("local", "after-etl")
    assert [one.id for one in other.list("local")] == [manifest.id]
    other.close()


@given(st.binary(min_size=1, max_size=50), st.integers(0, 60_000), st.lists(st.integers(1, 900_000), max_size=20))
@settings(max_examples=20, deadline=None)
def test_cuts_do_not_depend_on_the_pieces_that_come(seed: bytes, repeat: int, sizes: list[int]) -> None:
    data = seed * repeat + BIG[b"000"] * 10 + BIG[b"001"]

    def cut(pieces: list[bytes]) -> list[bytes]:
        cutter = Cutter(bytes(8))
        return [bytes(chunk) for piece in pieces for chunk in cutter.feed(piece)] + [bytes(c) for c in cutter.end()]

    pieces, start = [], 0
    for size in sizes:
        pieces.append(data[start : start + size])
        start += size
    chunks = cut([*pieces, data[start:]])
    assert chunks == cut([data])
    assert b"".join(chunks) == data
    assert all(LEAST <= len(chunk) <= MOST for chunk in chunks[:-1])


def test_what_an_earlier_snapshot_has_is_not_stored_again_wherever_it_moves() -> None:
    store = store_in_memory()
    first = save(store, "team", flat(BIG))
    moved = flat({b"zz" + name: data for name, data in BIG.items()} | {b"000": b"new"})
    second = save(store, "team", moved)
    assert first.new_bytes > 8_000_000
    assert second.new_bytes < first.new_bytes / 10
    assert load(store, "team", second.id) == moved
    # Of another tenant nothing is known.
    assert save(store, "other", moved).new_bytes > 8_000_000


def test_thousands_of_small_files_are_a_handful_of_objects() -> None:
    objects = MemoryObjects()
    save(store_in_memory(objects), "team", flat({b"%04d" % number: b"%d" % number for number in range(3000)}))
    assert len(objects.held) == 3


def corrupted(objects: MemoryObjects, key: str, change: Callable[[bytes], bytes]) -> MemoryObjects:
    held = dict(objects.held)
    held[key] = change(held[key][0]), 0.0
    return MemoryObjects(held=held)


CHANGES = {
    "a bit": lambda data: data[:-1] + bytes([data[-1] ^ 1]),
    "the first byte": lambda data: bytes([data[0] ^ 1]) + data[1:],
    "the middle": lambda data: data[: len(data) // 2] + bytes([data[len(data) // 2] ^ 1]) + data[len(data) // 2 + 1 :],
    "cut off": lambda data: data[:-1],
    "emptied": lambda data: b"",
    "zeros": lambda data: bytes(len(data)),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_whatever_object_is_changed_no_wrong_byte_is_read(change: Callable[[bytes], bytes]) -> None:
    objects = MemoryObjects()
    tree = flat({b"a": BIG[b"000"], b"b": b"text" * 100})
    manifest = save(store_in_memory(objects), "team", tree, facts=b"facts")
    assert len(objects.held) == 3
    for key in objects.held:
        store = store_in_memory(corrupted(objects, key, change))
        with pytest.raises(SnapshotError) as refused:
            load(store, "team", manifest.id)
        assert refused.value.reason in {Reason.CORRUPT, Reason.FOREIGN}
    assert load(store_in_memory(objects), "team", manifest.id) == tree


def test_a_manifest_of_another_tenant_or_name_is_refused() -> None:
    objects = MemoryObjects()
    store = store_in_memory(objects)
    mine, other = save(store, "mine", flat({b"a": b"mine"})), save(store, "other", flat({b"a": b"other"}))
    for key, found in list(objects.held.items()):
        objects.held[key.replace("other/", "mine/", 1)] = found
    with pytest.raises(SnapshotError) as refused:
        store.get("mine", other.id)
    assert refused.value.reason is Reason.FOREIGN
    objects.held["mine/manifests/renamed"] = objects.held[f"mine/manifests/{mine.id}"]
    with pytest.raises(SnapshotError) as refused:
        store.get("mine", "renamed")
    assert refused.value.reason is Reason.FOREIGN
    # One that cannot be read hides no other.
    assert [one.id for one in store.list("mine")] == [mine.id]


def test_an_exchanged_manifest_is_refused_by_the_digest_that_was_noted() -> None:
    objects = MemoryObjects()
    store = store_in_memory(objects)
    old = save(store, "team", flat({b"a": b"old"}), snapshot_id="same")
    kept = dict(objects.held)
    objects.held.clear()
    new = save(store, "team", flat({b"a": b"new"}), snapshot_id="same")
    objects.held.update(kept)
    assert load(store, "team", "same", digest=old.digest)[1][1] == b"old"
    with pytest.raises(SnapshotError) as refused:
        load(store, "team", "same", digest=new.digest)
    assert refused.value.reason is Reason.CHANGED


def test_old_keys_read_and_the_current_one_writes() -> None:
    objects, tree = MemoryObjects(), flat({b"a": b"x" * 100_000})
    old = save(store_in_memory(objects), "team", tree)
    both = SecretKeys({**KEYS.secrets, "second": b"s" * 32}, "second")
    new = save(store_in_memory(objects, both, Clock(1_900_000_000.0)), "team", tree)
    assert (old.key, new.key) == ("first", "second")
    assert new.new_bytes > 0
    assert load(store_in_memory(objects, both), "team", old.id) == load(store_in_memory(objects, both), "team", new.id)
    with pytest.raises(SnapshotError) as refused:
        store_in_memory(objects).get("team", new.id)
    assert refused.value.reason is Reason.FOREIGN


@pytest.mark.parametrize(
    ("entries", "data"),
    [
        ([ROOT, Entry("workspace", b"../x", Kind.FILE, size=1)], b"x"),
        ([ROOT, Entry("workspace", b"a", Kind.FILE, size=1)], b"xy"),
        ([ROOT, Entry("workspace", b"a", Kind.FILE, size=2)], b"x"),
    ],
)
def test_a_hostile_save_leaves_nothing(entries: list[Entry], data: bytes) -> None:
    objects = MemoryObjects()
    writer = store_in_memory(objects).writer("team", About())
    with pytest.raises(SnapshotError) as refused:
        writer.add(entries, data)
        writer.commit()
    assert refused.value.reason is Reason.HOSTILE
    writer.abort()
    assert objects.held == {}


@pytest.mark.parametrize("name", ["", "A", "a/b", "..", "a" * 64, "-a", "a\n"])
def test_names_that_could_leave_the_prefix_are_refused(name: str) -> None:
    store = store_in_memory()
    for call in (
        lambda: store.writer(name, About()),
        lambda: store.get(name, "a"),
        lambda: store.get("team", name),
        lambda: store.delete("team", name, now=True),
    ):
        with pytest.raises(SnapshotError) as refused:
            call()
        assert refused.value.reason is Reason.HOSTILE


def test_a_snapshot_that_does_not_fit_is_refused_before_anything_is_given_out() -> None:
    store = store_in_memory()
    manifest = save(store, "team", flat(BIG))
    with pytest.raises(SnapshotError) as refused:
        store.reader("team", manifest.id, limits=RestoreLimits(bytes=1_000_000))
    assert refused.value.reason is Reason.TOO_LARGE


def test_an_id_is_used_once() -> None:
    store = store_in_memory()
    save(store, "team", flat({}), snapshot_id="one")
    with pytest.raises(SnapshotError) as refused:
        store.writer("team", About(), "one")
    assert refused.value.reason is Reason.EXISTS


def test_of_two_saves_with_one_id_one_exists_and_the_other_is_told() -> None:
    objects = MemoryObjects()
    store = store_in_memory(objects)
    first, second = store.writer("team", About(), "one"), store.writer("team", About(), "one")
    for writer, data in ((first, b"first"), (second, b"second")):
        for entry, body in flat({b"a": data}):
            writer.add([entry], body)
    first.commit()
    with pytest.raises(SnapshotError) as refused:
        second.commit()
    assert refused.value.reason is Reason.EXISTS
    second.abort()
    assert load(store, "team", "one")[1][1] == b"first"
    assert store.collect("team").objects == 0


def test_a_deleted_snapshot_is_not_read_and_what_it_alone_needed_is_collected() -> None:
    objects = MemoryObjects()
    store = store_in_memory(objects)
    first = save(store, "team", flat(BIG))
    second = save(store, "team", flat({**BIG, b"new": os.urandom(500_000)}))
    store.delete("team", second.id, now=True)
    store.delete("team", second.id, now=True)
    with pytest.raises(SnapshotError) as refused:
        store.get("team", second.id)
    assert refused.value.reason is Reason.NOT_FOUND
    would = store.collect("team", dry_run=True)
    assert would.objects > 0
    assert would == store.collect("team")
    assert load(store, "team", first.id) == flat(BIG)
    store.delete("team", first.id, now=True)
    store.collect("team")
    assert objects.held == {}


def test_snapshots_that_their_retention_does_not_keep_are_deleted() -> None:
    clock = Clock()
    store = store_in_memory(clock=clock)
    keep = Retention(count=2)
    series = [save(store, "team", flat({}), session="s", reason="automatic", keep=keep) for _ in range(3)]
    other = save(store, "team", flat({}), session="s", reason="manual", keep=Retention(days=1))
    save(store, "team", flat({}), session="s", reason="suspend")
    assert store.retain("team") == (series[0].id,)
    clock.seconds += 86_401
    assert store.retain("team") == (other.id,)


def test_an_exported_file_is_imported_elsewhere_and_believed_nothing(tmp_path: Path) -> None:
    path, tree = tmp_path / "session.sandfleet", flat(BIG)
    here, there = store_in_memory(), store_in_memory(keys=SecretKeys({"other": b"o" * 32}, "other"))
    manifest = save(here, "team", tree, facts=b"facts", name="n", labels={"a": "b"}, contract="reviewed", session="s")
    here.export("team", manifest.id, path)
    with pytest.raises(SnapshotError) as refused:
        here.export("team", manifest.id, path)
    assert refused.value.reason is Reason.EXISTS
    asked = bundle.requested(path)
    assert (asked["contract"], asked["session"]) == ("reviewed", "s")
    imported = there.import_file("else", path, bundle.imported(asked, name="n", template="python", contract="reviewed"))
    assert load(there, "else", imported.id) == tree
    assert there.reader("else", imported.id).facts == b"facts"
    about = imported.about
    assert (about.name, about.labels, about.session, about.reason) == ("n", {"a": "b"}, "", "import")
    assert about.received == ("untrusted",)


@pytest.mark.parametrize("place", [0, 10, 28, 1000, 400_000, -1])
def test_a_changed_or_cut_file_is_refused_and_leaves_nothing(tmp_path: Path, place: int) -> None:
    store = store_in_memory()
    path = tmp_path / "file"
    store.export("team", save(store, "team", flat({b"a": os.urandom(500_000)})).id, path)
    data = path.read_bytes()
    place %= len(data)
    for bad in (data[:place] + bytes([data[place] ^ 0x10]) + data[place + 1 :], data[:place], data + b"x"):
        path.write_bytes(bad)
        objects = MemoryObjects()
        with pytest.raises(SnapshotError) as refused:
            store_in_memory(objects).import_file("team", path, About())
        assert refused.value.reason is Reason.HOSTILE
        assert objects.held == {}


def test_a_file_of_keys_is_made_once_and_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "deep/keys"
    first = key_file(path)
    assert key_file(path).secrets == first.secrets
    assert path.stat().st_mode & 0o777 == 0o600
    path.write_text("{}")
    with pytest.raises(SnapshotError):
        key_file(path)


def test_real_threads_save_the_same(tmp_path: Path) -> None:
    store = SnapshotStore(DirectoryObjects(tmp_path), KEYS)
    manifest = save(store, "team", flat(BIG))
    assert load(store, "team", manifest.id) == flat(BIG)
    store.close()


@pytest.mark.process
@pytest.mark.parametrize("url", ["", "file://host/x", "file:x", "http://a/b", "s3:///b", "s3://bucket?color=red"])
def test_urls_that_name_no_store_are_refused(url: str) -> None:
    with pytest.raises(SnapshotError) as refused:
        open_store(url, KEYS)
    assert refused.value.reason is Reason.HOSTILE


@pytest.mark.parametrize("reason", [Reason.FULL, Reason.UNAVAILABLE])
def test_whichever_operation_fails_the_snapshot_is_whole_or_nothing_of_it_is_left(reason: Reason) -> None:
    tree, count = flat({b"a": BIG[b"000"]}), 0

    def at(number: int, seen: list[str]) -> Callable[[str, str], None]:
        def before(operation: str, key: str) -> None:
            seen.append(key)
            if len(seen) == number:
                raise SnapshotError(reason, "cannot: a test says so")

        return before

    while True:
        count += 1
        seen: list[str] = []
        objects = MemoryObjects(before=at(count, seen))
        try:
            manifest = save(store_in_memory(objects), "team", tree)
        except SnapshotError as error:
            assert error.reason is reason
            healed = store_in_memory(MemoryObjects(held=objects.held))
            with patch.multiple(collector, FENCE_SECONDS=-1.0, FENCED_SECONDS=-1.0):
                healed.collect("team")
            found = [load(healed, "team", one.id) for one in healed.list("team")]
            assert found == [tree] or (found, objects.held) == ([], {})
        else:
            assert load(store_in_memory(MemoryObjects(held=objects.held)), "team", manifest.id) == tree
        if len(seen) < count:
            break
    assert count > 8


SIZES = st.sampled_from([0, 10, 70_000, 300_000, 1_200_000])


@pytest.mark.slow
@given(
    st.lists(st.tuples(SIZES, st.sampled_from(["same", "changed", "gone", "new"])), max_size=14), st.integers(0, 1000)
)
@settings(max_examples=examples(25), deadline=None)
def test_data_that_have_not_changed_are_taken_over_and_are_the_same_when_they_are_read(
    files: list[tuple[int, str]], seed: int
) -> None:
    chance = Random(seed)
    store = store_in_memory()
    before, after, known = {}, {}, set()
    for number, (size, fate) in enumerate(files):
        name, data = b"%03d" % number, chance.randbytes(size)
        if fate != "new":
            before[name] = data
        if fate != "gone":
            after[name] = chance.randbytes(size) if fate == "changed" else data
        if fate == "same" and size:
            known.add(name)
    first = save(store, "team", flat(before), facts=b"first")
    with patch.object(base, "LEAST_RUN", chance.choice([1, 400_000, 1 << 40])):
        writer = store.writer("team", About(), base=first.id)
        assert writer.base_facts == b"first"
        for entry, data in flat(after):
            same = entry.path in known
            writer.add([entry], b"" if same else data, known={0} if same else set())
        second = writer.commit()
    assert load(store, "team", second.id) == flat(after)
    # It stands alone.
    store.delete("team", first.id, now=True)
    store.collect("team")
    assert load(store, "team", second.id) == flat(after)


def test_a_change_in_much_data_stores_little_and_reads_little() -> None:
    objects = MemoryObjects()
    store = store_in_memory(objects)
    first = save(store, "team", flat(BIG))
    read: list[str] = []
    objects.before = lambda operation, key: read.append(key) if operation == "get" and "/packs/" in key else None
    writer = store.writer("team", About(), base=first.id)
    for entry, data in flat(BIG | {b"020": b"new"}):
        same = entry.path not in {b"", b"020"}
        writer.add([entry], b"" if same else data, known={0} if same else set())
    writer.commit()
    # Tables, entries and facts, and the chunks in which the change begins and ends.
    assert len(read) < 16
    assert writer.progress.new_bytes < first.new_bytes / 5


def known(*entries: tuple[Entry, bytes]) -> SnapshotError:
    """Why a save is refused that says of all these files that they are as they were."""
    store = store_in_memory()
    first = save(store, "team", flat({b"a": b"one", b"c": b"three"}))
    writer = store.writer("team", About(), base=first.id)
    with pytest.raises(SnapshotError) as refused:
        writer.add([entry for entry, _ in entries], known=frozenset(range(1, len(entries))))
    writer.abort()
    return refused.value


@pytest.mark.parametrize(
    "files",
    [{b"a": b"longer"}, {b"b": b"two"}, {b"a": b"one", b"z": b"three"}],
    ids=["of another size", "of another name", "behind the last"],
)
def test_an_executor_cannot_name_data_that_the_base_does_not_have(files: dict[bytes, bytes]) -> None:
    assert known(*flat(files)).reason is Reason.HOSTILE


def test_without_a_base_nothing_is_as_it_was() -> None:
    store = store_in_memory()
    first = save(store, "team", flat({b"a": b"one"}))
    store.delete("team", first.id, now=True)
    for base_id in ("", first.id, "none"):
        writer = store.writer("team", About(), base=base_id)
        assert writer.base_facts is None
        with pytest.raises(SnapshotError):
            writer.add([entry for entry, _ in flat({b"a": b"one"})], known={1})
        writer.abort()


def reason_of(call: Callable[[], object]) -> Reason:
    with pytest.raises(SnapshotError) as refused:
        call()
    return refused.value.reason


def test_a_deleted_snapshot_is_taken_back_for_thirty_days_and_goes_then() -> None:
    clock = Clock()
    objects = MemoryObjects(lambda: clock.seconds)
    store = store_in_memory(objects, clock=clock)
    one, other = save(store, "team", flat(BIG)), save(store, "team", flat({b"a": os.urandom(70_000)}), name="other")
    for made in (one, other):
        assert store.delete("team", made.id)
    assert not store.delete("team", one.id)
    clock.seconds += QUARANTINE_SECONDS - 1
    # A second deletion does not begin the time anew.
    assert not store.delete("team", one.id)
    assert store.collect("team").snapshots == 0
    assert list(store.list("team")) == []
    assert {made.id for made in store.deleted("team")} == {one.id, other.id}
    assert reason_of(lambda: store.undelete("team", one.id, by="orphans")) is Reason.NOT_FOUND
    assert store.undelete("team", one.id).id == one.id
    assert load(store, "team", one.id) == flat(BIG)
    clock.seconds += 2
    assert reason_of(lambda: store.undelete("team", other.id)) is Reason.NOT_FOUND
    # Nothing is removed that could still be taken back by the clock of another.
    assert store.collect("team").snapshots == 0
    clock.seconds += 86_400
    assert store.collect("team").snapshots == 1
    assert load(store, "team", one.id) == flat(BIG)


def test_what_is_deleted_for_good_is_not_taken_back_and_goes_at_once() -> None:
    clock = Clock()
    objects = MemoryObjects(lambda: clock.seconds)
    store = store_in_memory(objects, clock=clock)
    made, kept = save(store, "team", flat(BIG)), save(store, "team", flat(BIG))
    store.delete("team", kept.id)
    store.delete("team", made.id, now=True)
    assert reason_of(lambda: store.undelete("team", made.id)) is Reason.NOT_FOUND
    assert [one.id for one in store.deleted("team")] == [kept.id]
    store.delete("team", kept.id, now=True)
    assert store.collect("team").snapshots == 2
    assert objects.held == {}


def test_clusters_and_namespaces_of_one_name_have_nothing_in_common_on_one_store() -> None:
    store = store_in_memory()
    places = ("c-1/u-1/team", "c-2/u-1/team", "c-1/u-2/team")
    made = save(store, places[0], flat(BIG))
    for place in places[1:]:
        assert list(store.list(place)) == []
        assert not store.delete(place, made.id, now=True)
        store.collect(place)
    assert load(store, places[0], made.id) == flat(BIG)


def test_a_store_is_that_of_one_cluster() -> None:
    objects = MemoryObjects()
    store_in_memory(objects).own("c-1")
    store_in_memory(objects).own("c-1")
    with pytest.raises(SnapshotError, match="that of cluster c-1, and this is c-2") as refused:
        store_in_memory(objects).own("c-2")
    assert refused.value.reason is Reason.DENIED


def _by_name_alone(self: TenantObjects) -> None:
    object.__setattr__(self, "place", self.place.rpartition("/")[2])


MUTANTS: tuple[Mutant[Callable[[], None]], ...] = (
    Mutant("42.10", test_a_store_is_that_of_one_cluster, ((SnapshotStore, "own", lambda *_: None),)),
    Mutant(
        "42.10",
        test_clusters_and_namespaces_of_one_name_have_nothing_in_common_on_one_store,
        ((TenantObjects, "__post_init__", _by_name_alone),),
    ),
    Mutant(
        "42.10",
        test_a_deleted_snapshot_is_taken_back_for_thirty_days_and_goes_then,
        ((SnapshotStore, "delete", partialmethod(SnapshotStore.delete, now=True)),),
    ),
)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda one: one.finder.__name__)
def test_the_defect_is_found_without_its_mend(mutant: Mutant[Callable[[], None]]) -> None:
    with mutant.applied(), pytest.raises((AssertionError, SnapshotError, pytest.fail.Exception)):
        mutant.finder()

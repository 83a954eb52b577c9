"""The journal on the disk: its end after a kill, a full disk, room, and the journals of earlier pods."""

import asyncio
import errno
import os
from itertools import pairwise

import pytest
from sandfleet_executor.core.journal import records, segments
from sandfleet_executor.effects.executions.store.files import Folder
from sandfleet_executor.effects.journal.journal import BEHIND_SECONDS, AheadOfJournalError, Journal, NoJournalError

OPENED = []


@pytest.fixture(autouse=True)
def _closing():
    """A journal is open until its process ends; a test opens thousands."""
    yield
    while OPENED:
        journal, folder = OPENED.pop()
        folder.close()
        if journal._file:
            journal._file.close()


def opened(path, pod="pod"):
    folder = Folder(str(path))
    journal = Journal(folder, pod, lambda: 1000.0)
    OPENED.append((journal, folder))
    journal.begin(lambda: {"session": "s"})
    return journal


def read(journal, first=0, pod=""):
    return [records.read(line) for part in journal.read(first, pod) for line in part.splitlines()]


def kinds(journal):
    return [record.kind for record in read(journal)]


def test_it_goes_on_after_its_process(tmp_path):
    first = opened(tmp_path)
    first.put("a", {"x": 1})
    second = opened(tmp_path)
    assert second.head == first.head
    second.put("b", {})
    found = read(second)
    assert [record.kind for record in found] == ["opened", "a", "opened", "b"]
    assert found[2].body["restarted"] is True


@pytest.mark.parametrize("left", [1, 20, 60])
def test_a_line_that_was_cut_off_is_removed_and_told(tmp_path, left):
    first = opened(tmp_path)
    first.put("a", {"x": 1})
    head = first.head
    line, _ = records.follow(head, "b", {"y": "z" * 100}, 1.0)
    with (tmp_path / "1-1").open("ab") as file:
        file.write(line[:left])
    second = opened(tmp_path)
    assert second.head == head
    second.put("c", {})
    found = read(second)
    assert [record.kind for record in found] == ["opened", "a", "opened", "repaired", "c"]
    assert found[3].body == {"bytes": left, "sha256": records.hash_of(line[:left])}


@pytest.mark.slow
def test_cut_at_any_byte_it_goes_on_behind_the_last_whole_record(tmp_path):
    journal = opened(tmp_path)
    for number in range(8):
        journal.put("a", {"x": number})
    data = (tmp_path / "1-1").read_bytes()
    ends = [at + 1 for at, byte in enumerate(data) if byte == 0x0A]
    whole = dict(zip(ends, (record.head for record in read(journal)), strict=True))
    for size in range(ends[0], len(data) + 1):
        (tmp_path / "1-1").write_bytes(data[:size])
        later = opened(tmp_path)
        assert later.head == whole[max(end for end in ends if end <= size)]
        later.put("b", {})
        found = read(later)
        assert [record.kind for record in found[-3:] if record.kind == "repaired"] == ["repaired"] * (size not in whole)
        assert all(records.follows(later, one.head) for one, later in pairwise(found))


async def test_a_record_behind_a_result_is_written_before_the_next_one_and_before_the_head_is_told(tmp_path):
    journal, made = opened(tmp_path), []

    def body():
        made.append(len(made))
        return {"made": made[-1]}

    journal.put_behind("a", body)
    assert not made
    await journal.settled()
    assert kinds(journal) == ["opened", "a"]
    journal.put_behind("b", body)
    journal.put("c", {})
    assert kinds(journal)[2:] == ["b", "c"]
    # Without either it does not wait for long.
    journal.put_behind("d", body)
    async with asyncio.timeout(60):
        while len(made) < 3:
            await asyncio.sleep(BEHIND_SECONDS)
    assert kinds(journal)[-1] == "d"


def test_executions_that_were_shown_and_have_no_record_are_found(tmp_path):
    assert opened(tmp_path).unmentioned(["first"]) == []
    journal = opened(tmp_path)
    journal.put("execution", {"id": "one"})
    journal.put("execution", {"id": "two", "code": '"id":"three"'})
    later = opened(tmp_path)
    assert later.unmentioned(["one", "two", "three"]) == ["three"]


def test_a_record_that_does_not_follow_begins_another_journal(tmp_path):
    first = opened(tmp_path)
    first.put("a", {"x": 1})
    data = (tmp_path / "1-1").read_bytes()
    (tmp_path / "1-1").write_bytes(data.replace(b'"x":1', b'"x":2') + data.splitlines(keepends=True)[1])
    second = opened(tmp_path)
    second.put("c", {})
    earlier = read(second)[0].body["earlier"]
    assert earlier["damaged"] is True
    assert earlier["n"] == 2


def test_another_pod_begins_a_journal_that_names_the_old_head(tmp_path):
    first = opened(tmp_path)
    first.open("session")
    first.put("a", {})
    second = opened(tmp_path, "other")
    second.put("b", {})
    assert read(second)[0].body["earlier"] == {
        "pod": "pod",
        "session": "session",
        "n": first.head.number,
        "hash": first.head.hash,
    }
    assert [record.kind for record in read(second, pod="pod")] == ["opened", "a"]
    assert second.status("pod").head == first.head
    with pytest.raises(NoJournalError):
        second.status("third")


def test_a_full_disk_leaves_a_gap_that_is_told(tmp_path, monkeypatch):
    journal = opened(tmp_path)
    journal.put("a", {})
    head, write = journal.head, os.pwrite

    def full(fd, data, offset):
        write(fd, bytes(data)[:7], offset)
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(os, "pwrite", full)
    journal.put("b", {})
    journal.put("c", {})
    assert journal.head == head
    status = journal.status()
    assert (status.missed, status.reason) == (2, "DiskFull")
    assert kinds(journal) == ["opened", "a"]
    monkeypatch.setattr(os, "pwrite", write)
    journal.put("d", {})
    assert kinds(journal) == ["opened", "a", "gap", "d"]
    assert read(journal)[2].body == {"missed": 2, "reason": "DiskFull", "since": 1000.0}
    assert journal.status().missed == 0
    assert opened(tmp_path).head == journal.head


def test_the_oldest_go_as_whole_files_and_leave_their_anchor(tmp_path, monkeypatch):
    monkeypatch.setattr(segments, "SEGMENT_BYTES", 2000)
    monkeypatch.setattr(segments.surplus, "__defaults__", (6000,))
    journal = opened(tmp_path)
    for number in range(100):
        journal.put("a", {"number": number})
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 9000
    found = read(journal)
    assert journal.anchor.number == found[0].head.number - 1 > 0
    assert journal.anchor.hash == found[0].prev
    assert found[-1].head == journal.head
    assert all(records.follows(later, one.head) for one, later in pairwise(found))
    assert [each.head.number for each in read(journal, 90)] == list(range(90, 102))
    again = opened(tmp_path)
    assert (again.head, again.anchor) == (journal.head, journal.anchor)


def test_no_number_is_there_before_its_record(tmp_path):
    journal = opened(tmp_path)
    assert read(journal) == []
    journal.put("a", {})
    with pytest.raises(AheadOfJournalError):
        journal.read(journal.head.number + 2)


def test_records_keep_the_order_in_which_their_places_were_taken(tmp_path):
    journal = opened(tmp_path)
    place = journal.promise("first")
    journal.put("second", {})
    assert kinds(journal) == []
    journal.keep(place, {})
    assert kinds(journal) == ["opened", "first", "second"]


def test_where_nothing_can_be_written_all_is_missed():
    journal = Journal(None, "pod", lambda: 1.0)
    journal.begin(dict)
    journal.put("a", {})
    assert journal.status().missed == 2
    assert journal.status().reason == "NoStore"

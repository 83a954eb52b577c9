"""What the store of snapshots needs of the place of its objects, alike on all of them.

Known differences, which the store does not depend on:

- of conditional writes at the same instant several may win on versitygw and moto, which look and write in two steps;
- on versitygw, in folders of a file system, a key cannot be an object and the beginning of another one at once;
- `modified` of a listing has whole seconds on S3;
- S3 servers may answer a conditional write with 409 while another one is under way, which counts as Unavailable.
"""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from sandfleet_operator.plan.snapshots.errors import Reason, SnapshotError
from sandfleet_operator.snapshots.backends import Objects
from sandfleet_operator.snapshots.backends.s3 import S3Objects


def reason(call: Callable[[], object]) -> Reason:
    with pytest.raises(SnapshotError) as refused:
        call()
    return refused.value.reason


def test_what_was_written_is_read_whole_and_in_ranges(objects: Objects) -> None:
    data = os.urandom(9 << 20)
    objects.put("t/packs/r/1", data)
    assert objects.get("t/packs/r/1") == data
    assert objects.get("t/packs/r/1", 5, 10) == data[5:15]
    assert objects.get("t/packs/r/1", 9 << 19) == data[9 << 19 :]
    assert objects.get("t/packs/r/1", len(data) - 3, 100) == data[-3:]
    assert objects.get("t/packs/r/1", len(data) + 3, 100) == b""
    objects.put("t/packs/r/1", b"")
    assert objects.get("t/packs/r/1") == b""
    assert reason(lambda: objects.get("t/packs/r/2")) is Reason.NOT_FOUND
    assert reason(lambda: objects.get("t/none/r/2", 3, 4)) is Reason.NOT_FOUND


def test_a_conditional_write_happens_once(objects: Objects) -> None:
    objects.put("t/manifests/a", b"first", new=True)
    assert reason(lambda: objects.put("t/manifests/a", b"second", new=True)) is Reason.EXISTS
    assert objects.get("t/manifests/a") == b"first"
    objects.put("t/manifests/a", b"third")
    objects.delete(["t/manifests/a"])
    objects.put("t/manifests/a", b"fourth", new=True)
    assert objects.get("t/manifests/a") == b"fourth"


def test_of_many_conditional_writes_at_once_one_wins(objects: Objects) -> None:
    def write(number: int) -> bool:
        try:
            objects.put("t/round", b"%d" % number, new=True)
        except SnapshotError as error:
            assert error.reason in {Reason.EXISTS, Reason.UNAVAILABLE}
            return False
        return True

    with ThreadPoolExecutor(8) as threads:
        won = [number for number, wrote in enumerate(threads.map(write, range(8))) if wrote]
    assert objects.get("t/round") in [b"%d" % number for number in won]
    if not isinstance(objects, S3Objects):
        assert len(won) == 1


def test_a_listing_has_all_that_begin_so_in_order_and_nothing_else(objects: Objects) -> None:
    keys = [f"t/packs/{run}/{number:08d}" for run in ("a-1", "a", "b") for number in range(3)]
    for size, key in enumerate([*keys, "t/manifests/a", "t2/packs/a/00000000"]):
        objects.put(key, bytes(size))
    assert [found.key for found in objects.list("t/packs/")] == sorted(keys)
    assert [found.key for found in objects.list("t/packs/a/")] == [key for key in keys if "/a/" in key]
    assert {found.key: found.size for found in objects.list("t/packs/")} == {key: n for n, key in enumerate(keys)}
    assert list(objects.list("t/none/")) == []
    assert list(objects.list("t/manifests/a/")) == []


def test_what_is_deleted_is_gone_and_what_is_not_there_is_no_error(objects: Objects) -> None:
    for number in range(5):
        objects.put(f"t/packs/r/{number}", b"x")
    objects.delete([f"t/packs/r/{number}" for number in range(4)] + ["t/packs/r/77", "t/no/such"])
    assert [found.key for found in objects.list("t/packs/")] == ["t/packs/r/4"]
    objects.delete(["t/packs/r/4"])
    assert list(objects.list("t/")) == []
    objects.put("t/packs/r/4", b"again")
    assert objects.get("t/packs/r/4") == b"again"

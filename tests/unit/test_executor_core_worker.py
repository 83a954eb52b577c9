"""What the worker decides: frames on a socket, which process tree has to go, and what a tree is."""

import os
import signal
import socket
import subprocess
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sandfleet_executor.worker import frames, guard, tree
from sandfleet_executor.worker.frames import Frame, FrameError
from sandfleet_executor.worker.tree import Process, Tree

MIB = 1 << 20
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@pytest.fixture
def pair():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


# Frames


@given(header=st.dictionaries(st.text(max_size=10), JSON, max_size=5), payload=st.binary(max_size=300))
def test_a_frame_comes_as_it_was_sent(header, payload):
    ours, theirs = socket.socketpair()
    with ours, theirs:
        frames.send(ours, header, payload)
        assert frames.receive(theirs) == Frame(header, payload)


@given(data=st.binary(max_size=200))
def test_any_bytes_are_a_frame_an_end_or_a_frame_error(data):
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.sendall(data)
        ours.close()
        try:
            frame = frames.receive(theirs)
        except FrameError:
            return
        assert frame is None or isinstance(frame.header, dict)


@given(text=st.binary(max_size=60))
def test_any_header_is_an_object_or_a_frame_error(text):
    try:
        assert isinstance(frames.decode_header(text), dict)
    except FrameError as error:
        assert str(error).startswith("cannot read a frame")


def test_lone_surrogates_come_through(pair):
    ours, theirs = pair
    frames.send(ours, {"a": "\ud800"})
    assert frames.receive(theirs).header == {"a": "\ud800"}


def test_a_frame_in_pieces_is_put_together(pair):
    ours, theirs = pair
    data = frames.encode({"a": 1}, b"x" * 100)

    def drip():
        for byte in data:
            ours.send(bytes([byte]))

    sender = threading.Thread(target=drip)
    sender.start()
    assert frames.receive(theirs) == Frame({"a": 1}, b"x" * 100)
    sender.join()


def test_the_prefix_may_have_been_begun_elsewhere(pair):
    ours, theirs = pair
    frames.send(ours, {"a": 1}, b"x")
    begun = theirs.recv(3)
    assert frames.receive_after(theirs, begun) == Frame({"a": 1}, b"x")


@pytest.mark.parametrize("cut", [0, 1, 7, 8, 10])
def test_a_stream_that_ends_in_a_frame_has_ended(pair, cut):
    ours, theirs = pair
    ours.sendall(frames.encode({"a": 1}, b"xyz")[:cut])
    ours.close()
    assert frames.receive(theirs) is None


@pytest.mark.parametrize(
    "sizes", [(frames.MAX_HEADER_BYTES + 1, 0), (0, frames.MAX_PAYLOAD_BYTES + 1), (2**32 - 1, 2**32 - 1)]
)
def test_a_size_above_the_limit_is_refused_before_anything_is_read(pair, sizes):
    ours, theirs = pair
    ours.sendall(frames.PREFIX.pack(*sizes))
    with pytest.raises(FrameError, match="the limit is"):
        frames.receive(theirs)


def test_what_is_too_large_is_not_sent():
    frames.encode({}, bytes(frames.MAX_PAYLOAD_BYTES))
    with pytest.raises(FrameError):
        frames.encode({}, bytes(frames.MAX_PAYLOAD_BYTES + 1))
    with pytest.raises(FrameError):
        frames.encode({"a": "x" * frames.MAX_HEADER_BYTES})


@pytest.mark.parametrize("text", [b"", b"1", b"[]", b"null", b'"a"', b"{", b"\xff", b"[" * 100_000, b'{"a":' * 100_000])
def test_a_header_that_is_no_object_is_refused(text):
    with pytest.raises(FrameError, match="cannot read a frame"):
        frames.decode_header(text)


# The memory guard


@pytest.mark.parametrize(
    ("rss", "tmp", "limit", "victim"),
    [
        ({}, 10, 5, None),
        ({1: 5}, 0, 5, None),
        ({1: 6}, 0, 5, 1),
        ({1: 3, 2: 2}, 0, 5, None),
        ({1: 3, 2: 3}, 0, 5, 2),
        ({1: 4, 2: 3}, 0, 5, 1),
        ({1: 1, 2: 1}, 4, 5, 2),
        ({1: 2, 2: 1}, 3, 5, 1),
    ],
)
def test_the_largest_tree_has_to_go_when_all_together_are_over_the_limit(rss, tmp, limit, victim):
    trees = {pid: Tree(size, 1, 0.0) for pid, size in rss.items()}
    assert guard.to_end(trees, {}, tmp, limit) == ([] if victim is None else [victim])


@given(
    rss=st.dictionaries(st.integers(2, 99), st.integers(0, 100), max_size=6),
    tmp=st.integers(0, 100),
    limit=st.integers(1, 300),
)
def test_ending_victims_one_by_one_ends_when_the_rest_fits(rss, tmp, limit):
    trees = {pid: Tree(size, 1, 0.0) for pid, size in rss.items()}
    while victims := guard.to_end(trees, {}, tmp, limit):
        (victim,) = victims
        assert trees[victim].rss == max(each.rss for each in trees.values())
        del trees[victim]
    assert not trees or sum(each.rss for each in trees.values()) + tmp <= limit


def test_it_looks_more_often_when_something_runs_and_when_memory_gets_short():
    idle = guard.interval(busy=False, used=0, limit=100)
    busy = guard.interval(busy=True, used=50, limit=100)
    tight = guard.interval(busy=False, used=51, limit=100)
    assert idle > busy > tight > 0


# Process trees


def stat_line(pid=7, name="cat", state="S", parent=1, ticks=(3, 4), pages=5):
    return f"{pid} ({name}) {state} {parent} 7 7 0 -1 4194304 1 2 3 4 {ticks[0]} {ticks[1]} 0 0 20 0 1 0 100 9999 {pages} 1 1".encode()


@pytest.mark.parametrize("name", ["cat", "a b", "a) S 1 (b", ")", "(", "x) Z 99", "\n"])
def test_a_line_of_stat_is_read_whatever_the_program_calls_itself(name):
    assert tree.parse_stat(stat_line(name=name)) == Process(7, 1, "S", 7, 5 * tree.PAGE_BYTES)


def test_this_process_is_found_as_it_is():
    found = tree.scan()[os.getpid()]
    assert (found.parent, found.state) == (os.getppid(), "R")
    assert found.rss > MIB


def processes(*rows):
    return {pid: Process(pid, parent, state, ticks, rss) for pid, parent, state, ticks, rss in rows}


FAMILY = processes(
    (1, 0, "S", 1, 10),
    (2, 1, "S", 2, 20),
    (3, 2, "R", 3, 30),
    (4, 2, "Z", 4, 40),
    (5, 3, "T", 5, 50),
    (6, 1, "S", 6, 60),
)


@pytest.mark.parametrize(("root", "below"), [(1, {2, 3, 4, 5, 6}), (2, {3, 4, 5}), (5, set()), (99, set())])
def test_what_is_below_a_process(root, below):
    assert set(tree.descendants(FAMILY, root)) == below


@pytest.mark.parametrize(
    ("spared", "below"), [({3}, {2, 4, 6}), ({2, 6}, set()), ({5}, {2, 3, 4, 6}), ({1}, {2, 3, 4, 5, 6})]
)
def test_what_is_spared_is_left_out_with_all_that_is_below_it(spared, below):
    assert set(tree.descendants(FAMILY, 1, spared)) == below


def test_a_tree_s_memory_is_that_of_the_living_and_its_time_that_of_all():
    measured = tree.measure(FAMILY, 2)
    assert measured == Tree(rss=100, processes=3, cpu_seconds=14 / tree.TICKS)
    assert tree.measure(FAMILY, 99) == Tree(0, 0, 0.0)


@given(st.lists(st.integers(0, 20), min_size=1, max_size=20))
def test_no_process_is_found_twice_below_another(parents):
    family = {pid: Process(pid, min(parent, pid - 1), "S", 0, 1) for pid, parent in enumerate(parents, start=1)}
    below = tree.descendants(family, 0)
    assert len(below) == len(set(below)) == len(family)


# As gVisor shows a process that has just been reaped: the pid 0 made its parent everybody's, in a circle.
REAPED = processes((1, 0, "S", 1, 10), (2, 1, "S", 1, 10), (0, 2, "X", 1, 0))


@pytest.mark.parametrize(("root", "below"), [(1, {2, 0}), (2, {0, 1}), (0, {1, 2})])
def test_what_goes_in_a_circle_comes_to_an_end(root, below):
    assert set(tree.descendants(REAPED, root)) == below


@pytest.mark.parametrize("gone", [False, True])
def test_a_process_without_a_pid_of_its_own_has_gone(monkeypatch, gone):
    shown = 0 if gone else os.getpid()
    monkeypatch.setattr(os, "read", lambda *_: stat_line(pid=shown))
    assert (tree.look(os.getpid()) is None) == gone


def test_forked_copies_are_counted_with_their_share():
    heap = bytearray(os.urandom(1)) * (64 * MIB)
    reader, writer = os.pipe()
    children = []
    for _ in range(4):
        pid = os.fork()
        if pid == 0:
            os.close(writer)
            os.read(reader, 1)
            os._exit(0)
        children.append(pid)
    try:
        scanned = tree.scan()
        own = {pid: scanned[pid] for pid in (os.getpid(), *children)}
        summed = sum(each.rss for each in own.values())
        shared = sum(each.rss for each in tree.proportional(own).values())
        # Five times the heap without sharing.
        assert summed > 5 * len(heap)
        assert shared < summed - 3 * len(heap)
    finally:
        os.close(writer)
        os.close(reader)
        for pid in children:
            os.waitpid(pid, 0)


def test_a_process_that_ended_since_it_was_seen_counts_nothing():
    gone = Process(2**22 + 1, 1, "S", 0, 123)
    assert tree.proportional({gone.pid: gone}) == {gone.pid: gone._replace(rss=0)}


def test_a_living_process_that_the_kernel_tells_nothing_of_counts_whole(monkeypatch):
    def refuse(path, *arguments, **options):
        if path.endswith("smaps_rollup"):
            raise PermissionError
        return real(path, *arguments, **options)

    real = os.open
    monkeypatch.setattr(tree.os, "open", refuse)
    own = Process(os.getpid(), 1, "S", 0, 123)
    assert tree.proportional({own.pid: own}) == {own.pid: own}


def wait_for(condition):
    for _ in range(6000):
        if value := condition():
            return value
        time.sleep(0.01)
    raise AssertionError("it never came")


def test_killing_a_tree_ends_all_of_it_stopped_ones_too():
    line = "sleep 1000 & sleep 1000 & kill -STOP $!; (setsid sleep 1000; :) & echo up; wait"
    root = subprocess.Popen(["bash", "-c", line], stdout=subprocess.PIPE)
    root.stdout.readline()
    below = wait_for(lambda: found if len(found := tree.descendants(tree.scan(), root.pid)) >= 4 else None)
    assert tree.kill_tree(root.pid) == 4
    assert root.wait() == -signal.SIGKILL
    root.stdout.close()
    wait_for(lambda: not any(pid in (left := tree.scan()) and left[pid].state != "Z" for pid in below))


def test_the_root_can_be_spared():
    root = subprocess.Popen(["bash", "-c", "sleep 1000 & echo up; wait; exit 7"], stdout=subprocess.PIPE)
    root.stdout.readline()
    wait_for(lambda: tree.descendants(tree.scan(), root.pid))
    assert tree.kill_tree(root.pid, include_root=False) == 1
    assert root.wait() == 7
    root.stdout.close()


def test_many_trees_are_ended_at_the_price_of_one(monkeypatch):
    roots = [subprocess.Popen(["bash", "-c", "sleep 1000 & wait"]) for _ in range(8)]
    pids = [root.pid for root in roots]
    below = wait_for(lambda: found if len(found := tree.below(tree.scan(), pids)) == 8 else None)
    looks, real = [], tree.scan
    monkeypatch.setattr(tree, "scan", lambda: looks.append(1) or real())
    assert tree.kill_trees(pids, spared=[below[0]]) == 7
    assert len(looks) < 8
    assert {root.wait() for root in roots} == {-signal.SIGKILL}
    found = real()
    assert below[0] in found
    tree.send_signal(below[:1], signal.SIGKILL)


def test_a_signal_to_a_process_that_is_gone_is_no_error():
    child = subprocess.Popen(["true"])
    child.wait()
    tree.send_signal([child.pid], signal.SIGTERM)

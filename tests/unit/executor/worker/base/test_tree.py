"""Process trees: what they are, what they use, and how they are killed."""

import os
import signal
import subprocess
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sandfleet_executor.worker.base import tree
from sandfleet_executor.worker.base.tree import Process, Tree

MIB = 1 << 20


def stat_line(pid=7, name="cat", state="S", parent=1, ticks=(3, 4), pages=5):
    return f"{pid} ({name}) {state} {parent} 7 7 0 -1 4194304 1 2 3 4 {ticks[0]} {ticks[1]} 0 0 20 0 1 0 100 9999 {pages} 1 1".encode()


@pytest.mark.parametrize("name", ["cat", "a b", "a) S 1 (b", ")", "(", "x) Z 99", "\n"])
def test_a_line_of_stat_is_parsed_for_any_program_name(name):
    assert tree.parse_stat(stat_line(name=name)) == Process(7, 1, "S", 7, 5 * tree.PAGE_BYTES)


def test_this_process_is_found_with_its_parent_state_and_memory():
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
def test_descendants_of_a_process(root, below):
    assert set(tree.descendants(FAMILY, root)) == below


@pytest.mark.parametrize(
    ("spared", "below"), [({3}, {2, 4, 6}), ({2, 6}, set()), ({5}, {2, 3, 4, 6}), ({1}, {2, 3, 4, 5, 6})]
)
def test_spared_processes_are_left_out_with_their_descendants(spared, below):
    assert set(tree.descendants(FAMILY, 1, spared)) == below


def test_memory_counts_living_processes_and_time_counts_all():
    measured = tree.measure(FAMILY, 2)
    assert measured == Tree(rss=100, processes=3, cpu_seconds=14 / tree.TICKS)
    assert tree.measure(FAMILY, 99) == Tree(0, 0, 0.0)


@given(st.lists(st.integers(0, 20), min_size=1, max_size=20))
def test_no_descendant_is_listed_twice(parents):
    family = {pid: Process(pid, min(parent, pid - 1), "S", 0, 1) for pid, parent in enumerate(parents, start=1)}
    below = tree.descendants(family, 0)
    assert len(below) == len(set(below)) == len(family)


# As gVisor shows a process that has just been reaped: the pid 0 made its parent everybody's, in a circle.
REAPED = processes((1, 0, "S", 1, 10), (2, 1, "S", 1, 10), (0, 2, "X", 1, 0))


@pytest.mark.parametrize(("root", "below"), [(1, {2, 0}), (2, {0, 1}), (0, {1, 2})])
def test_a_circle_of_parents_is_walked_once(root, below):
    assert set(tree.descendants(REAPED, root)) == below


@pytest.mark.parametrize("gone", [False, True])
def test_a_process_shown_with_pid_0_has_gone(monkeypatch, gone):
    shown = 0 if gone else os.getpid()
    monkeypatch.setattr(os, "read", lambda *_: stat_line(pid=shown))
    assert (tree.read_process(os.getpid()) is None) == gone


@pytest.mark.process
def test_forks_count_with_their_share_of_shared_memory():
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


def test_a_process_that_has_ended_meanwhile_counts_nothing():
    gone = Process(2**22 + 1, 1, "S", 0, 123)
    assert tree.proportional({gone.pid: gone}) == {gone.pid: gone._replace(rss=0)}


def test_a_process_that_has_given_its_memory_back_but_is_not_seen_as_ended_counts_nothing(monkeypatch):
    monkeypatch.setattr(tree, "_rollup", lambda _: {})
    monkeypatch.setattr(tree, "read_process", lambda pid: Process(pid, 1, "R", 0, 0))
    ending = Process(7, 1, "S", 0, 150 << 20)
    assert tree.proportional({7: ending}) == {7: ending._replace(rss=0)}


def test_a_living_process_without_figures_counts_whole(monkeypatch):
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


@pytest.mark.process
def test_killing_a_tree_kills_stopped_processes_too():
    line = "sleep 1000 & sleep 1000 & kill -STOP $!; (setsid sleep 1000; :) & echo up; wait"
    root = subprocess.Popen(["bash", "-c", line], stdout=subprocess.PIPE)
    root.stdout.readline()
    below = wait_for(lambda: found if len(found := tree.descendants(tree.scan(), root.pid)) >= 4 else None)
    assert tree.kill_tree(root.pid) == 4
    assert root.wait() == -signal.SIGKILL
    root.stdout.close()
    wait_for(lambda: not any(pid in (left := tree.scan()) and left[pid].state != "Z" for pid in below))


@pytest.mark.process
def test_kill_tree_can_spare_the_root():
    root = subprocess.Popen(["bash", "-c", "sleep 1000 & echo up; wait; exit 7"], stdout=subprocess.PIPE)
    root.stdout.readline()
    wait_for(lambda: tree.descendants(tree.scan(), root.pid))
    assert tree.kill_tree(root.pid, include_root=False) == 1
    assert root.wait() == 7
    root.stdout.close()


@pytest.mark.process
def test_many_trees_are_killed_with_few_looks_at_all_processes(monkeypatch):
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


@pytest.mark.process
def test_a_signal_to_an_ended_process_is_no_error():
    child = subprocess.Popen(["true"])
    child.wait()
    tree.send_signal([child.pid], signal.SIGTERM)

"""What a memory cgroup tells, in both versions of its files, and what that means."""

import os

import pytest
from sandfleet_executor.worker.init import hidden, machine, segments

MIB = 1 << 20
HARD = 512 * MIB
# As the kernel's documentation shows them (cgroup-v1/memory, cgroup-v2); bytes.
V1 = "cache {cache}\nrss 1\ntotal_rss {anon}\ntotal_shmem {shmem}\ntotal_inactive_file {cache}\ntotal_active_file 0\n"
V2 = "anon {anon}\nfile {cache}\nshmem {shmem}\ninactive_file {cache}\nactive_file 0\nslab_reclaimable {names}\n"


@pytest.fixture
def cgroup(tmp_path):
    opened = []

    def made(*, version=1, usage, under_oom=0, **stat):
        stat = {"anon": 0, "shmem": 0, "cache": 0, "names": 0} | stat
        files = {"stat": (V1 if version == 1 else V2).format(**stat), "usage": f"{usage}\n"}
        if version == 1:
            files["oom"] = f"oom_kill_disable 1\nunder_oom {under_oom}\noom_kill 0\n"
        for name, text in files.items():
            (tmp_path / name).write_text(text)
        opened.append({name: os.open(tmp_path / name, os.O_RDWR) for name in files})
        return machine.Cgroup(opened[-1], HARD)

    yield made
    for fds in opened:
        for fd in fds.values():
            os.close(fd)


@pytest.mark.parametrize("version", [1, 2])
def test_used_is_what_processes_and_files_in_memory_hold(cgroup, version):
    found = cgroup(version=version, usage=400 * MIB, anon=100 * MIB, shmem=30 * MIB, cache=200 * MIB)
    assert (found.used(), found.held()) == (130 * MIB, 200 * MIB)
    assert (found.over(129 * MIB), found.over(130 * MIB)) == (True, False)


@pytest.mark.parametrize(
    ("state", "over"),
    [
        ({"version": 1, "usage": HARD, "under_oom": 1}, True),
        # Files that were read are given back by the kernel itself.
        ({"version": 1, "usage": HARD, "cache": 300 * MIB}, False),
        ({"version": 1, "usage": HARD, "cache": MIB}, True),
        ({"version": 1, "usage": HARD // 2, "under_oom": 1}, False),
        ({"version": 2, "usage": HARD, "cache": MIB}, True),
        ({"version": 2, "usage": HARD, "names": 300 * MIB}, False),
        ({"version": 2, "usage": HARD // 2}, False),
    ],
)
def test_code_that_waits_for_memory_of_the_kernel_is_over_its_limit(cgroup, state, over):
    assert cgroup(**state).over(256 * MIB) is over


def test_those_who_wait_though_memory_is_free_are_woken(cgroup, tmp_path):
    cgroup(usage=MIB, under_oom=1).over(256 * MIB)
    # Switched on and off again: the kernel wakes them then.
    assert (tmp_path / "oom").read_text().startswith("01")


def test_what_nothing_explains_goes_to_who_has_the_signs():
    found = hidden.Found({}, {7: 3, 9: 1}, [])
    assert hidden.spread(found, 400) == {7: 300, 9: 100}
    assert hidden.spread(hidden.Found({}, {}, []), 400) == {}


def test_segments_are_read_as_the_kernel_lists_them():
    text = b"""       key      shmid perms                  size  cpid  lpid nattch   uid   gid  cuid  cgid      atime      dtime      ctime                   rss                  swap
         0      32769   600              16777216    31    32      0  1000  1000  1000  1000 1700000000 1700000000 1700000000              16777216                     0
"""
    assert segments.parsed(text) == [segments.Segment(32769, 31, 0, 16777216)]


def test_queues_and_semaphores_count_with_what_the_kernel_has_for_each():
    queues = b"key msqid perms cbytes qnum lspid lrpid uid\n0 3 600 10 2 31 0 0\n"
    assert segments.parsed(queues, "msg") == [segments.Segment(3, 31, 0, 10 + 2 * 64, "msg")]
    semaphores = b"key semid perms nsems uid\n0 4 600 32000 0\n"
    assert segments.parsed(semaphores, "sem") == [segments.Segment(4, 0, 0, 32000 * 64, "sem")]


@pytest.mark.parametrize(
    ("kind", "make"),
    [
        ("shm", lambda libc: libc.shmget(segments.IPC_PRIVATE, MIB, 0o600)),
        ("msg", lambda libc: libc.msgget(segments.IPC_PRIVATE, 0o600)),
        ("sem", lambda libc: libc.semget(segments.IPC_PRIVATE, 10, 0o600)),
    ],
)
def test_a_segment_that_was_removed_is_gone(kind, make):
    number = make(segments._libc)
    made = [each for each in segments.listed() if (each.number, each.kind) == (number, kind)]
    assert len(made) == 1
    segments.remove(made)
    assert made[0] not in segments.listed()

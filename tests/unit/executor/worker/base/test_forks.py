"""Forks that go to the process above: whose children they are, and what they can do."""

import json
import subprocess
import sys

import pytest

pytestmark = pytest.mark.process

# The process above, which takes orphans, and below it the one that forks.
ABOVE = """
import json, os, signal, sys, time
from sandfleet_executor.worker.base import forks, linux
linux.become_subreaper()
above = os.getpid()
reading, writing = os.pipe()
def orphaned():
    # The helper is gone in a moment.
    while os.getppid() != above:
        time.sleep(0.001)
    return True
def tell(*values):
    os.write(writing, json.dumps(values).encode() + b"\\n")
def nested(levels, seen):
    def become(number):
        seen.append(number)
        if levels:
            nested(levels - 1, seen)
        else:
            tell("deepest", seen, orphaned())
        os._exit(0)
    return forks.fork_away(1, become)
def deep(calls):
    return deep(calls - 1) + 1 if calls else 0
if os.fork() == 0:
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    CODE
    os._exit(0)
while True:
    try:
        os.wait()
    except ChildProcessError:
        break
os.close(writing)
print(open(reading).read())
"""


def said(code: str) -> list[list[object]]:
    """What the forks of the code told, which runs in a process of its own."""
    lines = code.strip().replace("\n", "\n    ")
    run = subprocess.run(
        [sys.executable, "-c", ABOVE.replace("CODE", lines)], capture_output=True, text=True, timeout=60, check=False
    )
    assert (run.returncode, run.stderr) == (0, "")
    return sorted(json.loads(line) for line in run.stdout.splitlines() if line)


def test_forks_are_children_of_the_process_above_and_not_of_the_one_that_forked():
    code = """
def become(number):
    tell("fork", number, orphaned())
    os._exit(0)
pids = forks.fork_away(3, become)
try:
    os.wait()
except ChildProcessError:
    tell("own", len(set(pids)))
"""
    assert said(code) == [["fork", 0, True], ["fork", 1, True], ["fork", 2, True], ["own", 3]]


def test_a_fork_has_the_memory_of_its_moment_and_the_process_goes_on_with_its_own():
    code = """
value = [1]
def become(number):
    value.append(2)
    tell("fork", value)
    os._exit(0)
forks.fork_away(1, become)
value.append(3)
tell("own", value)
"""
    assert said(code) == [["fork", [1, 2]], ["own", [1, 3]]]


@pytest.mark.parametrize("levels", [1, 2, 5])
def test_a_fork_of_a_fork_stands_on_a_place_of_its_own(levels):
    assert said(f"nested({levels}, [])") == [["deepest", [0] * (levels + 1), True]]


def test_a_fork_has_room_for_deep_calls():
    code = """
def become(number):
    sys.setrecursionlimit(20_000)
    tell("fork", deep(10_000), max(map(len, sorted((str(n) for n in range(1000)), key=lambda text: text))))
    os._exit(0)
forks.fork_away(1, become)
"""
    assert said(code) == [["fork", 10_000, 3]]


def test_hooks_run_where_they_belong():
    code = """
own = os.getpid()
os.register_at_fork(
    before=lambda: tell("before", os.getpid() == own),
    after_in_parent=lambda: tell("parent", os.getpid() == own),
    after_in_child=lambda: tell("child", os.getpid() != own),
)
forks.fork_away(1, lambda number: os._exit(0))
"""
    assert said(code) == [["before", True], ["child", True], ["parent", True]]


def test_without_room_for_a_process_it_says_so_and_the_process_goes_on():
    code = """
import resource
if os.geteuid() == 0:
    os.setuid(65534)
resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
try:
    tell("made", forks.fork_away(2, lambda number: os._exit(0)))
except OSError as error:
    tell("refused", error.errno == 11)
"""
    assert said(code) == [["refused", True]]

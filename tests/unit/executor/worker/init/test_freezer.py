"""All processes of a session stand still for a moment, and go on also without a word."""

import os
import signal
import subprocess
import sys
import time

import pytest
from sandfleet_executor.worker.base import tree
from sandfleet_executor.worker.init.freezer import Freezer

pytestmark = pytest.mark.process

LOOP = "import time\nwhile True: time.sleep(0.001)"
PARENT = f"import subprocess, sys\nsubprocess.Popen([sys.executable, '-c', {LOOP!r}])\n{LOOP}"


@pytest.fixture
def family():
    """A process with a child."""
    process = subprocess.Popen([sys.executable, "-c", PARENT])
    while len(found := members(process.pid)) < 2:
        time.sleep(0.01)
    yield found
    tree.kill_tree(process.pid)
    process.wait()


def members(root):
    return [root, *tree.descendants(tree.scan(), root)]


def states(pids):
    return {tree.read_process(pid).state for pid in pids}


def test_processes_stand_still_and_go_on(family):
    freezer = Freezer()
    assert freezer.freeze(5.0)
    assert states(family) == {"T"}
    assert freezer.due < time.monotonic() + 5.0
    freezer.thaw()
    assert "T" not in states(family)


def test_a_process_that_code_has_stopped_stays_stopped(family):
    os.kill(family[1], signal.SIGSTOP)
    while states(family[1:]) != {"T"}:
        time.sleep(0.01)
    freezer = Freezer()
    assert freezer.freeze(5.0)
    freezer.thaw()
    assert states(family[1:]) == {"T"}
    assert states(family[:1]) != {"T"}

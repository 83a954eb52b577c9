"""One run of driven agents on the real cluster, shared by four processes of which one is killed.

Each cell appends a mark to a file of its workspace, and an answer is the whole file: a cell that ran twice or never
would show. SANDFLEET_DRIVEN says how many tasks and sandboxes there are: "400/50" is the whole figure.
"""

import json
import os
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from contextlib import closing

import pytest
from cluster.harness.layout import REPOSITORY
from cluster.team_bed import team_bed

TASKS, SANDBOXES = map(int, os.environ.get("SANDFLEET_DRIVEN", "24/8").split("/"))
PROCESSES, STEPS = 4, 3

pytestmark = pytest.mark.alone(on="cluster")


@pytest.fixture(scope="module")
def bed(images, kinds, tmp_path_factory):
    """A pool that grows to the number of sandboxes."""
    with team_bed(images, tmp_path_factory.mktemp("bed"), "driven", {"replicas": 2, "maxSize": SANDBOXES}) as made:
        yield made


@pytest.fixture
def load(bed, tmp_path):
    return {
        "fleet": bed.address,
        "namespace": bed.namespace,
        "ca": str(bed.ca),
        "token": str(bed.token),
        "pool": "fast",
        "is_real": True,
        "sessions": -(-SANDBOXES // PROCESSES),
        "tasks": TASKS,
        "steps": STEPS,
        "think": 2.0,
        "lease": 45.0,
        "checkpoint": str(tmp_path / "run.sqlite"),
    }


def driver(load):
    command = [sys.executable, "-m", "support.many_agents", json.dumps(load)]
    return subprocess.Popen(command, cwd=REPOSITORY / "tests", stdout=subprocess.PIPE, text=True)


def of_run(load, question):
    with closing(sqlite3.connect(load["checkpoint"], timeout=30)) as connection:
        return connection.execute(question).fetchall()


def finished(load):
    try:
        return len(of_run(load, "SELECT key FROM tasks WHERE result IS NOT NULL"))
    except sqlite3.OperationalError:  # No process has made it yet.
        return 0


def held(load, pid):
    """Tasks on which this process works in a sandbox."""
    owned = "SELECT key FROM tasks JOIN drivers USING (owner) WHERE pid = ? AND result IS NULL AND sandbox_id != ''"
    with closing(sqlite3.connect(load["checkpoint"], timeout=30)) as connection:
        return {key for (key,) in connection.execute(owned, (pid,))}


@pytest.mark.timeout(3600)
def test_four_processes_share_a_run_and_one_is_killed(bed, load):
    began, most = time.monotonic(), 0
    processes = [driver(load) for _ in range(PROCESSES)]
    victim = processes[0]
    try:
        while finished(load) < TASKS // 4 or not (orphans := held(load, victim.pid)):
            assert all(one.poll() is None for one in processes), "a driver has ended before the kill"
            most = max(most, len(bed.pods("claimed")))
            time.sleep(0.2)
        victim.kill()
        while any(one.poll() is None for one in processes[1:]):
            most = max(most, len(bed.pods("claimed")))
            time.sleep(1.0)
        said = [json.loads(one.communicate()[0]) for one in processes[1:]]
    finally:
        for one in processes:
            one.kill()
    for one in said:
        assert (one["ends"], one["lost"], one["doubled"], one["wrong"]) == ({"answered": TASKS}, 0, 0, [])
    results = {key: json.loads(text) for key, text in of_run(load, "SELECT key, result FROM tasks")}
    assert len(results) == TASKS
    # Each task of the killed process is solved by another one, most in the sandbox in which it was begun.
    assert {results[key]["end"] for key in orphans} == {"answered"}
    attempts = Counter(result["attempts"] for result in results.values())
    bed.fleet.cluster.api.wait("no sandbox to be left", lambda: not bed.pods("claimed"), 180)
    took = time.monotonic() - began
    print(f"{TASKS} tasks in {took:.0f} s, at most {most} sandboxes at once, {len(orphans)} taken over, {attempts=}")
    print(f"processor time of each driver: {[round(one['cpu'], 1) for one in said]} s")

"""What adapters for frameworks rest on: a sandbox that is renewed as long as its object lives, as each of them has."""

import gc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from sandfleet import Fleet, Outcome, Sandbox
from sandfleet._fleets.embedded import Options, Process
from support.client.served import served_fleet

LEASE = 2.0
# A grandchild in a session of its own is out of reach of a signal to the group.
TREE = """
import subprocess
subprocess.Popen(["setsid", "sleep", "4711"])
subprocess.run(["bash", "-c", "sleep 4711 & sleep 4711"])
"""
SLEEPERS = "grep -lsz '^4711' /proc/[0-9]*/cmdline | wc -l"


@pytest.fixture(scope="module")
def served() -> Iterator[Process]:
    with served_fleet(Options(pool_size=1)) as process:
        yield process


@pytest.fixture
def fleet(served: Process) -> Iterator[Fleet]:
    with Fleet.connect(served.address) as connected:
        yield connected


def test_a_forgotten_object_is_renewed_no_more(fleet: Fleet) -> None:
    sandbox = Sandbox.create(fleet=fleet, timeout=LEASE, keep_alive=True)
    first = sandbox.get_info().lease_expires
    # The control: it outlives its lease while the object is there.
    while sandbox.get_info().lease_expires - first < timedelta(seconds=LEASE):
        pass
    sandbox_id = sandbox.sandbox_id
    del sandbox
    gc.collect()
    while sandbox_id in {one.sandbox_id for one in fleet.list()}:
        pass


def test_one_object_serves_many_threads_and_mixes_nothing_up(fleet: Fleet) -> None:
    def use(number: int) -> tuple[str, str | None, str, str]:
        execution = sandbox.run_code(f"count += 1\nprint({number})\n{number} * 2")
        sandbox.files.write(f"file-{number}", str(number))
        run = sandbox.commands.run(f"cat file-{number}")
        return execution.logs.stdout, execution.text, run.stdout, sandbox.files.read(f"file-{number}")

    with Sandbox.create(fleet=fleet, keep_alive=True) as sandbox, ThreadPoolExecutor(16) as threads:
        assert sandbox.run_code("count = 0").ok
        numbers = range(32)
        expected = [(f"{number}\n", str(number * 2), str(number), str(number)) for number in numbers]
        assert list(threads.map(use, numbers)) == expected
        assert sandbox.run_code("count").text == "32"


def test_the_timeout_of_a_command_ends_the_tree(fleet: Fleet) -> None:
    with Sandbox.create(fleet=fleet, keep_alive=True) as sandbox:
        sandbox.files.write("tree.py", TREE)
        # The control: without a timeout, they run.
        handle = sandbox.commands.run("python tree.py", background=True)
        while sandbox.commands.run(SLEEPERS).stdout.strip() != "3":
            pass
        handle.kill()
        assert sandbox.commands.run("python tree.py", timeout=3).outcome is Outcome.TIMEOUT
        assert sandbox.commands.run(SLEEPERS).stdout.strip() == "0"

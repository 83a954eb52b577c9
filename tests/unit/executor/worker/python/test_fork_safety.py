"""Threads that make a fork unsafe."""

import threading

from sandfleet_executor.worker.python import fork_safety


def test_unknown_threads_are_unsafe_up_to_a_number():
    assert fork_safety.unsafe(["IPythonHistorySavingThread", "mine", "also"]) == ["also", "mine"]
    assert len(fork_safety.unsafe([f"t{i}" for i in range(100)])) == fork_safety.MAX_NAMES


def test_threads_of_this_process_are_found():
    done = threading.Event()
    # The first by name: the tests before this one may have left more threads than are named.
    thread = threading.Thread(target=done.wait, name="!seen")
    thread.start()
    try:
        assert "!seen" in fork_safety.unsafe_threads()
    finally:
        done.set()
        thread.join()
    assert "!seen" not in fork_safety.unsafe_threads()

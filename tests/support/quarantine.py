"""Tests that are known to fail now and then, by name, until they are mended.

Only these run again when they fail; any other test fails at once. A test that needed its second chance is listed at the
end of the run. A mend of such a test takes it out of the list.

With SANDFLEET_SECOND_CHANCE in the environment every other test has one more attempt, too: a shared machine that stands
still for a minute fails all tests that run at that moment. The list then says how long this process stood still.
"""

import os
import threading
import time

import pytest
from _pytest.runner import runtestprotocol

# How often a test runs at most.
ATTEMPTS = 3
UNKNOWN = "it fails rarely, under heavy load; the cause is not found yet"
# Name of the test's function → file, and why it fails now and then.
QUARANTINE = {
    "test_background_processes_of_a_cell_live_on_until_the_context_ends": (
        "tests/contract/executor/test_languages.py",
        UNKNOWN,
    ),
    "test_what_an_earlier_session_has_planted_breaks_nothing": (
        "tests/contract/executor/test_packages.py",
        UNKNOWN,
    ),
    "test_a_copy_holds_no_port_taken": (
        "tests/contract/executor/test_rollback.py",
        UNKNOWN,
    ),
    "test_code_that_forbids_forks_costs_its_copies_and_not_its_variables": (
        "tests/contract/executor/test_rollback_attacks.py",
        UNKNOWN,
    ),
    "test_code_that_kills_its_own_copy_has_none": (
        "tests/contract/executor/test_rollback_attacks.py",
        UNKNOWN,
    ),
    "test_a_child_forked_between_two_uses_has_a_loop_of_its_own": (
        "tests/unit/client/sync/test_sync.py",
        UNKNOWN,
    ),
}


class QuarantineWarning(UserWarning):
    """A test has failed, and has run again."""


def reason(nodeid: str) -> str:
    """Why a test is in quarantine; "" for any other test."""
    file, _, rest = nodeid.partition("::")
    path, why = QUARANTINE.get(rest.partition("[")[0], ("", ""))
    return why if path == file else ""


PAUSES = pytest.StashKey["Pauses"]()


class Pauses(threading.Thread):
    """Measures for how long this process did not run although it wanted to, in seconds."""

    EVERY = 0.2

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._longest = 0.0

    def run(self) -> None:
        while True:
            before = time.monotonic()
            time.sleep(self.EVERY)
            self._longest = max(self._longest, time.monotonic() - before - self.EVERY)

    def longest(self) -> float:
        """Since it was asked last."""
        found, self._longest = self._longest, 0.0
        return found


def pytest_configure(config: pytest.Config) -> None:
    """Begin to measure, where every test has a second chance."""
    if os.environ.get("SANDFLEET_SECOND_CHANCE"):
        config.stash[PAUSES] = pauses = Pauses()
        pauses.start()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Run a test in quarantine until it passes, a few times at most."""
    why, attempts = reason(item.nodeid), ATTEMPTS
    pauses = item.config.stash.get(PAUSES, None)
    if not why and pauses:
        why, attempts = "second chance", 2
    if not why:
        return None
    if pauses:
        pauses.longest()
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    reports = runtestprotocol(item, nextitem=nextitem, log=False)
    for _ in range(attempts - 1):
        if not any(report.failed for report in reports):
            break
        stood = f"; this process stood still for {pauses.longest():.1f} s meanwhile" if pauses else ""
        item.warn(QuarantineWarning(f"failed, and runs again ({why}{stood})"))
        reports = runtestprotocol(item, nextitem=nextitem, log=False)
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True

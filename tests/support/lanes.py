"""Lanes: which tests a command runs, what a lane forbids its tests, and what a run has to say at its end.

`--lane pure` takes the pure tests, `--lane smoke`, `contract` and `attacks` those of tests/contract; CONTRIBUTING has
the table. A test gets its lane from its folder and its marks, and a run with a test that has none ends at once.
"""

import os
import re
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.tools import HOW

TESTS = Path(__file__).parents[1]
# Folder below tests → lane of its tests.
FOLDERS = {
    "unit": "pure",
    "transition": "pure",
    "chart": "pure",
    "contract": "contract",
    "cluster": "cluster",
    "wheels": "wheels",
    "model": "model",
    "images": "images",
}
# Marks that move a test to another lane than its folder's.
MARKS = ("process", "slow", "smoke", "attack", "control")
LANES = ("smoke", "attacks", *dict.fromkeys(FOLDERS.values()))
# Seconds of processor time above which a run names a pure test, and above which the test fails. They stand apart
# because a busy machine takes two to four times as long for the same test, and the machine is not to decide whether it
# passes.
SLOW, LIMIT = 1.0, 10.0
# What a pure test may not do: events of Python's audit hooks.
FORBIDDEN = {
    "subprocess.Popen": "start a program",
    "os.fork": "fork",
    "os.forkpty": "fork",
    "os.posix_spawn": "start a program",
    "os.system": "start a program",
    "socket.bind": "open a socket",
    "socket.connect": "open a socket",
}
CACHED = "sandfleet/durations"
# The property of a report that says how many seconds of processor time a slow test took.
COMPUTED = "sandfleet-computed"


def lane_of(path: str, marks: set[str]) -> str:
    """The lane of a test in the file tests/PATH; "" if nothing gives it one.

    >>> lane_of("unit/test_house.py", {"process"}), lane_of("contract/test_cp.py", {"smoke"})
    ('contract', 'smoke')
    >>> lane_of("contract/executor/test_memory.py", {"attack"})
    'attacks'
    """
    lane = FOLDERS.get(path.partition("/")[0], "")
    if lane == "pure" and marks & {"process", "slow"}:
        return "contract"
    if lane == "contract" and "smoke" in marks:
        return "smoke"
    # They take a third of the lane's time, and `make attacks` runs them in three places each night.
    if lane == "contract" and marks & {"attack", "control"}:
        return "attacks"
    return lane


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--lane", action="append", choices=LANES, help="run the tests of this lane alone (may be repeated)"
    )
    parser.addoption("--covers", action="store_true", help="print which RPCs, outcomes and calls the tests leave out")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Lanes(config), "sandfleet-lanes")
    if config.getoption("--covers"):
        # A late import: it brings gRPC and the client.
        from support.touched import Touched

        config.pluginmanager.register(Touched(config), "sandfleet-touched")


class ForbiddenEffect(BaseException):
    """A pure test has an effect. Product code that catches every Exception does not hide it."""


class Guard:
    """Refuses the effects of FORBIDDEN while a test runs."""

    def __init__(self) -> None:
        self.test = ""
        sys.addaudithook(self._event)

    def _event(self, event: str, arguments: tuple) -> None:
        # The tests of the chart render it with helm.
        if self.test and event in FORBIDDEN and Path(str(arguments[0] if arguments else "")).name != "helm":
            raise ForbiddenEffect(
                f"cannot {FORBIDDEN[event]}: {self.test} is in the pure lane (mark it with pytest.mark.process)"
            )


class Lanes:
    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._wanted = set(config.getoption("--lane") or ())
        self._is_worker = hasattr(config, "workerinput")
        self._guard: Guard | None = None
        self._seconds: Counter[str] = Counter()
        self._slow: dict[str, float] = {}

    def pytest_ignore_collect(self, collection_path: Path) -> bool | None:
        """A file without a test of the wanted lanes is not even imported: that takes each worker up to a minute."""
        if not self._wanted or not collection_path.name.startswith("test_"):
            return None
        text = collection_path.read_text()
        path = collection_path.relative_to(TESTS).as_posix()
        lanes = {lane_of(path, set()), *(lane_of(path, {mark}) for mark in MARKS if f"mark.{mark}" in text)}
        return None if lanes & self._wanted or "" in lanes else True

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        lanes = {item: lane(item) for item in items}
        if stray := sorted({item.nodeid.partition("::")[0] for item, name in lanes.items() if not name}):
            raise pytest.UsageError(f"cannot run {', '.join(stray)}: its folder is in no lane (tests/support/lanes.py)")
        if self._wanted:
            config.hook.pytest_deselected(items=[item for item in items if lanes[item] not in self._wanted])
            items[:] = [item for item in items if lanes[item] in self._wanted]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self, item: pytest.Item):
        with self._guarded(item):
            return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item):
        before = time.process_time()
        with self._guarded(item):
            result = yield
        # Processor time, because the wall clock says more of the machine than of the test.
        taken = time.process_time() - before
        # Rendering the chart takes a second by itself.
        limited = lane(item) == "pure" and "chart" not in item.path.parts
        if limited and os.environ.get("HYPOTHESIS_PROFILE") == "fast":
            if taken > SLOW:
                item.user_properties.append((COMPUTED, round(taken, 1)))
            if taken > LIMIT:
                pytest.fail(
                    f"took {taken:.1f} s of processor time, and a pure test has {LIMIT} (mark it with pytest.mark.slow)"
                )
        return result

    @contextmanager
    def _guarded(self, item: pytest.Item) -> Iterator[None]:
        if lane(item) != "pure":
            yield
            return
        self._guard = self._guard or Guard()
        self._guard.test = item.nodeid
        try:
            yield
        finally:
            self._guard.test = ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds[report.nodeid] += report.duration
        if report.when == "call":
            seconds = dict(report.user_properties).get(COMPUTED)
            self._slow.update({report.nodeid: seconds} if seconds else {})

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self) -> None:
        cache = getattr(self._config, "cache", None)
        if not self._is_worker and cache is not None and self._seconds:
            known = cache.get(CACHED, {})
            known.update({name: round(seconds, 3) for name, seconds in self._seconds.items()})
            cache.set(CACHED, known)

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(self, terminalreporter) -> None:
        """Pure tests that took long, and what was skipped because a program is missing, and how it is brought."""
        for test, seconds in sorted(self._slow.items(), key=lambda item: -item[1]):
            terminalreporter.write_line(f"slow for a pure test: {seconds} s of processor time in {test}")
        missing = Counter(
            match[1]
            for report in terminalreporter.stats.get("skipped", ())
            if isinstance(report.longrepr, tuple)
            and (match := re.search(r"needs (.+): " + re.escape(HOW), report.longrepr[2]))
        )
        if missing:
            named = ", ".join(f"{count} for want of {name}" for name, count in sorted(missing.items()))
            terminalreporter.write_line(f"skipped {missing.total()} tests: {named}. `{HOW}` brings the programs.")


def lane(item: pytest.Item) -> str:
    return lane_of(item.path.relative_to(TESTS).as_posix(), {mark.name for mark in item.iter_markers()})

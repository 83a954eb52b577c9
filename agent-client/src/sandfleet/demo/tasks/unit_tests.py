"""(c) A module with bugs, repaired until its unit tests pass, by reading the log of the tests."""

from dataclasses import dataclass
from functools import partial
from itertools import combinations

from sandfleet.codeact import Action, Conversation, RunCode, RunCommand
from sandfleet.codeact.policies.scripted import Move, When, answer_from
from sandfleet.demo.task import Task, check_in_sandbox
from sandfleet.sandbox import AsyncSandbox

TITLE = "unit tests"
_PROMPT = (
    "toolbox.py has bugs; test_toolbox.py has its unit tests, which are right. Repair toolbox.py (not the tests) until "
    "`python3 -m unittest -v test_toolbox 2>&1` passes. Answer with the line of its output that says how many tests ran, up to the "
    'word "tests" ("Ran N tests").'
)


@dataclass(frozen=True, slots=True)
class _Bug:
    """A line of the module, how it is broken, the test that notices."""

    right: str
    wrong: str
    test: str


_BUGS = (
    _Bug(
        "year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)", "year % 4 == 0 and year % 100 != 0", "test_leap_years"
    ),
    _Bug("if merged and start <= merged[-1][1]:", "if merged and start < merged[-1][1]:", "test_merge"),
    _Bug(
        "return (ordered[middle - 1] + ordered[middle]) / 2",
        "return (ordered[middle - 1] + ordered[middle]) // 2",
        "test_median",
    ),
    _Bug("range(0, len(items), size)", "range(0, len(items) - size, size)", "test_chunks"),
    _Bug('units = {"h": 3600, "m": 60, "s": 1}', 'units = {"h": 3600, "m": 60}', "test_duration"),
    _Bug(
        "return [item for item in items if not (item in seen or seen.add(item))]",
        "return sorted(set(items))",
        "test_unique",
    ),
)
_PAIRS = tuple(combinations(range(len(_BUGS)), 2))

_MODULE = '''"""Small tools."""

import re


def is_leap(year):
    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)


def merge(intervals):
    """Join intervals that overlap or touch."""
    merged = []
    for start, end in sorted(intervals):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((start, end))
    return merged


def median(values):
    ordered, middle = sorted(values), len(values) // 2
    if len(ordered) % 2:
        return ordered[middle]
    return (ordered[middle - 1] + ordered[middle]) / 2


def chunks(items, size):
    return [items[at : at + size] for at in range(0, len(items), size)]


def seconds(text):
    """Seconds of "1h30m5s"."""
    units = {"h": 3600, "m": 60, "s": 1}
    return sum(int(count) * units[unit] for count, unit in re.findall(r"(\\d+)([hms])", text))


def unique(items):
    """Without repetitions, in the order of the first appearance."""
    seen = set()
    return [item for item in items if not (item in seen or seen.add(item))]
'''

_TESTS = """import unittest

import toolbox


class Toolbox(unittest.TestCase):
    def test_leap_years(self):
        self.assertEqual([y for y in (1900, 1996, 2000, 2023, 2100, 2400) if toolbox.is_leap(y)], [1996, 2000, 2400])

    def test_merge(self):
        self.assertEqual(toolbox.merge([(5, 7), (1, 2), (2, 4)]), [(1, 4), (5, 7)])

    def test_median(self):
        self.assertEqual((toolbox.median([3, 1, 2]), toolbox.median([4, 1, 3, 2])), (2, 2.5))

    def test_chunks(self):
        self.assertEqual(toolbox.chunks([1, 2, 3, 4, 5], 2), [[1, 2], [3, 4], [5]])

    def test_duration(self):
        self.assertEqual((toolbox.seconds("1h30m5s"), toolbox.seconds("45m"), toolbox.seconds("")), (5405, 2700, 0))

    def test_unique(self):
        self.assertEqual(toolbox.unique("mississippi"), list("misp"))
"""

# Other inputs than the tests' own, so that a repair that only pleases them does not pass.
_HOST_CHECK = """
from toolbox import chunks, is_leap, median, merge, seconds, unique
import calendar, statistics
assert all(is_leap(y) == calendar.isleap(y) for y in range(1, 3000)), "is_leap"
assert merge([(0, 1), (1, 1), (3, 9), (4, 5), (9, 10)]) == [(0, 1), (3, 10)] and merge([]) == [], "merge"
assert all(median(v) == statistics.median(v) for v in ([5], [9, 1], [7, 7, 1, 4], [3, 8, 1, 0, 2, 6])), "median"
assert [sum(chunks(list(range(n)), 3), []) == list(range(n)) for n in range(9)] == [True] * 9, "chunks"
assert (seconds("2h"), seconds("59s"), seconds("10m1s")) == (7200, 59, 601), "seconds"
assert unique([3, 1, 3, 2, 1]) == [3, 1, 2] and unique([]) == [], "unique"
"""
_RUN = "python3 -m unittest -v test_toolbox 2>&1"
_PATCH = """
from pathlib import Path
module = Path("toolbox.py")
text = module.read_text()
assert text.count({wrong!r}) == 1, "the line is not where it was"
module.write_text(text.replace({wrong!r}, {right!r}))
"""


def make(seed: int, *, chaos: bool = False) -> Task:
    """Two of six bugs, by seed."""
    del chaos
    bugs = tuple(_BUGS[index] for index in _PAIRS[seed * 7 % len(_PAIRS)])
    broken = _MODULE
    for bug in bugs:
        broken = broken.replace(bug.right, bug.wrong)
    script = (
        Move(When(first=True), RunCommand(_RUN, intent="see which tests fail")),
        # The log says which test failed; each name has its repair, and the first failure in the log is repaired first.
        *(Move(When(text=rf"(?m)^(FAIL|ERROR): {bug.test}\b"), partial(_repair, bug)) for bug in _BUGS),
        Move(When(text=r"Ran \d+ tests[\s\S]*\nOK"), answer_from(r"(Ran \d+ tests)", "all tests pass")),
        Move(When(), RunCommand(_RUN, intent="run the tests again"), times=len(_BUGS)),
    )
    files = {"toolbox.py": broken.encode(), "test_toolbox.py": _TESTS.encode()}
    title = " and ".join(bug.test.removeprefix("test_") for bug in bugs)
    return Task(title, _PROMPT, script, _verify, files)


def _repair(bug: _Bug, _conversation: Conversation) -> Action:
    return RunCode(_PATCH.format(right=bug.right, wrong=bug.wrong), intent=f"{bug.test} fails: repair the line")


async def _verify(values: tuple[str, ...], sandbox: AsyncSandbox) -> str:
    if "".join(values).strip() != "Ran 6 tests":
        return f"expected 'Ran 6 tests', got {'; '.join(values)!r}"
    return await check_in_sandbox(sandbox, _HOST_CHECK)

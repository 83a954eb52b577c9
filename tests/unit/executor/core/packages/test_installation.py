"""What a template may declare, and what is said of it: a program beside user code has looked."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sandfleet_executor.core.errors import BadRequest
from sandfleet_executor.core.executions.events import Finished
from sandfleet_executor.core.packages import installation
from sandfleet_executor.core.packages.installation import BadReport, Declared, State, Status

GOOD = {"name": "a", "version": "1", "origin": "workspace", "state": "installed"}
MISSING = {"name": "b", "version": "", "origin": "", "state": "missing"}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=10) | st.sampled_from(["image", "missing"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*GOOD, "x"]), inner, max_size=5),
    max_leaves=12,
)


@pytest.mark.parametrize("good", ["a", "a>=1,<2", "a[x,y]==1.*", "a-b_c.d ~= 1.0 ; python_version < '4'", "A" * 200])
def test_requirements_are_taken_as_they_are(good):
    assert installation.check([good]) == (good,)


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (["--index-url=https://x"], "cannot declare package"),
        (["-r x"], "cannot declare package"),
        (["./a"], "cannot declare package"),
        (["/a.whl"], "cannot declare package"),
        (["a @ file:///x"], "not from an address"),
        (["a @ https://x/a.whl"], "not from an address"),
        (["a\n--index-url=x"], "no printable text"),
        (["a\u0430"], "no printable text"),
        (["a" * 201], "at most 200"),
        ([""], "cannot declare package ''"),
        ([1], "no printable text"),
        (["a"] * 65, "at most 64"),
        ("abc", "a list"),
        ({"a": 1}, "a list"),
    ],
)
def test_invalid_values_are_refused(bad, why):
    with pytest.raises(BadRequest, match=why):
        installation.check(bad)


@pytest.mark.parametrize("bad", [0, -1, 3601, True, "1", float("nan"), float("inf"), None])
def test_the_time_for_it_has_bounds(bad):
    with pytest.raises(BadRequest):
        installation.check_seconds(bad)


def test_what_is_said_of_each_is_read_in_order():
    found = installation.parse(json.dumps([GOOD, MISSING]).encode(), ["a>=1", "b"])
    assert found == (
        Declared("a>=1", State.INSTALLED, "a", "1", "workspace"),
        Declared("b", State.FAILED, "b"),
    )


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"\xff",
        b"[" * 100_000,
        b"[]",
        json.dumps([GOOD, GOOD]).encode(),
        json.dumps([{**GOOD, "state": "waiting"}]).encode(),
        json.dumps([{**GOOD, "origin": "elsewhere"}]).encode(),
        json.dumps([{**GOOD, "version": "1" * 201}]).encode(),
        json.dumps([{**GOOD, "name": None}]).encode(),
    ],
)
def test_an_invalid_report_is_refused(said):
    with pytest.raises(BadReport):
        installation.parse(said, ["a"])


@given(JSON, st.lists(st.just("a"), max_size=2))
def test_any_message_is_read_or_refused(said, wanted):
    try:
        found = installation.declared(said, wanted)
    except BadReport:
        return
    assert [each.requirement for each in found] == wanted


@pytest.mark.parametrize(
    ("end", "log", "reason"),
    [
        ({"reason": "DeadlineExceeded"}, b"No matching distribution found for a", "InstallTimeout"),
        ({"reason": "MemoryLimit"}, b"", "MemoryLimit"),
        ({"reason": "DiskLimit"}, b"", "DiskLimit"),
        ({"reason": "SessionKilled"}, b"", "SessionKilled"),
        ({"reason": "CommandNotStarted"}, b"", "NotStarted"),
        ({}, b"ERROR: No matching distribution found for a", "NotFound"),
        (
            {},
            b"Retrying after connection broken by 'NewConnectionError'\nERROR: No matching distribution found for a",
            "IndexUnreachable",
        ),
        ({}, b"ERROR: ResolutionImpossible: see ...", "Conflict"),
        ({}, b"[Errno 28] No space left on device", "DiskLimit"),
        ({}, b"error: subprocess-exited-with-error", "BuildFailed"),
        ({}, b"has no pip and no ensurepip", "NoPip"),
        ({}, b"something else", "PipFailed"),
    ],
)
def test_a_failure_has_one_word(end, log, reason):
    said, why = installation.judge(
        Finished("error", exit_code=1, **{"message": "It was so.", "reason": "ExitCode", **end}), log
    )
    assert said == reason
    assert why
    assert not why.endswith(".")


def test_a_failure_names_what_is_missing_and_keeps_the_end_of_the_log():
    declared = installation.parse(json.dumps([GOOD, MISSING]).encode(), ["a>=1", "b"])
    log = b"\n".join(b"line %d" % n for n in range(10_000))
    status = installation.failed(declared, "NotFound", "there is none", log)
    assert (status.state, status.missing) == (State.FAILED, ["b"])
    assert status.message == "cannot install b: there is none"
    assert len(status.log) <= installation.MAX_LOG_CHARACTERS
    assert status.log.startswith("…line ")
    assert status.log.endswith("line 9999")


def test_a_failure_without_missing_packages_counts_as_installed():
    declared = installation.parse(json.dumps([GOOD]).encode(), ["a"])
    assert installation.failed(declared, "PipFailed", "it failed", b"x") == Status(State.INSTALLED, declared)


def test_an_end_without_the_packages_is_a_failure():
    declared = installation.parse(json.dumps([GOOD, MISSING]).encode(), ["a", "b"])
    assert installation.installed(declared).reason == "NotMet"
    assert installation.installed(declared[:1]).state is State.INSTALLED


@pytest.mark.parametrize(("state", "fresh"), [(State.INSTALLING, False), (State.WAITING, False), (State.FAILED, True)])
def test_what_is_there_now_counts_when_it_is_over(state, fresh):
    before, now = (Declared("a", state),), (Declared("a", State.INSTALLED, "a", "1", "workspace"),)
    assert installation.renewed(Status(state, before), now) == (now if fresh else before)

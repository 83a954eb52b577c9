"""Checks on what a caller asks for."""

import math

import pytest
from sandfleet_executor.core import requests
from sandfleet_executor.core.errors import BadRequest
from sandfleet_executor.core.limits import Limits

LIMITS = Limits(max_timeout=100.0, default_timeout=10.0, output_bytes=1000)


@pytest.mark.parametrize("value", ["a", "A-z_0.9", "x" * 64, "."])
def test_a_good_id_is_taken(value):
    assert requests.check_id("execution id", value) == value


@pytest.mark.parametrize("value", ["", "a b", "a/b", "é", "x" * 65, "a\n", "a\0", "../x"])
def test_any_other_id_is_refused(value):
    with pytest.raises(BadRequest, match="as execution id: it has to be 1 to 64 of"):
        requests.check_id("execution id", value)


@pytest.mark.parametrize("envs", [{}, {"A": ""}, {"_a1": "é=\n", "B": "x" * 1000}])
def test_an_environment_is_taken_as_it_is(envs):
    assert requests.check_envs(envs) == envs


@pytest.mark.parametrize(
    ("envs", "why"),
    [
        ({"": "x"}, "not a name"),
        ({"1A": "x"}, "not a name"),
        ({"A=B": "x"}, "not a name"),
        ({"A B": "x"}, "not a name"),
        ({"A\0": "x"}, "not a name"),
        ({"x" * 257: "x"}, "not a name"),
        ({"A": "x\0y"}, "holds a NUL"),
        ({"A": "x" * (256 << 10)}, "larger than 262144 bytes"),
        ({f"A{n}": "x" * 1000 for n in range(262)}, "larger than"),
    ],
)
def test_an_environment_that_cannot_be_is_refused(envs, why):
    with pytest.raises(BadRequest, match=why):
        requests.check_envs(envs)


@pytest.mark.parametrize(("asked", "taken"), [("", "python"), ("python", "python"), ("bash", "bash")])
def test_a_language_is_the_one_asked_for_or_python(asked, taken):
    assert requests.check_language(asked, {"python": 1, "bash": 2}.get, "python, bash") == taken


@pytest.mark.parametrize("asked", ["cobol", "Bash", " bash", "x" * 1000])
def test_an_unknown_language_is_refused_with_those_that_are_known(asked):
    with pytest.raises(BadRequest, match="languages are python, bash") as refused:
        requests.check_language(asked, {"python": 1, "bash": 2}.get, "python, bash")
    assert len(str(refused.value)) < 200


def test_the_size_of_code_counts_in_bytes():
    requests.check_code("é" * (4 << 20))
    with pytest.raises(BadRequest, match="larger than 8388608 bytes"):
        requests.check_code("é" * (4 << 20) + "x")


@pytest.mark.parametrize(("asked", "taken"), [(None, 10.0), (0.001, 0.001), (100.0, 100.0)])
def test_a_timeout_is_the_one_asked_for_or_the_default(asked, taken):
    assert requests.check_timeout(asked, LIMITS) == taken


@pytest.mark.parametrize("asked", [0.0, -1.0, 100.001, float("inf"), float("nan")])
def test_a_timeout_that_cannot_be_is_refused(asked):
    with pytest.raises(BadRequest, match="it has to be above 0 and at most 100"):
        requests.check_timeout(asked, LIMITS)


@pytest.mark.parametrize(("asked", "taken"), [(0, 1000), (1, 1), (5000, 5000), (4 << 30, 4 << 30)])
def test_an_output_limit_is_the_one_asked_for_or_the_default(asked, taken):
    assert requests.check_output_limit(asked, LIMITS) == taken


def test_an_output_limit_has_a_limit():
    with pytest.raises(BadRequest, match="the most is 4294967296"):
        requests.check_output_limit((4 << 30) + 1, LIMITS)


@pytest.mark.parametrize(
    ("cwd", "path"),
    [
        (b"", b"/workspace"),
        (b"a/b", b"/workspace/a/b"),
        (b"/tmp", b"/tmp"),
        (b"..", b"/workspace/.."),
        (b"\xff", b"/workspace/\xff"),
    ],
)
def test_a_working_directory_is_absolute_or_below_the_workspace(cwd, path):
    assert requests.check_cwd(cwd, "/workspace") == path


@pytest.mark.parametrize("cwd", [b"a\0b", b"x" * 4096])
def test_a_working_directory_that_no_kernel_takes_is_refused(cwd):
    with pytest.raises(BadRequest, match="cannot use that working directory"):
        requests.check_cwd(cwd, "/workspace")


@pytest.mark.parametrize(
    ("argv", "shell", "payload"),
    [
        ([b"a", b"", b"b c"], b"", b"a\0\0b c"),
        ([], b"echo 'x'", b"echo 'x'"),
        ([b"x" * (2 << 20)], b"", b"x" * (2 << 20)),
    ],
)
def test_a_command_is_one_payload(argv, shell, payload):
    assert requests.command_payload(argv, shell) == payload


@pytest.mark.slow
@pytest.mark.parametrize(
    ("argv", "shell", "why"),
    [
        ([], b"", "either argv or a shell line"),
        ([b"a"], b"b", "either argv or a shell line"),
        ([b"a\0b"], b"", "holds a NUL"),
        ([], b"a\0b", "holds a NUL"),
        ([b"", b"a"], b"", "the program's name is empty"),
        ([b"x"] * (2 << 20), b"", "larger than 2097152 bytes"),
        ([], b"x" * (2 << 20) + b"x", "larger than 2097152 bytes"),
    ],
)
def test_a_command_that_cannot_be_is_refused(argv, shell, why):
    with pytest.raises(BadRequest, match=f"cannot start the command: .*{why}"):
        requests.command_payload(argv, shell)


def test_no_deadline_is_taken_where_there_is_no_longest_one():
    unlimited = Limits(max_timeout=0, default_timeout=10.0)
    assert requests.check_timeout(0.0, unlimited) == math.inf
    assert requests.check_timeout(None, unlimited) == 10.0
    assert requests.check_timeout(1e9, unlimited) == 1e9
    with pytest.raises(BadRequest, match="at most 100; no deadline"):
        requests.check_timeout(0.0, LIMITS)
    assert unlimited.lowered({"max_timeout": 5.0}).default_timeout == 5.0
    assert unlimited.lowered({"max_timeout": 0}) == unlimited

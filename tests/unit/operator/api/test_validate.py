"""What callers may send."""

import math

import pytest
from sandfleet_operator.api.errors import Code, FleetError
from sandfleet_operator.api.limits import Limits
from sandfleet_operator.api.selectors import parse_selector
from sandfleet_operator.api.validate import check_claim, trace_parent
from support.fleet.builders import TEMPLATE, a_claim


@pytest.mark.parametrize(
    ("claim", "reason", "named"),
    [
        (a_claim(""), "InvalidId", "request id"),
        (a_claim("a" * 65), "InvalidId", "request id"),
        (a_claim("a b"), "InvalidId", "request id"),
        (a_claim(".."), "InvalidId", "request id"),
        (a_claim("a\n"), "InvalidId", "request id"),
        (a_claim(labels={"": "x"}), "InvalidLabel", "no label key"),
        (a_claim(labels={"a b": "x"}), "InvalidLabel", "a b"),
        (a_claim(labels={"/a": "x"}), "InvalidLabel", "no label key"),
        (a_claim(labels={"a": "x,y"}), "InvalidLabel", "x,y"),
        (a_claim(labels={"a": "x" * 64}), "InvalidLabel", "63"),
        (a_claim(labels={f"k{i}": "" for i in range(65)}), "InvalidLabel", "65 labels"),
        (a_claim(envs={"1A": "x"}), "InvalidEnvironment", "1A"),
        (a_claim(envs={"A=B": "x"}), "InvalidEnvironment", "A=B"),
        (a_claim(envs={"A": "x\0y"}), "InvalidEnvironment", "NUL"),
        (a_claim(envs={"A": "x" * (256 << 10)}), "InvalidEnvironment", "bytes"),
        (a_claim(lease=0.0), "InvalidDuration", "the lease of 0 s has to be more than 0, and at most 604800 s"),
        (a_claim(lease=-1.0), "InvalidDuration", "lease"),
        (a_claim(lease=float("nan")), "InvalidDuration", "lease"),
        (a_claim(lease=8 * 86400.0), "InvalidDuration", "lease"),
        (a_claim(max_wait=-1.0), "InvalidDuration", "0 or more"),
        (a_claim(max_wait=1e9), "InvalidDuration", "wait"),
        (a_claim(idle_timeout=0.0), "InvalidDuration", "idle"),
        (a_claim(limits=Limits(memory_bytes=TEMPLATE.limits.memory_bytes + 1)), "InvalidLimit", "memory_bytes"),
        (a_claim(limits=Limits(max_timeout=3601.0)), "InvalidLimit", "max_timeout"),
        (a_claim(limits=Limits(open_files=5000)), "InvalidLimit", "open_files"),
        (a_claim(limits=Limits(open_files=63)), "InvalidLimit", "below 64"),
        *((a_claim(limits=Limits(cpus=cpus)), "InvalidLimit", "at least 0.05") for cpus in (0.01, -1.0, math.nan)),
        (a_claim(limits=Limits(disk_bytes=1 << 40)), "InvalidLimit", "disk_bytes"),
        (a_claim(limits=Limits(default_timeout=-1.0)), "InvalidLimit", "negative"),
    ],
)
def test_a_malformed_claim_is_refused_with_its_reason(claim, reason, named):
    with pytest.raises(FleetError) as caught:
        check_claim(claim, TEMPLATE)
    problem = caught.value.problem
    assert (problem.code, problem.reason, problem.retryable) == (Code.INVALID_ARGUMENT, reason, False)
    assert problem.message.startswith("cannot claim: ")
    assert named in problem.message


@pytest.mark.parametrize(
    "claim",
    [
        a_claim("a" * 64),
        a_claim("A-b_c.9"),
        a_claim(labels={"team": "", "sandfleet.io/run": "A.b-c_9"}),
        a_claim(envs={"_A1": "", "B": "ü\n="}),
        a_claim(lease=0.001, max_wait=0.0, idle_timeout=1.0),
        a_claim(limits=TEMPLATE.limits),
    ],
)
def test_a_claim_at_the_edge_of_what_is_allowed_passes(claim):
    check_claim(claim, TEMPLATE)


@pytest.mark.parametrize(
    ("selector", "labels", "matches"),
    [
        ("", {}, True),
        (" ", {"a": "1"}, True),
        ("a=1", {"a": "1", "b": "2"}, True),
        ("a==1", {"a": "1"}, True),
        ("a=1", {"a": "2"}, False),
        ("a=1", {}, False),
        ("a!=1", {"a": "2"}, True),
        ("a!=1", {}, True),
        ("a!=1", {"a": "1"}, False),
        ("a=1,b!=2", {"a": "1", "b": "3"}, True),
        ("a=1, b=2", {"a": "1", "b": "3"}, False),
        ("a=", {"a": ""}, True),
        ("sandfleet.io/run=x", {"sandfleet.io/run": "x"}, True),
    ],
)
def test_a_selector_matches_as_kubectl_does(selector, labels, matches):
    assert parse_selector(selector)(labels) is matches


@pytest.mark.parametrize("selector", ["a", "a=1,", ",", "=1", "a=b=c", "a in (b)", "a=x y", ",".join(["a=1"] * 65)])
def test_a_malformed_selector_is_refused(selector):
    with pytest.raises(FleetError, match="cannot select") as caught:
        parse_selector(selector)
    assert caught.value.problem.code is Code.INVALID_ARGUMENT


def test_a_malformed_traceparent_is_dropped_and_a_good_one_kept():
    good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    assert trace_parent(good) == good
    assert [trace_parent(bad) for bad in ("", "x", good.upper(), good + "\n", good + "-more")] == [""] * 5

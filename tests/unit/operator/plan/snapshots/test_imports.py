"""What an exported file asks for, and what it gets."""

import json

import pytest
from sandfleet_operator.api.limits import Limits
from sandfleet_operator.api.values import Claim, Isolation, RequestKey
from sandfleet_operator.plan.snapshots.claims import decode_claim, encode_claim
from sandfleet_operator.plan.snapshots.errors import Reason, SnapshotError
from sandfleet_operator.plan.snapshots.imports import granted

HERE = {"autonomous": {"memory_bytes": 100, "max_timeout": 0}, "brokered": {"memory_bytes": 50, "max_timeout": 9}}
KEY = RequestKey("me", "r1", "python")


@pytest.mark.parametrize(
    ("asked", "limits"),
    [
        ({"memory_bytes": 60, "max_timeout": 5}, {"memory_bytes": 60, "max_timeout": 5}),
        ({"memory_bytes": 101}, {"memory_bytes": 100, "max_timeout": 0}),
        ({"memory_bytes": 0, "max_timeout": 0}, {"memory_bytes": 100, "max_timeout": 0}),
        ({"memory_bytes": -1}, {"memory_bytes": 100, "max_timeout": 0}),
        ({"memory_bytes": float("inf")}, {"memory_bytes": 100, "max_timeout": 0}),
        ({"memory_bytes": float("nan")}, {"memory_bytes": 100, "max_timeout": 0}),
        ({"memory_bytes": True}, {"memory_bytes": 100, "max_timeout": 0}),
        ({"memory_bytes": "60", "another": 1}, {"memory_bytes": 100, "max_timeout": 0}),
        ("all", {"memory_bytes": 100, "max_timeout": 0}),
        (None, {"memory_bytes": 100, "max_timeout": 0}),
    ],
)
def test_a_file_gets_the_limits_that_it_names_and_never_more_than_the_template(asked, limits):
    assert granted({"contract": "autonomous", "limits": asked}, HERE) == ("autonomous", limits)


def test_the_template_is_that_of_the_contract():
    assert granted({"contract": "brokered"}, HERE)[1] == HERE["brokered"]


@pytest.mark.parametrize("contract", ["reviewed", "free", "", None, 1, ["autonomous"], {"autonomous": 1}])
def test_a_contract_that_no_template_has_is_refused_and_so_is_the_reviewed_one(contract):
    with pytest.raises(SnapshotError) as caught:
        granted({"contract": contract}, {**HERE, "reviewed": {}})
    assert caught.value.reason is Reason.WIDENED


def test_a_claim_comes_back_from_its_text():
    claim = Claim(
        key=KEY,
        envs={"A": "ü"},
        mounts={"/app": "src"},
        lease=7.0,
        idle_timeout=3.0,
        limits=Limits(memory_bytes=5),
        min_isolation=Isolation.NONE,
        queue="q",
        labels={"run": "7"},
        contract="brokered",
        on_idle="snapshot",
        snapshot_period=9.0,
    )
    assert decode_claim(encode_claim(claim), key=KEY, contract="brokered", labels={"run": "7"}) == claim
    assert decode_claim("", key=KEY, contract="autonomous", labels={}) == Claim(key=KEY, pool="python")


@pytest.mark.parametrize("text", ["[]", "1", "{", json.dumps({"isolation": "STRONG"}), json.dumps({"limits": 3})])
def test_a_text_that_is_no_claim_is_corrupt(text):
    with pytest.raises(SnapshotError) as caught:
        decode_claim(text, key=KEY, contract="autonomous", labels={})
    assert caught.value.reason is Reason.CORRUPT

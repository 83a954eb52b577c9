"""What the proof of a flood finds in an API server's audit log: it has to find what breaks a promise."""

from __future__ import annotations

import json

import pytest
from cluster.flood.audit import Admitted, Gone, Granted, read
from cluster.flood.checks import NEWS_SECONDS, Replay, beside, overtaken
from sandfleet_operator.api.kinds.queue import QueueSpec, Quota
from sandfleet_operator.plan.claims.record import Record, record_text
from sandfleet_operator.plan.pods import names


def granted(revision, at=0.0, queue="team/a", sandboxes=1, **spec):
    return Granted(revision, at, queue, QueueSpec(nominal=Quota(sandboxes=sandboxes), **spec))


def admitted(revision, request, at=100.0, queue="team/a", pod=""):
    return Admitted(revision, at, pod or f"pod-of-{request}", ("alice", request), queue)


IN_COHORT = {"cohort": "all", "borrowing": Quota(sandboxes=1)}
STORIES = {
    "one after the other": ([granted(1), admitted(2, "r1"), Gone(3, 100.0, "pod-of-r1"), admitted(4, "r2")], 0, 0),
    "two at once": ([granted(1), admitted(2, "r1"), admitted(3, "r2")], 1, 0),
    "two pods for one claim": (
        [granted(1, sandboxes=2), admitted(2, "r1"), admitted(3, "r1", pod="another")],
        0,
        1,
    ),
    "before the fleet heard that the quota is lower": (
        [granted(1, sandboxes=2), admitted(2, "r1"), granted(3, 100.0), admitted(4, "r2", 100.5)],
        0,
        0,
    ),
    "long after the quota is lower": (
        [granted(1, sandboxes=2), admitted(2, "r1"), granted(3, 100.0), admitted(4, "r2", 100.5 + NEWS_SECONDS)],
        1,
        0,
    ),
    "borrowed from the cohort": (
        [granted(1, **IN_COHORT), granted(2, queue="team/b", **IN_COHORT), admitted(3, "r1"), admitted(4, "r2")],
        0,
        0,
    ),
    "more than the cohort has": (
        [
            *(granted(number, queue=queue, **IN_COHORT) for number, queue in enumerate(("team/a", "team/b"), 1)),
            *(admitted(number, f"r{number}") for number in (3, 4)),
            admitted(5, "r5", queue="team/b"),
        ],
        1,
        0,
    ),
    "borrowed after the cohort was deleted": (
        [
            *(granted(number, queue=queue, **IN_COHORT) for number, queue in enumerate(("team/a", "team/b"), 1)),
            admitted(3, "r1"),
            granted(4, at=50.0),
            admitted(5, "r2"),
        ],
        1,
        0,
    ),
}


@pytest.mark.parametrize(("events", "over", "twice"), STORIES.values(), ids=STORIES)
def test_each_broken_promise_is_found(events, over, twice):
    verdict = Replay().play(events)
    assert (len(verdict.over_quota), len(verdict.twice)) == (over, twice)


@pytest.mark.parametrize(
    ("order", "expected"), [(("r1", "r2", "r3"), 0), (("r2", "r1", "r3"), 1), (("r2", "r3", "r1"), 2)]
)
def test_a_claim_is_overtaken_by_those_that_were_sent_after_the_fleet_had_it(order, expected):
    asked = {("alice", f"r{number}"): (float(number), number + 0.5) for number in (1, 2, 3)}
    events = [admitted(number, request) for number, request in enumerate(order)]
    assert overtaken(asked, events) == {"alice": expected}


def test_claims_beside_a_burst_are_counted_until_the_last_of_it_is_admitted():
    events = [admitted(number, request, at=number) for number, request in enumerate(("o1", "b1", "o2", "b2", "o3"))]
    burst = {("alice", "b1"), ("alice", "b2")}
    assert [beside(events, burst, since) for since in (0.0, 1.0)] == [2, 1]


def test_claims_that_were_sent_at_the_same_time_have_no_order():
    asked = {("alice", "r1"): (1.0, 3.0), ("alice", "r2"): (2.0, 2.5)}
    assert overtaken(asked, [admitted(1, "r2"), admitted(2, "r1")]) == {"alice": 0}


def test_a_pod_is_bound_once_and_gone_when_its_node_has_ended_it(tmp_path):
    record = Record(object="claim-1", request="r1", holder="alice", fencing=1, at=1.0, queue="team/a")
    metadata = {
        "uid": "u1",
        "labels": {names.STATE: "claimed"},
        "annotations": {names.CLAIM: record_text(record)},
    }

    def line(verb, revision, code=200, **more):
        return {
            "verb": verb,
            "objectRef": {"resource": "pods", "namespace": "team", "name": "p"},
            "responseStatus": {"code": code},
            "responseObject": {"metadata": {**metadata, "resourceVersion": str(revision), **more}},
            "stageTimestamp": "2026-11-23T14:44:11.000000Z",
        }

    log = tmp_path / "audit.log"
    lines = [
        line("patch", 5),
        line("patch", 6),
        line("patch", 7, code=422),
        line("delete", 8, deletionGracePeriodSeconds=5),
        line("delete", 9, deletionGracePeriodSeconds=0),
    ]
    log.write_text("".join(f"{json.dumps(one)}\n" for one in lines))
    found = read(log)
    assert [(type(one).__name__, one.revision) for one in found.events] == [("Admitted", 5), ("Gone", 9)]
    assert found.writes == {("patch", "pods"): 2, ("delete", "pods"): 2}

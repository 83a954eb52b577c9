"""Sums over executions, and what of a watch is news."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sandfleet_api.executor.v1 import session_pb2 as pb
from sandfleet_executor.core.contexts.frames import BadFrame, parse
from sandfleet_executor.core.errors import BadRequest
from sandfleet_executor.core.executions import usage
from sandfleet_executor.core.executions.events import Usage
from sandfleet_executor.core.executions.outcomes import Cause, Facts, judge_cell, judge_command
from sandfleet_executor.core.executions.usage import Tallies, Totals
from sandfleet_executor.servicers.convert import common as convert
from sandfleet_executor.servicers.session import timeless, watch_interval


def test_totals_are_sums_and_highest_values():
    totals = Totals().plus(Usage(1.0, 2.0, 30, 4, written_bytes=5)).plus(Usage(1.0, 0.5, 20, 6, written_bytes=None))
    assert totals == Totals(2, 2.5, 5, 30, 6)
    assert totals.with_running(Usage(9.0, 1.0, 50, 1, written_bytes=7)) == Totals(2, 3.5, 12, 50, 6)


def test_a_liar_cannot_make_the_sum_larger_than_its_field():
    totals = Totals()
    for _ in range(8):
        totals = totals.plus(Usage(written_bytes=(1 << 62) - 1))
    assert pb.UsageResponse(written_bytes=totals.written_bytes).written_bytes == (1 << 63) - 1


def test_an_unknown_value_is_unset_and_not_0():
    assert not convert.usage(Usage(written_bytes=None)).HasField("written_bytes")
    assert convert.usage(Usage(written_bytes=0)).HasField("written_bytes")


@pytest.mark.parametrize("written", [-1, 1.5, True, "9", None, 1 << 62])
def test_an_interpreter_cannot_claim_to_have_written_what_is_no_count(written):
    said = {"event": "done", "status": "ok", "cpu": 0.0, "peak": 0}
    assert parse({**said, "written": 3}, b"").written_bytes == 3
    with pytest.raises(BadFrame):
        parse({**said, "written": written}, b"")


@pytest.mark.parametrize(("wish", "seconds"), [(None, 1.0), (0.0, 0.1), (0.05, 0.1), (0.5, 0.5), (1e9, 60.0)])
def test_a_watch_is_neither_too_fast_nor_too_slow(wish, seconds):
    assert watch_interval(wish) == seconds


def test_a_watch_cannot_go_back_in_time():
    with pytest.raises(BadRequest, match="cannot watch every -1 s"):
        watch_interval(-1.0)


def test_time_alone_is_no_news():
    def at(wall, cpu=1.0):
        one = pb.ExecutionUsage(execution_id="a", usage=convert.usage(Usage(wall, cpu)))
        return pb.WatchUsageResponse(usage=pb.UsageResponse(wall_seconds=wall), executions=[one])

    assert timeless(at(1.0)) == timeless(at(2.0))
    assert timeless(at(1.0)) != timeless(at(1.0, cpu=1.1))
    message = at(3.0)
    timeless(message)
    assert message == at(3.0)


def test_a_full_disk_is_a_limit_that_was_reached():
    facts = Facts(cause=Cause.DISK, disk_limit=64 << 20)
    for verdict in (judge_cell(facts), judge_command(facts)):
        assert (verdict.outcome, verdict.blame, verdict.reason) == ("killed", "limit", "DiskLimit")
        assert verdict.message == "The workspace's limit of 64 MiB was reached."


def test_a_command_that_the_size_of_a_file_ended_is_told_so():
    verdict = judge_command(Facts(signal="SIGXFSZ", exit_code=153, disk_limit=64 << 20))
    assert (verdict.outcome, verdict.blame, verdict.reason) == ("killed", "limit", "DiskLimit")


CLAIMS = st.builds(usage.Claim, st.floats(0, 1e6), st.integers(0, 1 << 60), st.integers(0, 1 << 60))


@given(CLAIMS, CLAIMS, st.floats(0, 1e6), st.integers(1, 64))
def test_a_claim_is_believed_between_what_was_seen_and_what_can_be(claimed, seen, wall, cores):
    found = usage.believed(claimed, seen, wall, cores)
    assert seen.cpu_seconds <= found.cpu_seconds <= max(seen.cpu_seconds, wall * cores + usage.UNSEEN_SECONDS)
    for name in ("peak_bytes", "written_bytes"):
        assert getattr(seen, name) <= getattr(found, name) <= getattr(seen, name) + usage.UNSEEN_BYTES
    assert usage.believed(found, seen, wall, cores) == found


def test_a_claim_that_fits_is_believed():
    claimed, seen = usage.Claim(0.5, 200 << 20, 100 << 20), usage.Claim(0.4, 150 << 20, 90 << 20)
    assert usage.believed(claimed, seen, 1.0, 2) == claimed


def test_languages_above_the_limit_are_counted_together():
    tallies = Tallies()
    used = Usage(1.0, 0.5, 7, 1)
    for number in range(100):
        tallies.spoke(f"jupyter-k{number}", used)
    tallies.spoke("jupyter-k0", used)
    found = dict(tallies.languages)
    assert (len(found), found["jupyter-k0"].executions, found["other"].executions) == (65, 2, 36)
    assert (found["other"].wall_seconds, found["other"].cpu_seconds, found["other"].peak_memory_bytes) == (36, 18, 7)

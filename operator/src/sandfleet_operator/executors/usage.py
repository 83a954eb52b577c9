"""Readings of an executor's usage, of its message. Words that the contract does not have are left out."""

from collections.abc import Callable
from typing import Any

from sandfleet_api.executor.v1 import common_pb2, session_pb2

from sandfleet_operator.plan.usage import BOUNDS, CALL_ENDS, End, Ended, Reading

# Of a message: more ends than the contract can have are a flood.
MAX_ENDS = 128


def reading(said: session_pb2.UsageResponse) -> Reading:
    """As the executor says it; `plan.usage.grown` checks its numbers."""
    return Reading(
        wall_seconds=said.wall_seconds,
        cpu_seconds=said.total_cpu_seconds,
        memory_bytes=said.memory_bytes,
        disk_bytes=said.disk_bytes,
        processes=said.processes,
        ends=dict(filter(None, map(_ended, said.ended[:MAX_ENDS]))),
        calls={one.end: one.count for one in said.tool_calls[:MAX_ENDS] if one.end in CALL_ENDS},
    )


def _ended(said: session_pb2.EndedExecutions) -> tuple[End, Ended] | None:
    outcome = _word(common_pb2.Outcome.Name, said.outcome)
    blame = _word(common_pb2.Blame.Name, said.blame)
    if outcome is None or blame is None or len(said.counts) != len(BOUNDS) + 1:
        return None
    kind = "command" if said.commands else "cell"
    return End(kind, outcome, blame), Ended(tuple(said.counts), said.wall_seconds)


def _word(name: Callable[[Any], str], number: int) -> str | None:
    """As "timeout" of OUTCOME_TIMEOUT; "none" where nothing is said, and None for a number of no word."""
    try:
        word = name(number).partition("_")[2].lower()
    except ValueError:
        return None
    return "none" if word == "unspecified" else word

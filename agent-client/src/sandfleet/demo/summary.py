"""The figures of a run of the demo. Pure."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sandfleet.cli import table
from sandfleet.codeact import Verdict
from sandfleet.demo.session import AGENTS, Report


@dataclass(frozen=True, slots=True)
class AgentFigures:
    """One agent's sessions."""

    agent: str
    sessions: int
    solved: int
    steps: int
    repaired: int


@dataclass(frozen=True, slots=True)
class Summary:
    """All figures; times in seconds. `repaired` are failed steps of sessions that were solved all the same."""

    policy: str
    sessions: int
    solved: int
    failed: int
    ends: dict[str, int]
    steps: int
    outcomes: dict[str, int]
    repaired: int
    answers_rejected: int
    sessions_that_lost_variables: int
    sessions_rolled_back: int
    step_p50: float
    step_p95: float
    step_p99: float
    claim_p50: float
    claim_p99: float
    isolation: str
    wall_seconds: float
    sessions_per_second: float
    agents: tuple[AgentFigures, ...]
    troubles: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        """What `--json` prints."""
        return asdict(self)


def summarize(policy: str, reports: Sequence[Report], wall_seconds: float) -> Summary:
    """Sum up the reports of a run."""
    runs = [report.run for report in reports if report.run is not None]
    steps = [step for run in runs for step in run.steps]
    executed = sorted(step.seconds for step in steps if step.evidence is not None)
    claims = sorted(report.claim_seconds for report in reports if report.run is not None)
    solved = sum(report.solved for report in reports)
    return Summary(
        policy=policy,
        sessions=len(reports),
        solved=solved,
        failed=len(reports) - solved,
        ends=_counted(run.end.value for run in runs),
        steps=len(steps),
        outcomes=_counted(step.evidence.outcome.value for step in steps if step.evidence is not None),
        repaired=sum(report.run.failures for report in reports if report.solved and report.run),
        answers_rejected=sum(step.verdict is Verdict.FAILED and step.evidence is None for step in steps),
        sessions_that_lost_variables=sum(
            any("variables" in step.evidence.lost for step in run.steps if step.evidence) for run in runs
        ),
        sessions_rolled_back=sum(any(step.evidence.rollback for step in run.steps if step.evidence) for run in runs),
        step_p50=percentile(executed, 50),
        step_p95=percentile(executed, 95),
        step_p99=percentile(executed, 99),
        claim_p50=percentile(claims, 50),
        claim_p99=percentile(claims, 99),
        isolation=", ".join(sorted({report.isolation for report in reports if report.isolation})) or "unknown",
        wall_seconds=round(wall_seconds, 3),
        sessions_per_second=round(len(reports) / wall_seconds, 2) if wall_seconds > 0 else 0.0,
        agents=tuple(_figures(index, reports) for index in range(len(AGENTS))),
        troubles=tuple(
            f"session {report.plan.number}, {AGENTS[report.plan.agent].TITLE} ({report.title}): {report.in_short}"
            for report in reports
            if not report.solved
        ),
    )


def percentile(ordered: Sequence[float], percent: int) -> float:
    """Nearest rank of sorted values, to the microsecond; 0 where there are none."""
    if not ordered:
        return 0.0
    return round(ordered[max(0, -(-len(ordered) * percent // 100) - 1)], 6)


def _figures(index: int, reports: Sequence[Report]) -> AgentFigures:
    mine = [report for report in reports if report.plan.agent == index]
    return AgentFigures(
        agent=AGENTS[index].TITLE,
        sessions=len(mine),
        solved=sum(report.solved for report in mine),
        steps=sum(len(report.run.steps) for report in mine if report.run),
        repaired=sum(report.run.failures for report in mine if report.solved and report.run),
    )


def _counted(words: Iterable[str]) -> dict[str, int]:
    return dict(sorted(Counter(words).items()))


def lines(summary: Summary) -> list[str]:
    """The summary for people."""
    outcomes = ", ".join(f"{count} {outcome}" for outcome, count in summary.outcomes.items())
    return [
        f"{summary.solved} of {summary.sessions} sessions solved, each checked by the host",
        f"  policy       {summary.policy}",
        f"  isolation    {summary.isolation}",
        f"  executions   {outcomes}",
        f"  steps        {summary.steps}, {table.count(summary.repaired, 'failure')} repaired, {table.count(summary.answers_rejected, 'answer')} rejected",
        *_accidents(summary),
        f"  step         p50 {_ms(summary.step_p50)}, p95 {_ms(summary.step_p95)}, p99 {_ms(summary.step_p99)}",
        f"  claim        p50 {_ms(summary.claim_p50)}, p99 {_ms(summary.claim_p99)}",
        f"  wall         {summary.wall_seconds:.1f} s, {summary.sessions_per_second:.1f} sessions/s",
        *(f"  FAILED       {trouble}" for trouble in summary.troubles),
    ]


def _accidents(summary: Summary) -> list[str]:
    lost, kept = summary.sessions_that_lost_variables, summary.sessions_rolled_back
    told = [f"  lost         the interpreter with its variables, in {table.count(lost, 'session')}"] if lost else []
    return told + (
        [f"  rolled back  an interpreter that ended, its variables kept, in {table.count(kept, 'session')}"]
        if kept
        else []
    )


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:,.1f} ms" if seconds < 1 else f"{seconds:,.2f} s"

"""What a run of the demo looks like while it runs: a live table on a terminal, plain lines elsewhere."""

import shutil
from collections import Counter
from dataclasses import dataclass, field
from typing import Protocol, TextIO

from sandfleet.cli import table
from sandfleet.codeact import Step, Verdict
from sandfleet.demo.session import AGENTS, Plan, Report
from sandfleet.values._show import clip

_BAR = 20


class Progress(Protocol):
    """Is told what happens."""

    def started(self, plan: Plan) -> None: ...

    def stepped(self, plan: Plan, step: Step) -> None: ...

    def finished(self, report: Report) -> None: ...

    def draw(self) -> None:
        """Show what there is now; called a few times a second, and once at the end."""


class Silent:
    """For `--json`."""

    def started(self, plan: Plan) -> None: ...

    def stepped(self, plan: Plan, step: Step) -> None: ...

    def finished(self, report: Report) -> None: ...

    def draw(self) -> None: ...


@dataclass(slots=True)
class Plain:
    """A line for each session that ends."""

    out: TextIO
    sessions: int
    done: int = 0

    def started(self, plan: Plan) -> None: ...

    def stepped(self, plan: Plan, step: Step) -> None: ...

    def finished(self, report: Report) -> None:
        self.done += 1
        print(f"[{self.done:>{len(str(self.sessions))}}/{self.sessions}] {told(report)}", file=self.out, flush=True)

    def draw(self) -> None: ...


def told(report: Report) -> str:
    """One session in one line."""
    name = f"{AGENTS[report.plan.agent].TITLE} ({report.title})"
    if report.run is None or report.trouble:
        return f"{name}: FAILED: {report.in_short}"
    seen = [_mishap(step) for step in report.run.steps]
    mishaps = " → ".join(mishap for mishap in seen if mishap)
    return f"{name}: {report.answer} in {table.count(len(report.run.steps), 'step')}, {report.seconds:.1f} s{f' [{mishaps}]' if mishaps else ''}"


def _mishap(step: Step) -> str:
    if step.verdict not in {Verdict.FAILED, Verdict.LOST}:
        return ""
    if step.evidence is None:
        return "answer rejected" if step.verdict is Verdict.FAILED else "environment lost"
    return step.evidence.error.name if step.evidence.error else step.evidence.outcome.value


@dataclass(slots=True)
class _Row:
    running: int = 0
    solved: int = 0
    failed: int = 0
    steps: int = 0
    mishaps: int = 0
    news: str = ""


@dataclass(slots=True)
class Table:
    """A table with a row for each agent, drawn over itself."""

    out: TextIO
    sessions: int
    rows: list[_Row] = field(default_factory=lambda: [_Row() for _ in AGENTS])
    drawn: int = 0

    def started(self, plan: Plan) -> None:
        self.rows[plan.agent].running += 1

    def stepped(self, plan: Plan, step: Step) -> None:
        row = self.rows[plan.agent]
        row.steps += 1
        mishap = _mishap(step)
        row.mishaps += bool(mishap)
        row.news = f"{step.intent}: {mishap}" if mishap else step.intent or row.news

    def finished(self, report: Report) -> None:
        row = self.rows[report.plan.agent]
        row.running -= 1
        row.solved += report.solved
        row.failed += not report.solved

    def draw(self) -> None:
        width = shutil.get_terminal_size((100, 24)).columns
        lines = [clip(line, width) for line in self.lines()]
        back = f"\x1b[{self.drawn}F" if self.drawn else ""
        self.out.write(back + "".join(f"\x1b[2K{line}\n" for line in lines))
        self.out.flush()
        self.drawn = len(lines)

    def lines(self) -> list[str]:
        """The table as text."""
        total: Counter[str] = Counter()
        body = []
        for agent, row in zip(AGENTS, self.rows, strict=True):
            total.update(solved=row.solved, failed=row.failed, running=row.running)
            body.append(
                f"{agent.TITLE:<14}{row.running:>8}{row.solved:>8}{row.failed:>8}{row.steps:>7}{row.mishaps:>9}  {row.news}"
            )
        done = total["solved"] + total["failed"]
        bar = "█" * (_BAR * done // max(1, self.sessions))
        head = f"{'agent':<14}{'running':>8}{'solved':>8}{'failed':>8}{'steps':>7}{'mishaps':>9}  last"
        foot = f"{bar:·<{_BAR}} {done}/{self.sessions} sessions done, {total['running']} running"
        return [head, *body, foot]

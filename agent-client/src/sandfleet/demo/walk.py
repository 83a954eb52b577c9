"""One agent, step by step, before the many: what it intends, the code that it runs, and what it observes."""

import sys
import textwrap
from dataclasses import dataclass, field

from sandfleet.cli import table
from sandfleet.codeact import FinalAnswer, RunCode, RunCommand, Step, Verdict
from sandfleet.codeact.policies.sse import Token
from sandfleet.demo.session import AGENTS, Plan, Report
from sandfleet.demo.stage import Stage
from sandfleet.demo.tasks import least_squares

# Narrower terminals wrap at their own width.
_MOST_WIDTH = 100
# Lines of code and of an observation.
_MOST_CODE = 14
_MOST_SEEN = 8
_COLOURS = {Verdict.FAILED: "red", Verdict.LOST: "yellow", Verdict.GAVE_UP: "red"}


def shown_first(planned: tuple[Plan, ...]) -> Plan:
    """The session whose agent is shown step by step: the least squares, whose steps are short; else the first."""
    return next((plan for plan in planned if AGENTS[plan.agent] is least_squares), planned[0])


@dataclass(slots=True)
class Walk:
    """Tells one session as it goes. What a model says is shown as it arrives."""

    stage: Stage
    heard: bool = field(default=False, init=False)

    def begins(self, plan: Plan, policy: str) -> None:
        """The agent, its policy and its task."""
        task = AGENTS[plan.agent].make(plan.seed, chaos=plan.chaos)
        self.stage.say(self.stage.paint(f"First one agent, step by step: {AGENTS[plan.agent].TITLE}", "bold"))
        self.stage.say(self.stage.paint(table.plain(policy), "dim"))
        for line in textwrap.wrap(f"task: {task.prompt}", _width(), max_lines=4, placeholder=" …"):
            self.stage.say(self.stage.paint(table.plain(line), "dim"))

    def token(self, token: Token) -> None:
        """A piece of what a model says."""
        if not self.heard:
            self.stage.say()
        self.heard = True
        text = "".join(letter if letter == "\n" else table.plain(letter) for letter in token.text)
        self.stage.write(self.stage.paint(text, "dim") if token.kind == "thinking" else text)

    def stepped(self, plan: Plan, step: Step) -> None:
        """One step: intent, code, observation."""
        del plan
        self.stage.say()
        if not self.heard:
            self.stage.say(
                self.stage.paint(f"step {step.number}: {table.plain(step.intent or _kind(step))}", "bold", "cyan")
            )
            for line in _first(_written(step).split("\n"), _MOST_CODE):
                self.stage.say(f"  {self.stage.paint('│', 'dim')} {line}")
        self.heard = False
        colour = _COLOURS.get(step.verdict, "green")
        lines = (textwrap.wrap(line, _width() - 4, subsequent_indent="  ") for line in step.observation.split("\n"))
        head, *rest = _first([line for wrapped in lines for line in wrapped], _MOST_SEEN)
        self.stage.say(self.stage.paint(head, colour))
        for line in rest:
            self.stage.say(line)

    def ends(self, report: Report) -> None:
        """What came of it, by the host's own judgement."""
        said = f"solved: {report.answer}" if report.solved else f"not solved: {report.in_short}"
        checked = "; the host has checked it in another way" if report.solved else ""
        for line in textwrap.wrap(table.plain(f"{said}{checked}"), _width()):
            self.stage.say(self.stage.paint(line, "bold", "green" if report.solved else "red"))
        self.stage.say()


def _width() -> int:
    return min(_MOST_WIDTH, table.width()) if sys.stdout.isatty() else _MOST_WIDTH


def _kind(step: Step) -> str:
    return {FinalAnswer: "answer", RunCode: "run code", RunCommand: "run a command"}.get(type(step.action), "go on")


def _written(step: Step) -> str:
    match step.action:
        case RunCode(code=code):
            return code
        case RunCommand(command=command):
            return command if isinstance(command, str) else " ".join(command)
        case FinalAnswer() as answer:
            return f"answer: {'; '.join(str(value) for value in answer.values)}"
    return ""


def _first(lines: list[str], most: int) -> list[str]:
    """The first lines, without what a terminal would act on, none wider than the walk; blank ones are left out."""
    flat = [table.plain(line.expandtabs(4)) for line in lines if line.strip()]
    # Code stands behind a margin.
    width = _width() - 4
    shown = [line if len(line) <= width else f"{line[: width - 1]}…" for line in flat[:most]]
    return [*shown, f"… {len(flat) - most} more lines"] if len(flat) > most else shown or [""]

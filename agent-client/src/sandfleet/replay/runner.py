"""Replays a journal in a fresh sandbox, step by step, and says of each step how it went."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from typing import TYPE_CHECKING, Any

from sandfleet.errors import SandboxEnded, SandfleetError
from sandfleet.journal.notebook import mapping
from sandfleet.journal.sameness import Difference, Sameness, Verdict, compare
from sandfleet.journal.steps import Need, Step, digests, step_of
from sandfleet.replay import actions
from sandfleet.replay.answers import RecordedTools
from sandfleet.replay.files import load
from sandfleet.replay.settings import changes, fitting, lacking
from sandfleet.tools.declared import tools_of

if TYPE_CHECKING:
    from sandfleet.journal.records import Record
    from sandfleet.sandbox import AsyncSandbox
    from sandfleet.values.environment import Environment
    from sandfleet.values.tools import Tool

# Records of a session that are replayed.
MAX_RECORDS = 1_000_000
_DIGESTS = "the record has only digests of the environment variables"
_SKIPPED, _BESIDE, _MISSING = "skipped", "not replayed", "cannot be replayed"


@dataclass(frozen=True, slots=True)
class Replayed:
    """How one step went.

    word      "same", "same but for", "different", "skipped", "not replayed" or "cannot be replayed".
    why       why it was not done again; "" otherwise.
    sameness  of a step that was done again.
    """

    step: Step
    word: str
    why: str = ""
    sameness: Sameness | None = None

    @property
    def number(self) -> int:
        """The number of its record."""
        return self.step.record.number

    @property
    def ok(self) -> bool:
        """Whether the replay is still what the record says."""
        return self.word not in (Verdict.DIFFERENT.value, _MISSING)


@dataclass(slots=True)
class Replay:
    """A replay: its steps so far. `stopped` is why it did not go on; "" where it came to its end."""

    sandbox_id: str
    steps: list[Replayed] = field(default_factory=list)
    stopped: str = ""

    @property
    def ok(self) -> bool:
        """Whether each step was the same, or the same but for what a named rule allows."""
        return not self.stopped and all(each.ok for each in self.steps)

    def count(self, word: str) -> int:
        """Return how many steps went so."""
        return sum(1 for each in self.steps if each.word == word)


OnStep = Callable[[Replayed], object | Awaitable[object]]


class Replayer:
    """Does the records of one session again in one sandbox."""

    def __init__(self, sandbox: AsyncSandbox, tools: RecordedTools, envs: Mapping[str, str]) -> None:
        self._sandbox, self._tools, self._envs = sandbox, tools, envs
        # The next record of the fresh journal that was not read yet.
        self._next = 1

    async def step(self, record: Record) -> Replayed:
        """Do one record again. Raises SandboxEnded."""
        step = step_of(record)
        if record.kind in ("opened", "packages"):
            return await (self._opened(step) if record.kind == "opened" else self._packages(step))
        if step.need is Need.NOTHING:
            return Replayed(step, _SKIPPED, step.why)
        if step.need is Need.BESIDE:
            return Replayed(step, _BESIDE, step.why)
        if step.need is Need.MISSING:
            return Replayed(step, _MISSING, step.why)
        envs, missing = fitting(self._envs, step.envs or {})
        if missing:
            return Replayed(step, _MISSING, f"{_DIGESTS}: give {', '.join(missing[:5])} as they were")
        try:
            if record.kind == "execution":
                return await self._execute(step, envs)
            await actions.call(self._sandbox, record.kind, record.body, envs)
        except SandboxEnded:
            raise
        except SandfleetError as error:
            difference = Difference("call", "done", error.message)
            return Replayed(step, Verdict.DIFFERENT.value, sameness=Sameness(Verdict.DIFFERENT, (), (difference,)))
        return Replayed(step, Verdict.SAME.value, sameness=Sameness(Verdict.SAME))

    async def _execute(self, step: Step, envs: Mapping[str, str]) -> Replayed:
        body = step.record.body
        self._tools.begin(str(body.get("id")))
        await actions.execute(self._sandbox, body, envs)
        now = await self._record_of(str(body.get("id")))
        if now is None:
            return Replayed(step, _MISSING, "the fresh session has no record of it")
        found = _with_calls(compare(body, now), self._tools)
        return Replayed(step, found.verdict.value, sameness=found)

    async def _record_of(self, execution_id: str) -> Mapping[str, Any] | None:
        found = None
        async for record in self._sandbox.journal.records(self._next):
            self._next = record.number + 1
            if record.kind == "execution" and record.body.get("id") == execution_id:
                found = record.body
        return found

    async def _opened(self, step: Step) -> Replayed:
        """Say in what the fresh session differs from the recorded one before anything runs."""
        now: Mapping[str, Any] = {}
        async for record in self._sandbox.journal.records():
            now = record.body
            break
        was = step.record.body
        if names := lacking(digests(was.get("envs")), digests(now.get("envs"))):
            why = f"{_DIGESTS}: create the sandbox with {', '.join(names[:5])} as they were"
            return Replayed(step, _MISSING, why)
        return Replayed(step, _SKIPPED, changes(was, now) or step.why)

    async def _packages(self, step: Step) -> Replayed:
        """Compare what is installed now with what was."""
        was = {str(each.get("name")): str(each.get("version")) for each in map(mapping, _list(step.record.body))}
        now = _versions(await self._sandbox.environment())
        changed = [
            Difference(f"package {name}", version, now.get(name.lower(), "not installed"))
            for name, version in was.items()
            if now.get(name.lower()) != version
        ]
        verdict = Verdict.DIFFERENT if changed else Verdict.SAME
        return Replayed(step, verdict.value, sameness=Sameness(verdict, (), tuple(changed)))


def _list(body: Mapping[str, Any]) -> list[Any]:
    found = body.get("installed")
    return found if isinstance(found, list) else []


def _versions(environment: Environment) -> dict[str, str]:
    return {one.name.lower(): one.version for one in environment.packages}


def _with_calls(found: Sameness, tools: RecordedTools) -> Sameness:
    """Add the calls of tools that only one of both has made."""
    others = [Difference("tools", "no such call", why) for why in tools.unanswered]
    others += [Difference("tools", f"a call of {name}", "not called") for name in tools.rest()]
    if not others:
        return found
    return Sameness(Verdict.DIFFERENT, found.rules, (*found.differences, *others))


async def replay(
    journal: str | PathLike[str] | Sequence[Record],
    sandbox: AsyncSandbox,
    *,
    upto: int = 0,
    go_on: bool = False,
    envs: Mapping[str, str] | None = None,
    tools: Sequence[Tool | Callable[..., Any]] = (),
    on_step: OnStep | None = None,
) -> Replay:
    """Do the records of a session again in a fresh sandbox of the same template.

    journal  the path of an exported journal, or its records.
    upto     the number of the last record to do again; 0 means all. The sandbox then stands where the session stood.
    go_on    whether to go on after a step that differs or cannot be done again.
    envs     environment variables that executions and contexts had: of their values the record has only digests, which
             have to fit. The sandbox is created with those of the session itself: see `session_settings`.
    tools    functions of this process for tools whose answers are secret; the others answer from the record.
    on_step  called with each step, and awaited if it returns an awaitable.

    A sandbox for a journal with calls of tools has to be brokered. Raises InvalidArgument (the file cannot be read),
    SandboxEnded, PreconditionFailed.
    """
    records = await asyncio.to_thread(load, journal) if isinstance(journal, str | PathLike) else journal
    recorded = RecordedTools(records, tools_of(tools))
    done = Replay(sandbox.sandbox_id)
    if recorded.tools:
        await sandbox.serve_tools(recorded.tools, policy=recorded.decide)
    replayer = Replayer(sandbox, recorded, envs or {})
    async for step in _steps(replayer, _until(records, upto)):
        done.steps.append(step)
        if on_step is not None and inspect.isawaitable(said := on_step(step)):
            await said
        if not step.ok and not go_on:
            done.stopped = f"record {step.number} {'is' if not step.why else ''} {step.word}".replace("  ", " ")
            break
    return done


async def _steps(replayer: Replayer, records: Iterable[Record]) -> AsyncIterator[Replayed]:
    for record in records:
        yield await replayer.step(record)


def _until(records: Sequence[Record], upto: int) -> Iterable[Record]:
    return (record for record in records[:MAX_RECORDS] if not upto or record.number <= upto)

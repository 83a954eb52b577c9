"""The show `rollback`: an agent's work survives a crash, a memory bomb and an endless loop."""

import asyncio
import sys
import time
from dataclasses import asdict, dataclass

from sandfleet.demo.stage import Stage, print_json
from sandfleet.sandbox import AsyncSandbox
from sandfleet.values.execution import Execution
from sandfleet.values.sandbox import Limits

_MIB = 1 << 20
_BUILD = """
import random, statistics
rows = [{"day": day, "sales": random.Random(day).gauss(100, 15)} for day in range(200_000)]
model = {"mean": statistics.fmean(row["sales"] for row in rows), "trained_on": len(rows)}
"""
_LOOK = "print(f\"{len(rows):,} rows, mean {model['mean']:.2f}\")"
# A thread is what no copy can be made of: the way to have the same accident without a copy.
_HINDER = "import threading; threading.Thread(target=threading.Event().wait, name='no-copy', daemon=True).start()"
_PATIENCE = 10.0
ACCIDENTS = (
    ("segmentation fault", "rows.clear(); import ctypes; ctypes.string_at(0)"),
    ("memory bomb", "model = None\nhoard = []\nwhile True: hoard.append(b'x' * (8 << 20))"),
    ("endless loop in C", "del rows; import collections, itertools; collections.deque(itertools.repeat(0), maxlen=0)"),
)


@dataclass(frozen=True, slots=True)
class Seen:
    """One accident. `back_seconds`: from the end of the killed cell to the answer of the next."""

    accident: str
    outcome: str
    rolled_back: bool
    refused: str
    message: str
    after: str
    back_seconds: float


def main(*, as_json: bool) -> int:
    stage = Stage.on(sys.stdout, as_json=as_json)
    kept, lost = asyncio.run(_run(stage))
    went_well = all(each.rolled_back and "rows" in each.after for each in kept) and not lost.rolled_back
    if as_json:
        print_json({"ok": went_well, "with": [asdict(each) for each in kept], "without": asdict(lost)})
    return 0 if went_well else 1


async def _run(stage: Stage) -> tuple[list[Seen], Seen]:
    async with await AsyncSandbox.create(limits=Limits(memory_bytes=512 * _MIB)) as sandbox:
        stage.say(stage.paint("An agent builds something that it would not like to build twice", "bold"))
        built = await sandbox.run_code(_BUILD)
        stage.say(f"  {_told(await sandbox.run_code(_LOOK))}  ({built.usage.wall_seconds:.1f} s of work)\n")
        kept = []
        for accident, code in ACCIDENTS:
            await _until_copied(sandbox)
            kept.append(await _accident(sandbox, accident, code))
            _show(stage, kept[-1])
        stage.say(stage.paint("\nThe same crash where no copy could be made (a thread is running)", "bold"))
        await sandbox.run_code(_HINDER)
        lost = await _accident(sandbox, *ACCIDENTS[0])
        _show(stage, lost)
        return kept, lost


async def _until_copied(sandbox: AsyncSandbox) -> None:
    """The copy is made behind the answer, while a model would be thinking."""
    async with asyncio.timeout(_PATIENCE):
        while not (await sandbox.list_contexts())[0].copied_cell:  # noqa: ASYNC110  there is no event for it
            await asyncio.sleep(0.01)


async def _accident(sandbox: AsyncSandbox, accident: str, code: str) -> Seen:
    ended = await sandbox.run_code(code, timeout=1.5 if "endless" in accident else 30)
    began = time.monotonic()
    after = await sandbox.run_code(_LOOK)
    seconds = time.monotonic() - began
    said = ended.rollback
    return Seen(
        accident,
        ended.outcome.value,
        rolled_back=bool(said),
        refused=said.refused if said is not None else "",
        message=said.message if said is not None else "",
        after=_told(after),
        back_seconds=round(seconds, 4),
    )


def _told(execution: Execution) -> str:
    return f"{execution.error.name}: {execution.error.value}" if execution.error else execution.logs.stdout.strip()


def _show(stage: Stage, seen: Seen) -> None:
    stage.say(f"  {stage.paint('✗', 'red')} {seen.accident}: {stage.paint(seen.outcome, 'red')}")
    mark = stage.paint("↺", "green") if seen.rolled_back else stage.paint("!", "yellow")
    stage.say(f"  {mark} {seen.message}")
    stage.say(
        f"    next cell, {seen.back_seconds * 1e3:.0f} ms: {stage.paint(seen.after, 'green' if seen.rolled_back else 'yellow')}"
    )

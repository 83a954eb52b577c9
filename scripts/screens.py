"""Terminals for pictures: what commands show of a fleet that has sessions, queues, snapshots and a review."""

import os
import re
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pexpect

PROGRAM = str(Path(sys.executable).with_name("sandfleet"))
QUEUES = Path(__file__).parents[1] / "docs" / "howto" / "queues.md"
CODE = "import os\nfor name in os.listdir('/workspace'):\n    os.remove(name)"
# ID is the sandbox with most to see.
COMMANDS = (
    "ls",
    "ps ID",
    "snapshot ls",
    "pool ls",
    "queue ls",
    "top --count 1",
    "reviews ls",
    "trace ID",
    "explain QuotaReached",
)


def screens(widths: tuple[int, ...]) -> dict[int, list[str]]:
    """Run each command in a terminal of each width; its lines, with colours, below the command."""
    with tempfile.TemporaryDirectory() as home, fleet(home), sessions() as sandbox_id:
        return {columns: list(shown(columns, sandbox_id)) for columns in widths}


def shown(columns: int, sandbox_id: str) -> Iterator[str]:
    for command in COMMANDS:
        words = command.replace("ID", sandbox_id)
        child = pexpect.spawn(PROGRAM, words.split(), dimensions=(60, columns), encoding="utf8", timeout=60)
        child.expect(pexpect.EOF)
        yield f"$ \x1b[1msandfleet {words}\x1b[0m"
        yield from child.before.replace("\r", "").rstrip().split("\n")
        yield ""


@contextmanager
def fleet(home: str) -> Iterator[None]:
    """Serve a fleet with the queues of the page about queues, in an empty home."""
    queues = Path(home, "queues.yaml")
    text = re.search(r"```yaml\n(.*?)```", QUEUES.read_text(encoding="utf8"), re.DOTALL)
    assert text is not None
    queues.write_text(text[1], encoding="utf8")
    # The client of this process and each command find all that is kept below it.
    os.environ.update(HOME=home, XDG_DATA_HOME=f"{home}/data", SANDFLEET_TRACES=f"{home}/traces.jsonl")
    words = ["dev", "--queues", str(queues), "--traces", os.environ["SANDFLEET_TRACES"], "--pool-size", "2"]
    served = pexpect.spawn(PROGRAM, words, encoding="utf8", timeout=60)
    served.expect(r"SANDFLEET_ADDRESS=(\S+)")
    os.environ["SANDFLEET_ADDRESS"] = served.match[1]
    try:
        yield
    finally:
        served.sendcontrol("c")
        served.expect(pexpect.EOF)


@contextmanager
def sessions() -> Iterator[str]:
    """Claim sandboxes of each queue; one more claim waits, and a cell waits for a reviewer."""
    from sandfleet import Sandbox

    labels = {"team": "search", "run": "run-5f1c09aa", "agent": "data-agent"}
    with ExitStack() as stack:
        first = stack.enter_context(Sandbox.create(queue="search", labels=labels))
        for _ in range(2):
            stack.enter_context(Sandbox.create(queue="batch", labels={"team": "batch"}))
        reviewed = stack.enter_context(Sandbox.create(contract="reviewed", queue="support"))
        first.run_code("import pandas as pd; frame = pd.DataFrame({'price': [1, 2]})")
        first.snapshot("before-the-migration", labels={"why": "a safe point"})
        first.commands.run("sleep 600", background=True)
        asked, queued = threading.Event(), threading.Event()
        apart(lambda: reviewed.run_code(CODE, intent="Remove the files that the import has left"))
        apart(lambda: Sandbox.create(queue="batch", max_wait=300, on_queued=lambda _: queued.set()))
        queued.wait(60)
        while not asked.wait(0.2):
            if "Remove the files" in pexpect.run(f"{PROGRAM} reviews ls", encoding="utf8"):
                asked.set()
        yield first.sandbox_id


def apart(call: Callable[[], object]) -> None:
    """Call it in a thread, which ends with the fleet."""
    from sandfleet import SandfleetError

    def run() -> None:
        with suppress(SandfleetError):
            call()

    threading.Thread(target=run, daemon=True).start()

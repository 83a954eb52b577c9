"""`sandfleet shell [ID] [-- CMD…]`: connect this terminal to a new terminal in a sandbox."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import select
import signal
import sys
import termios
import threading
import tty
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError

from sandfleet.cli import FAILED, OK, USAGE, create, refuse, report, sandboxes
from sandfleet.cli.terminal.escapes import Leaving, Plain
from sandfleet.errors import SandfleetError
from sandfleet.resources.pty import AsyncPtyHandle
from sandfleet.sandbox import AsyncSandbox
from sandfleet.values.execution import Blame, CommandResult, Outcome

_CTRL_D = b"\x04"
_READ = 65536
# Seconds after which the end of piped input is said again.
_END_AGAIN = 0.5
# Seconds that a shell may take to end after a hang-up.
_HANG_UP = 2.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what the command takes."""
    parser.add_argument("-n", "--namespace", metavar="NS", help="namespace of the sandbox, on a cluster")
    create.add_queue_arguments(parser)
    parser.add_argument("--cwd", default="", metavar="DIR", help="working directory, relative to /workspace")
    parser.add_argument(
        "--timeout", type=float, metavar="SECONDS", help="deadline (default: the longest that the sandbox allows)"
    )
    parser.add_argument("--json", action="store_true", help="print errors of the platform as a JSON object")
    parser.add_argument("sandbox", metavar="ID", nargs="?", help="the sandbox (default: a fresh one, for this shell)")
    parser.add_argument("words", metavar="-- CMD", nargs="*", help="command to run, after -- (default: bash)")


def run(options: argparse.Namespace) -> int:
    """Connect the terminals; return the exit code, 128+n if signal n ended this command, 255 if the platform failed."""
    if options.sandbox and (options.queue or options.priority):
        refuse(create.NO_QUEUE, as_json=options.json)
        return USAGE
    try:
        return asyncio.run(_run(options))
    except SandfleetError as error:
        report(error, as_json=options.json)
        return sandboxes.NO_COMMAND


async def _run(options: argparse.Namespace) -> int:
    if options.sandbox:
        opening = AsyncSandbox.connect(sandboxes.full_id(options.sandbox, options))
    else:
        opening = AsyncSandbox.create(
            namespace=options.namespace,
            queue=options.queue,
            priority=options.priority,
            on_queued=create.show_queued,
        )
    async with opening as sandbox:
        create.clear_queued()
        limits = (await sandbox.get_info()).limits
        rows, cols = _size()
        handle = await sandbox.pty.create(
            rows=rows,
            cols=cols,
            command=[*options.words, *options.behind] or None,
            cwd=options.cwd,
            term=os.environ.get("TERM", "") if sys.stdout.isatty() else "dumb",
            timeout=options.timeout or limits.max_timeout,
        )
        return await _Attached(handle).run()


class _Attached:
    """The local terminal, and the one in the sandbox."""

    def __init__(self, handle: AsyncPtyHandle) -> None:
        self._handle = handle
        self._plain = None if sys.stdout.isatty() else Plain()
        self._loop = asyncio.get_running_loop()
        # What ended it on this side: the number of a signal, 0 for `~.`.
        self._ended: asyncio.Future[int] = self._loop.create_future()

    async def run(self) -> int:
        shown = asyncio.ensure_future(self._show())

        def type_in(data: bytes) -> None:
            asyncio.run_coroutine_threadsafe(self._type(data), self._loop).result()

        def leave() -> None:
            self._loop.call_soon_threadsafe(self._end, 0)

        try:
            with self._signals(), _raw(), _typing(type_in, leave):
                ends: set[asyncio.Future[None] | asyncio.Future[int]] = {shown, self._ended}
                await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            # Also if the output cannot be shown any more (a pipe without a reader).
            if not shown.done() or shown.cancelled() or shown.exception() is not None:
                await self._hang_up(shown)
        if self._ended.done():
            return 128 + self._ended.result() if self._ended.result() else FAILED
        shown.result()
        return _code(await self._handle.wait())

    async def _hang_up(self, shown: asyncio.Future[None]) -> None:
        ending: asyncio.Future[object] = asyncio.ensure_future(self._handle.wait() if shown.done() else _over(shown))
        with contextlib.suppress(SandfleetError):
            await self._handle.signal(signal.SIGHUP)
            await asyncio.wait({ending}, timeout=_HANG_UP)
            if not ending.done():
                await self._handle.kill()
        for waiting in (ending, shown):
            waiting.cancel()
        await asyncio.gather(ending, shown, return_exceptions=True)

    async def _show(self) -> None:
        async for data in self._handle:
            text = self._plain.feed(data) if self._plain else data
            # A terminal may be slow, and other tasks must not wait for it.
            await asyncio.to_thread(_write, text)

    async def _type(self, data: bytes) -> None:
        # The command may have ended since; its output ends then.
        with contextlib.suppress(SandfleetError):
            await self._handle.send(data)

    def _end(self, number: int) -> None:
        if not self._ended.done():
            self._ended.set_result(number)

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        resizing: set[asyncio.Future[None]] = set()

        def resize() -> None:
            task = asyncio.ensure_future(self._resize())
            resizing.add(task)
            task.add_done_callback(resizing.discard)

        endings = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
        self._loop.add_signal_handler(signal.SIGWINCH, resize)
        for number in endings:
            self._loop.add_signal_handler(number, self._end, int(number))
        try:
            yield
        finally:
            for number in (signal.SIGWINCH, *endings):
                self._loop.remove_signal_handler(number)

    async def _resize(self) -> None:
        with contextlib.suppress(SandfleetError):
            await self._handle.resize(*_size())


async def _over(shown: asyncio.Future[None]) -> None:
    await asyncio.wait({shown})


def _size() -> tuple[int, int]:
    """Return rows and columns of this terminal; the usual size without a terminal."""
    for stream in (sys.stdout, sys.stdin):
        with contextlib.suppress(OSError, ValueError):
            size = os.get_terminal_size(stream.fileno())
            if size.lines > 0 and size.columns > 0:
                return size.lines, size.columns
    return 24, 80


@contextlib.contextmanager
def _raw() -> Iterator[None]:
    """Passes every key on, and restores the terminal at the end."""
    if not sys.stdin.isatty():
        yield
        return
    fd = sys.stdin.fileno()
    before = termios.tcgetattr(fd)
    tty.setraw(fd)
    try:
        yield
    finally:
        termios.tcsetattr(fd, termios.TCSANOW, before)


@contextlib.contextmanager
def _typing(type_in: Callable[[bytes], None], leave: Callable[[], None]) -> Iterator[None]:
    """Reads keys or piped input in a thread: asyncio cannot wait for files, and the terminal's mode stays unchanged."""
    stop, stopping = os.pipe()
    thread = threading.Thread(target=_read, args=(sys.stdin.fileno(), stop, type_in, leave), daemon=True)
    thread.start()
    try:
        yield
    finally:
        os.close(stopping)


def _read(source: int, stop: int, type_in: Callable[[bytes], None], leave: Callable[[], None]) -> None:
    leaving = Leaving() if os.isatty(source) else None
    with contextlib.suppress(OSError, CancelledError, RuntimeError), contextlib.closing(os.fdopen(stop, "rb")):
        while stop not in select.select([source, stop], [], [])[0]:
            data = os.read(source, _READ)
            sent = leaving.feed(data) if leaving else data or _CTRL_D
            if sent:
                type_in(sent)
            if leaving and (leaving.left or not data):
                leave()
            if not data:
                # A Ctrl-D that comes before the shell has set up its terminal is lost.
                while not leaving and not select.select([stop], [], [], _END_AGAIN)[0]:
                    type_in(_CTRL_D)
                return


def _write(data: bytes) -> None:
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def _code(result: CommandResult) -> int:
    if result.outcome not in (Outcome.OK, Outcome.ERROR):
        print(f"sandfleet: {result.outcome}: {result.message}", file=sys.stderr)
    if result.blame is Blame.PLATFORM:
        return sandboxes.NO_COMMAND
    return result.exit_code or (OK if result.ok else FAILED)

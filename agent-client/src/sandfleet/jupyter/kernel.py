"""The kernel: it answers the messages of Jupyter with what happens in the sandbox."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from sandfleet import __version__
from sandfleet.errors import SandboxEnded, SandfleetError
from sandfleet.jupyter import content, history
from sandfleet.jupyter.wire import CONTROL, SHELL, STDIN, Request, Wire

if TYPE_CHECKING:
    from sandfleet.jupyter.seat import Seat
    from sandfleet.values.execution import Execution, InputRequest, Result

PROTOCOL = "5.3"
# How often the kernel looks whether its front end's server is still there, in seconds.
_LOOK = 1.0
_SQL = "%%sql"


class Kernel:
    """One kernel, until it is shut down."""

    def __init__(self, wire: Wire, seat: Seat, language: str) -> None:
        self._wire = wire
        self._seat = seat
        self._language = language
        self._cells = 0
        self._prompts = content.Prompts()
        self._past = history.History()
        # The longest deadline that a cell may have.
        self._longest: float | None = None
        # The request that is worked on, for what is said in its name; the context of its cell.
        self._running: tuple[Request, str] | None = None
        self._waiting: asyncio.Queue[Request] = asyncio.Queue()
        # The line that a person types at the front end.
        self._typed: asyncio.Future[str] | None = None
        self._over: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._shell = {
            "execute_request": self._execute,
            "complete_request": self._complete,
            "inspect_request": self._inspect,
            "kernel_info_request": self._info,
            "is_complete_request": self._is_complete,
            "history_request": self._history,
            "comm_info_request": self._comms,
            "shutdown_request": self._shut_down,
        }

    async def serve(self) -> None:
        """Return after a shutdown, or the end of the process that started the kernel."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, lambda: self._soon(self._interrupt()))
        loop.add_signal_handler(signal.SIGTERM, lambda: self._end(restart=False))
        self._wire.publish("status", {"execution_state": "starting"}, None)
        channels = (self._read(SHELL), self._read(CONTROL), self._read_lines())
        work = (*channels, self._work(), self._wire.beat(), self._watch_parent())
        tasks = [asyncio.create_task(each) for each in work]
        # So that the first cell need not wait as long.
        self._tasks = {asyncio.create_task(self._begin())}
        try:
            ends: list[asyncio.Future[Any]] = [self._over, *tasks]
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            for each in tasks:
                if each.done():
                    each.result()
        finally:
            for each in (*tasks, *self._tasks):
                each.cancel()
            restart = self._over.done() and self._over.result()
            await self._seat.leave(restart=restart)
            await self._wire.close()

    def _soon(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _end(self, *, restart: bool) -> None:
        if not self._over.done():
            self._over.set_result(restart)

    async def _begin(self) -> None:
        # The first cell says why there is none.
        with suppress(SandfleetError):
            await self._seat.sandbox()

    async def _watch_parent(self) -> None:
        parent = os.getppid()
        while os.getppid() == parent:  # noqa: ASYNC110  the system says no such thing by itself
            await asyncio.sleep(_LOOK)
        self._end(restart=False)

    # Messages

    async def _read(self, channel: str) -> None:
        async for request in self._wire.requests(channel):
            if channel == SHELL:
                self._waiting.put_nowait(request)
            else:
                await self._answer(request)

    async def _read_lines(self) -> None:
        async for reply in self._wire.requests(STDIN):
            value = reply.content.get("value")
            if reply.kind == "input_reply" and isinstance(value, str) and self._typed and not self._typed.done():
                self._typed.set_result(value)

    async def _type(self, request: Request, asked: InputRequest) -> str:
        """Have the front end of a request ask for a line."""
        self._typed = asyncio.get_running_loop().create_future()
        self._wire.ask_for_input(request, asked.prompt, password=asked.password)
        return (await self._typed).replace("\r", "").replace("\n", " ")

    async def _work(self) -> None:
        while True:
            await self._answer(await self._waiting.get())

    async def _answer(self, request: Request) -> None:
        answer = self._shell.get(request.kind)
        if request.channel == CONTROL:
            answer = {"interrupt_request": self._interrupted}.get(request.kind, answer)
        if answer is None:
            # A comm of a widget, debug_request, …: there is no such thing here.
            return
        self._wire.publish("status", {"execution_state": "busy"}, request)
        try:
            reply = await answer(request)
        except SandfleetError as error:
            reply = _failed(error)
        self._wire.reply(request, reply)
        self._wire.publish("status", {"execution_state": "idle"}, request)
        if request.kind == "shutdown_request":
            self._end(restart=bool(request.content.get("restart")))

    async def _info(self, request: Request) -> dict[str, Any]:
        del request
        return {
            "status": "ok",
            "protocol_version": PROTOCOL,
            "implementation": "sandfleet",
            "implementation_version": __version__,
            "language_info": content.language_info(self._language, ""),
            "banner": f"{self._language} in a sandbox, by Sandfleet {__version__}",
            "help_links": [],
        }

    async def _is_complete(self, request: Request) -> dict[str, Any]:
        return history.is_complete(self._language, str(request.content.get("code", "")))

    async def _history(self, request: Request) -> dict[str, Any]:
        return {"status": "ok", "history": self._past.ask(request.content)}

    async def _comms(self, request: Request) -> dict[str, Any]:
        del request
        return {"status": "ok", "comms": {}}

    async def _shut_down(self, request: Request) -> dict[str, Any]:
        await self._interrupt()
        return {"status": "ok", "restart": bool(request.content.get("restart"))}

    # Cells

    async def _execute(self, request: Request) -> dict[str, Any]:
        code, silent = str(request.content.get("code", "")), bool(request.content.get("silent"))
        if not silent:
            self._cells += 1
            self._wire.publish("execute_input", {"code": code, "execution_count": self._cells}, request)
        count = {"execution_count": self._cells}
        failed: dict[str, Any] | None
        execution: Execution | None = None
        try:
            execution = await self._run(request, code, silent=silent)
            self._prompts.add(execution, self._cells)
            failed = content.error_of(execution, self._prompts)
        except SandfleetError as error:
            if isinstance(error, SandboxEnded):
                await self._seat.lost()
            failed = _failed(error)
        if not silent and request.content.get("store_history", True):
            self._past.add(self._cells, code, execution)
        if failed is None:
            pages = (
                [content.page(each) for each in execution.results if content.PAGE in each.parts] if execution else []
            )
            return {"status": "ok", "payload": pages, "user_expressions": {}, **count}
        if not silent:
            self._wire.publish("error", {name: failed[name] for name in ("ename", "evalue", "traceback")}, request)
        if request.content.get("stop_on_error", True):
            await self._abort_waiting()
        return {**failed, "status": "error", **count}

    async def _run(self, request: Request, code: str, *, silent: bool) -> Execution:
        sandbox = await self._seat.sandbox()
        context, language, code = self._place(code)
        tell: Callable[..., None] = _nothing if silent else self._wire.publish
        number = self._cells

        def result(one: Result) -> None:
            if content.PAGE not in one.parts:
                tell(*content.shown(one, number), request)

        async def typed(asked: InputRequest) -> str:
            return await self._type(request, asked)

        self._running = request, context
        if self._longest is None:
            # A notebook asks for no deadline of a cell; 0 is none.
            self._longest = (await sandbox.get_info()).limits.max_timeout
        try:
            execution = await sandbox.run_code(
                code,
                language=language,
                timeout=self._longest,
                on_stdout=lambda text: tell("stream", {"name": "stdout", "text": text}, request),
                on_stderr=lambda text: tell("stream", {"name": "stderr", "text": text}, request),
                on_result=result,
                on_clear=lambda one: tell("clear_output", {"wait": one.wait}, request),
                on_input=typed if request.content.get("allow_stdin") else None,
            )
        finally:
            self._running = None
        if words := content.missing(execution.logs):
            tell("stream", {"name": "stderr", "text": words}, request)
        return execution

    def _place(self, code: str) -> tuple[str, str, str]:
        """Return the context of a cell, its language, and its code."""
        first, _, rest = code.partition("\n")
        language, own = ("sql", rest) if first.strip() == _SQL and self._language != "sql" else (self._language, code)
        return "default" if language == "python" else f"default-{language}", language, own

    async def _abort_waiting(self) -> None:
        """What was asked for behind a cell that failed is not run, as in ipykernel."""
        # What has come, but was not read yet.
        await asyncio.sleep(0)
        waiting = [self._waiting.get_nowait() for _ in range(self._waiting.qsize())]
        for each in waiting:
            if each.kind == "execute_request":
                self._wire.reply(each, {"status": "aborted"})
            else:
                self._waiting.put_nowait(each)

    async def _interrupted(self, request: Request) -> dict[str, Any]:
        del request
        await self._interrupt()
        return {"status": "ok"}

    async def _interrupt(self) -> None:
        sandbox = self._seat.taken
        if sandbox is None or self._running is None:
            return
        with suppress(SandfleetError):
            await sandbox.interrupt(self._running[1])

    # Looks

    async def _complete(self, request: Request) -> dict[str, Any]:
        code = str(request.content.get("code", ""))
        cursor = _cursor(request, code)
        nothing = {"matches": [], "cursor_start": cursor, "cursor_end": cursor, "metadata": {}, "status": "ok"}
        if (sandbox := self._seat.taken) is None:
            return nothing
        context, _, _ = self._place(code)
        try:
            found = await sandbox.complete(code, cursor, context=context)
        except SandfleetError:
            # The context is busy, or has not begun.
            return nothing
        place = {"cursor_start": found.cursor_start, "cursor_end": found.cursor_end}
        return {**nothing, "matches": list(found.matches), **place}

    async def _inspect(self, request: Request) -> dict[str, Any]:
        code = str(request.content.get("code", ""))
        found = None
        if (sandbox := self._seat.taken) is not None:
            detail = 1 if request.content.get("detail_level") else 0
            with suppress(SandfleetError):
                context, _, _ = self._place(code)
                found = await sandbox.inspect(code, _cursor(request, code), context=context, detail_level=detail)
        data = {"text/plain": found.text} if found else {}
        return {"status": "ok", "found": bool(found), "data": data, "metadata": {}}


def _cursor(request: Request, code: str) -> int:
    given = request.content.get("cursor_pos")
    return min(max(given, 0), len(code)) if isinstance(given, int) else len(code)


def _failed(error: SandfleetError) -> dict[str, Any]:
    name = error.reason or type(error).__name__
    return {"status": "error", "ename": name, "evalue": error.message, "traceback": [f"{name}: {error.message}"]}


def _nothing(*_: object) -> None:
    """Drop what a silent cell shows."""

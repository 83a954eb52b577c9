"""A context of SQL: one DuckDB in memory that keeps its tables, views and variables from cell to cell.

A cell is any number of statements; it is read whole before the first of them runs. Each statement that has rows shows
them as a table. A name that is no table of DuckDB's is looked for among the frames of the session's Python context:
the executor is asked for it ({"event":"frame","name","language"}), and answers with a socket from which it is read.
"""

import contextlib
import os
import re
import socket
from collections.abc import Mapping
from typing import Any, NoReturn

from ..base import frames, process, tables
from . import database, interrupts, shown

# Frames of the Python context that one cell may name.
MAX_FRAMES = 64
MISSING = re.compile(r"Catalog Error: Table with name (\S{1,256}) does not exist")


class ContextLoop:
    """Serves the requests of one context."""

    def __init__(self, control: socket.socket, memory_bytes: int) -> None:
        self._control = socket.socket(fileno=process.private_copy(control.fileno()))
        self._control.setblocking(True)
        control.close()
        self._db = database.Database(memory_bytes)
        self._stop = interrupts.Stop(self._db.interrupt, interrupts.wakeups())
        self._meter = process.Meter()

    def serve(self) -> None:
        """Returns when the executor has closed the socket."""
        while True:
            frame, fds = frames.receive_with_fds(self._control, 1)
            if frame is None:
                return
            match frame.header.get("op"):
                case "execute":
                    self._execute(frame.header, frame.payload.decode("utf-8", "replace"))
                case "give":
                    self._between_cells(self._db.give, frame.header, fds[0])
                case "take":
                    self._between_cells(self._db.take, frame.header, fds[0])
                case "complete" | "inspect" as kind:
                    with socket.socket(fileno=fds[0]) as sock, self._stop.cell():
                        code, cursor = frame.payload.decode("utf-8", "replace"), int(frame.header["cursor"])
                        sock.sendall(self._db.look(kind, code, cursor, float(frame.header["seconds"])))
                case unknown:
                    raise frames.FrameError(f"cannot do {unknown!r}")

    def _between_cells(self, work: Any, header: Mapping[str, Any], descriptor: int) -> None:
        """Moves a table. What fails ends the socket, which the executor notices."""
        with socket.socket(fileno=process.private_copy(descriptor)) as sock:
            os.close(descriptor)
            sock.setblocking(True)
            with self._stop.cell(), contextlib.suppress(Exception), self._stop.reading(sock):
                work(header, sock)

    def _execute(self, header: Mapping[str, Any], source: str) -> None:
        self._meter.start()
        with self._stop.cell():
            error = self._run(source, int(header.get("cell", 0)))
        usage = self._meter.stop()
        status = "ok"
        report = b""
        if error is not None:
            status = "interrupted" if error["name"] == "Interrupted" else "error"
            value = error["value"].encode("utf-8", "backslashreplace")
            report = frames.encode({"event": "error", **error, "value": ""}, value)
        done = {"status": status, "cpu": usage.cpu, "peak": usage.peak, "written": usage.written}
        self._control.sendall(report + frames.encode({"event": "done", **done}))

    def _run(self, source: str, number: int) -> dict[str, Any] | None:
        """Runs a cell; the error, or None."""
        self._db.begin_cell()
        at = 0
        try:
            statements = self._db.statements(source)
            for index, statement in enumerate(statements):
                at = max(source.find(statement.query.strip(), at), at)
                self._stop.check()
                self._statement(statement, is_last=index == len(statements) - 1)
                at += len(statement.query.strip())
        except interrupts.StoppedError:
            return {"name": "Interrupted", "value": "", "traceback": "", "frames": []}
        except Exception as error:  # noqa: BLE001  what a statement raises is the cell's outcome
            if self._stop.asked:
                return {"name": "Interrupted", "value": "", "traceback": "", "frames": []}
            return database.described(error, source, at, number)
        return None

    def _statement(self, statement: Any, *, is_last: bool) -> None:
        """Runs a statement; again with each frame that it lacks. What has no table has had no effect."""
        lent: set[str] = set()
        while len(lent) < MAX_FRAMES:
            try:
                result = self._db.run(statement, self._stop.check)
            except database.CatalogException as error:
                missing = MISSING.match(str(error))
                if missing is None:
                    raise
                name = missing[1].strip('"')
                if name in lent:
                    # The statement names it in a schema, where no frame is.
                    raise
                lent.add(name)
                try:
                    self._db.lend(name, self._frame(name))
                except tables.RefusedError as refused:
                    if refused.reason == "NoTable":
                        raise error from None
                    raise
            else:
                if result is not None:
                    self._show(result, main=is_last)
                return
        raise database.Refused(f"cannot run the statement: it names more than {MAX_FRAMES} frames")

    def _frame(self, name: str) -> Any:
        """A frame of the Python context. Raises RefusedError and ValueError."""
        frames.send(self._control, {"event": "frame", "name": name, "language": "python"})
        frame, fds = frames.receive_with_fds(self._control, 1)
        if frame is None:
            os._exit(process.EXIT_CLOSED)
        if not fds:
            raise tables.RefusedError(str(frame.header.get("reason")), str(frame.header.get("message")))
        with socket.socket(fileno=fds[0]) as sock:
            sock.setblocking(True)
            with self._stop.reading(sock):
                table, _ = tables.receive(sock)
        return table

    def _show(self, result: database.Result, *, main: bool) -> None:
        parts = shown.parts(result)
        listed = [{"mime": mime, "size": len(data)} for mime, data in parts]
        header = {"event": "result", "main": main, "parts": listed, "dropped": 0}
        frames.send(self._control, header, b"".join(data for _, data in parts))


def run(control: socket.socket, options: dict[str, Any]) -> NoReturn:
    """Serves cells until the socket ends; then ends the process."""
    process.end_after(lambda: ContextLoop(control, int(options.get("memory_bytes", 0))).serve())

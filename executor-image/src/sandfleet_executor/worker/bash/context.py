"""A context of bash: one live shell with its variables, functions, aliases, options and working directory.

The shell inherits no descriptor of this process. It reads lines from a pipe that it opens by path, so that bash keeps
that descriptor away from redirections. For each cell there are two lines: the first sources the cell from a file in
memory, with the context's streams opened anew; the second reports the exit code into another pipe. There is no
terminal, prompt or job control: to the shell the cells are a script that is being written. User code may break the
shell: this process notices its end, and also a live shell that does not answer.
"""

import contextlib
import fcntl
import os
import re
import shlex
import signal
import socket
import struct
import termios
import time
from collections.abc import Mapping
from typing import Any, NamedTuple, NoReturn

from ..base import frames, linux, process, program, seeds
from ..languages import LANGUAGES
from . import looks, syntax

SYNTAX = 2
# A shell that has read all lines, and in this many rounds of so many seconds neither answers nor works, is given up.
SILENT_ROUNDS = 5
ROUND_SECONDS = 0.5
READ_BYTES = 4096
# An EXIT trap writes what the shell that follows has to have, up to the last line. Options come first, and are set
# last: `set -e` or `set -u` could end it before. Aliases stay behind: one of `case` may be what has ended the shell.
WHOLE = "# whole"
OPTIONS_END = "# options"
ALIASES = re.compile(rb"^declare -A BASH_ALIASES=.*\n", re.MULTILINE)
MOST_KEPT = 16 << 20
KEEP = (
    f"{{ \\builtin set +o; \\builtin set +eux; \\builtin echo '{OPTIONS_END}'; \\builtin shopt -p; \\builtin declare -f;"
    " \\builtin declare -F; \\builtin declare -p; \\builtin umask -p;"
    f" \\builtin printf '\\\\builtin cd -- %q\\n' \"$PWD\"; \\builtin echo '{WHOLE}'; }} 2>/dev/null"
)
BEGAN_ANEW = "a new shell has its variables, functions, options and folder, but no traps or aliases"
SET_E = "; \\builtin set -e"


def leave_cell(then: str = "") -> str:
    """A command that leaves the cell from any depth: bash returns until it is outside, and runs `then` there."""
    trap = f"[[ ${{#BASH_SOURCE[@]}} -gt 1 ]] && \\builtin return 2; \\builtin trap - DEBUG; \\builtin shopt -u extdebug; \\builtin set -E{then}"
    return f"\\builtin shopt -s extdebug; \\builtin trap -- {shlex.quote(trap)} DEBUG"


class Shell(program.Program):
    """The process of bash, and the lines for it."""

    def __init__(self) -> None:
        self.lines, self._lines = os.pipe()
        self.answers, self._answers = os.pipe()
        self._cell = os.memfd_create("cell")
        # What it prints for a look.
        self._said = os.memfd_create("said")
        self._own = f"/proc/{os.getpid()}/fd"
        # The file with the code of the cell.
        self.cell = f"{self._own}/{self._cell}"
        # What the shell has kept at its end, for the next one, and the exit code of that until it was asked for.
        self._kept, self._again = os.memfd_create("kept"), os.memfd_create("again")
        self._end: int | None = None
        super().__init__(self._start())
        seed = seeds.seed()
        seeded = f" RANDOM={seed};" if seed is not None else ""
        self._prepare(f"{seeded} shopt -s expand_aliases")

    def _prepare(self, first: str) -> None:
        """Writes the first line of a shell. Until it has answered that, an interrupt would end it."""
        self.armed = False
        keep = shlex.quote(f"{KEEP} >|{self._own}/{self._kept}")
        self._write_line(
            # Functions of the shell before may have these names.
            f"BASH_ARGV0=bash;{first}; \\builtin set -E; \\builtin trap -- {shlex.quote(self._on_error())} ERR;"
            f" \\builtin trap -- {keep} EXIT;"
            f" {self._arm('none')}; {self._answer('armed')}\n"
        )

    def ended(self, status: int) -> None:
        """Starts a shell with what this one had, where that has kept it: `exit`, or an error of bash, has ended it."""
        code, number = linux.split_status(status)
        kept = os.pread(self._kept, MOST_KEPT, 0)
        options, _, rest = kept.partition(f"{OPTIONS_END}\n".encode())
        if number or not rest.endswith(f"{WHOLE}\n".encode()):
            super().ended(status)
        # They were for the shell that has ended.
        while self._lines_are_left():
            os.read(self.lines, READ_BYTES)
        os.ftruncate(self._kept, 0)
        # A variable that code has unset would be back from the environment otherwise.
        names = " ".join(filter(str.isidentifier, os.environ))
        os.ftruncate(self._again, 0)
        _write(self._again, f"\\builtin unset {names}\n".encode() + ALIASES.sub(b"", rest) + options)
        self.pid, self._end = self._start(), code
        self._prepare(f" \\. {self._own}/{self._again} </dev/null >/dev/null 2>/dev/null")

    def take_end(self) -> int | None:
        """The exit code of the shell that a new one has replaced since the last call."""
        end, self._end = self._end, None
        return end

    def _start(self) -> int:
        null = os.open(os.devnull, os.O_RDWR)
        path = LANGUAGES["bash"].program
        try:
            return os.posix_spawn(
                path,
                ["bash", "--norc", "--noprofile", f"{self._own}/{self.lines}"],
                os.environ,
                file_actions=[(os.POSIX_SPAWN_DUP2, null, number) for number in range(3)],
                # So that an interrupt reaches the shell and its children, but not this process.
                setpgroup=0,
                setsigmask=[],
                setsigdef=linux.SIGNALS_TO_RESET,
            )
        finally:
            os.close(null)

    def _arm(self, cell: str) -> str:
        """A command that makes interrupts leave the cell; a late one must not hit the next cell."""
        leave = f"{self._answer(f'interrupted {cell}')}; {leave_cell()}"
        return f"\\builtin trap -- {shlex.quote(leave)} INT"

    def _on_error(self) -> str:
        """The ERR trap: under `set -e` a failure ends the cell instead of the shell; a subshell ends as usual."""
        leave = f"\\builtin set +e; {leave_cell(SET_E)}"
        return f"case $-,$BASH_SUBSHELL in *e*,0) {self._answer('failed $?')}; {leave};; esac"

    def _answer(self, text: str) -> str:
        return f"\\builtin printf '%s\\n' \"{text}\" >|{self._own}/{self._answers}"

    def begin(self, name: str, source: bytes, envs: Mapping[str, str], last: int) -> None:
        """Starts a cell. `name` marks its answers; `last` is the exit code that it finds in `$?`."""
        os.ftruncate(self._cell, 0)
        _write(self._cell, source)
        self._write_line(self._run(name, envs, last) + self._report(name))

    def look(self, name: str, question: str) -> None:
        """Has a subshell answer; the answer's name says when it has.

        As a condition it cannot end a shell with `set -e`.
        """
        os.ftruncate(self._said, 0)
        asked = f"if ( {question} ) </dev/null >|{self._own}/{self._said}; then :; fi"
        line = f"{{ {asked}; {self._answer(f'looked {name}')}; }} 2>/dev/null"
        self._write_line(line.replace("\n", " ") + "\n")

    @property
    def said(self) -> bytes:
        """What it has printed for a look."""
        return os.pread(self._said, looks.MOST_BYTES, 0)

    def _run(self, name: str, envs: Mapping[str, str], last: int) -> str:
        set_here = "".join(f"{key}={shlex.quote(value)} " for key, value in envs.items())
        own = self._own
        source = f"\\. {self.cell} </dev/null >|{own}/1 2>|{own}/2"
        # Under `set -e` this would end the shell.
        before = f"case $- in *e*) ;; *) (\\builtin exit {last});; esac; " if last else ""
        # Traces of these lines (`set -x`) go to the shell's own errors. A variable that code made read-only keeps its
        # value.
        return (
            f"{{ {self._arm(name)}; if {set_here}\\builtin :; then {before}{set_here}{source}; else {before}{source}; fi; }}"
            " 2>/dev/null\n"
        )

    def _report(self, name: str) -> str:
        """The line that reports the end of a cell.

        It is separate, so that it is read even if the line before has failed.
        """
        return f"{{ {self._answer(f'{name} $? $BASHOPTS')}; {self._arm(name)}; }} 2>/dev/null\n"

    def _write_line(self, line: str) -> None:
        data = memoryview(line.encode("utf-8", "surrogateescape"))
        while data:
            data = data[os.write(self._lines, data) :]

    def is_silent(self) -> bool:
        """Whether the shell has read all lines and does nothing: a working one may still answer."""
        return not self._lines_are_left() and not self.is_working

    def _lines_are_left(self) -> bool:
        return struct.unpack("i", fcntl.ioctl(self.lines, termios.FIONREAD, b"\0" * 4))[0] > 0

    def interrupt(self) -> None:
        """As Ctrl-C; continues a shell that stopped itself, too. Does nothing before the shell is armed."""
        if not self.armed:
            return
        self.signal(signal.SIGINT, signal.SIGCONT)


def _write(file: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.pwrite(file, view, len(data) - len(view)) :]


class End(NamedTuple):
    """How a cell ended: its exit code, the shell's options, whether it was interrupted, and whether its shell ended."""

    code: int
    options: list[bytes]
    interrupted: bool
    anew: bool = False


class Answers:
    """What the shell has answered while a cell runs."""

    def __init__(self, cell: str) -> None:
        self._cell = cell.encode()
        self._interrupted = False
        self._failed: int | None = None
        self.armed = False
        self.end: End | None = None

    def take(self, line: bytes) -> None:
        """Takes one line. Ignores late lines of other cells and forged ones: user code may write to the pipe."""
        match line.split():
            case [b"armed"]:
                self.armed = True
            case [b"interrupted", self._cell]:
                self._interrupted = True
            case [b"failed", code] if code.isdigit() and self._failed is None:
                self._failed = int(code) & 0xFF
            case [self._cell, code, *options] if code.isdigit() and self.end is None:
                last = int(code) & 0xFF if self._failed is None else self._failed
                self.end = End(last, b"".join(options).split(b":"), self._interrupted)


class ContextLoop:
    """Serves the requests of one context."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._watch = program.Watch()
        self._shell = Shell()
        self._meter, self._measured = process.Meter(self._shell.pid), self._shell.pid
        self._last = 0
        self._answer = b""

    def serve(self) -> None:
        """Returns when the executor has closed the socket. If the shell ends, this process ends in the same way."""
        for frame, fds in self._watch.requests(self._control, self._shell):
            match frame.header.get("op"):
                case "execute":
                    self._execute(frame.header, frame.payload)
                case "complete" | "inspect":
                    with socket.socket(fileno=fds[0]) as sock:
                        self._look(frame.header, frame.payload.decode("utf-8", "replace"), sock)
                case unknown:
                    raise frames.FrameError(f"cannot do {unknown!r}")

    def _look(self, header: Mapping[str, Any], code: str, sock: socket.socket) -> None:
        """Without an answer in time the other end of the socket says so. An interrupt is for a cell that waits."""
        kind, cursor, name = str(header["op"]), int(header["cursor"]), os.urandom(8).hex()
        question = looks.question(kind, code, cursor)
        said = self._asked(name, question, float(header["seconds"])) if question else b""
        if said is not None:
            sock.sendall(looks.answer(kind, code, cursor, int(header.get("detail_level", 0)), said))

    def _asked(self, name: str, question: str, seconds: float) -> bytes | None:
        self._shell.look(name, question)
        wait = self._watch.poller(self._shell.answers)
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            ready = wait(left * 1000)
            if self._watch.was_interrupted(ready, self._shell):
                return None
            lines = self._read_answers() if self._shell.answers in ready else []
            if b"armed" in lines:
                self._shell.armed = True
            if f"looked {name}".encode() in lines:
                return self._shell.said
        return None

    def _execute(self, header: Mapping[str, Any], source: bytes) -> None:
        if b"\0" in source:
            nothing = process.Usage(0.0, 0, 0)
            self._fail("SyntaxError", "cannot run the code: it holds a NUL byte", SYNTAX, nothing)
            return
        # A random name: a cell can forge its own end at most, never that of a later cell.
        cell = os.urandom(8).hex()
        # A shell that has ended between two cells was replaced.
        self._shell.take_end()
        self._measure()
        self._meter.start()
        # Processes that earlier cells left in the background.
        spared = self._shell.children()
        self._shell.begin(cell, source, header.get("envs") or {}, self._last)
        end = self._wait(cell, spared)
        usage = self._meter.stop()
        self._last = end.code
        if end.interrupted:
            self._send({"name": "Interrupted", "value": ""}, "interrupted", 0, usage)
        elif end.code == SYNTAX and (wrong := syntax.error_in(self._shell.cell, extended=b"extglob" in end.options)):
            self._fail("SyntaxError", wrong, end.code, usage)
        elif end.code:
            words = describe_exit_code(end.code) + (f"; {BEGAN_ANEW}" if end.anew else "")
            self._fail("ExitCode", words, end.code, usage)
        else:
            self._send(None, "ok", 0, usage)

    def _measure(self) -> None:
        if self._measured != self._shell.pid:
            self._meter.close()
            self._meter, self._measured = process.Meter(self._shell.pid), self._shell.pid

    def _wait(self, cell: str, spared: set[int]) -> End:
        wait = self._watch.poller(self._shell.answers)
        answers = Answers(cell)
        asked = False
        silent = 0
        while answers.end is None:
            ready = wait(ROUND_SECONDS * 1000)
            if self._shell.answers in ready:
                for line in self._read_answers():
                    answers.take(line)
                self._arm(answers, asked=asked)
            # After the end an interrupt would hit the next cell.
            if answers.end is None and self._watch.was_interrupted(ready, self._shell):
                self._interrupt(spared, again=asked)
                asked = True
            if (code := self._shell.take_end()) is not None:
                self._drop_answers()
                return answers.end or End(code, [], interrupted=False, anew=True)
            silent = silent + 1 if not ready and self._shell.is_silent() else 0
            if silent >= SILENT_ROUNDS:
                self._give_up()
        return answers.end

    def _drop_answers(self) -> None:
        """Drops what the shell before has answered, so that no later cell takes it for its own."""
        while self._shell.answers in self._watch.poller(self._shell.answers)(0):
            self._shell.armed = self._shell.armed or b"armed" in self._read_answers()

    def _arm(self, answers: Answers, *, asked: bool) -> None:
        """Once the shell is armed: repeats an interrupt that came too early."""
        if answers.armed and not self._shell.armed:
            self._shell.armed = True
            if asked:
                self._shell.interrupt()

    def _read_answers(self) -> list[bytes]:
        *lines, self._answer = (self._answer + os.read(self._shell.answers, READ_BYTES)).split(b"\n")
        self._answer = self._answer[:READ_BYTES]
        return lines

    def _interrupt(self, spared: set[int], *, again: bool) -> None:
        self._shell.interrupt()
        if again:
            # Kill the children that ignore interrupts, so that the shell can stay.
            self._shell.kill_below(spared)

    def _give_up(self) -> NoReturn:
        """Ends the context: code has broken the means by which the shell answers."""
        frames.send(self._control, {"event": "broken"})
        os._exit(process.EXIT_BROKEN)

    def _fail(self, name: str, value: str, code: int, usage: process.Usage) -> None:
        self._send({"name": name, "value": value}, "error", code, usage)

    def _send(self, error: dict[str, str] | None, status: str, code: int, usage: process.Usage) -> None:
        done = {
            "event": "done",
            "status": status,
            "cpu": usage.cpu,
            "peak": usage.peak,
            "written": usage.written,
            "exit_code": code,
        }
        report = frames.encode({"event": "error", **error, "traceback": "", "frames": []}) if error else b""
        self._control.sendall(report + frames.encode(done))


def describe_exit_code(code: int) -> str:
    """An exit code in words."""
    with contextlib.suppress(ValueError):
        if code > 128:
            return f"exit code {code} ({signal.Signals(code - 128).name})"
    return f"exit code {code}"


def run(control: socket.socket, options: dict[str, Any]) -> NoReturn:
    """Serves cells until the socket or the shell ends; then ends the process."""
    del options
    control.setblocking(True)
    process.end_after(lambda: ContextLoop(control).serve())

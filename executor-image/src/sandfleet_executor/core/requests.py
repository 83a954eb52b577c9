"""Checks of a caller's request. Each raises BadRequest with "cannot X: why"."""

import math
import re
from collections.abc import Callable, Mapping, Sequence

from sandfleet_executor.core.errors import BadRequest
from sandfleet_executor.core.limits import MAX_OUTPUT_BYTES, Limits

ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,255}")
# In bytes: what Linux takes as argv and environment together with a stack of 8 MiB. The kernel refuses the rest itself.
MAX_ARGV_BYTES = 2 << 20
MAX_ENV_BYTES = 256 << 10
MAX_CODE_BYTES = 8 << 20
# Of an answer to a request for input.
MAX_LINE_BYTES = 64 << 10
DEFAULT_CONTEXT = "default"
TERM = re.compile(r"[A-Za-z0-9._+-]{1,64}")
DEFAULT_TERM = "xterm-256color"
# Rows, and columns.
DEFAULT_TERMINAL = (24, 80)
MAX_TERMINAL_SIZE = 4096
# A terminal's output is followed live and has no limit.
NO_OUTPUT_LIMIT = 1 << 62
MAX_PORT = 65535
# Contexts that one fork makes.
MAX_FORKS = 63
# Rows of a frame in a result.
MAX_ROWS = 10_000


def check_id(kind: str, value: str) -> str:
    if not ID.fullmatch(value):
        raise BadRequest(f"cannot use {value[:80]!r} as {kind}: it has to be 1 to 64 of A-Z a-z 0-9 . _ -")
    return value


def check_new_contexts(ids: Sequence[str]) -> list[str]:
    if not 1 <= len(ids) <= MAX_FORKS:
        raise BadRequest(f"cannot make {len(ids)} contexts: it has to be 1 to {MAX_FORKS}")
    if len(set(ids)) != len(ids):
        raise BadRequest("cannot make contexts: an id is given twice")
    return [check_id("context id", each) for each in ids]


def check_envs(envs: Mapping[str, str]) -> dict[str, str]:
    for name, value in envs.items():
        if not ENV_NAME.fullmatch(name):
            raise BadRequest(f"cannot set environment variable {name[:80]!r}: not a name")
        if "\0" in value:
            raise BadRequest(f"cannot set environment variable {name}: its value holds a NUL")
    if sum(len(name) + len(value.encode()) + 2 for name, value in envs.items()) > MAX_ENV_BYTES:
        raise BadRequest(f"cannot set the environment: it is larger than {MAX_ENV_BYTES} bytes (256 KiB)")
    return dict(envs)


def check_code(code: str) -> str:
    if len(code.encode()) > MAX_CODE_BYTES:
        raise BadRequest(
            f"cannot run the code: it is larger than {MAX_CODE_BYTES} bytes (8 MiB): write it to a file, and import that"
        )
    return code


def check_language(
    language: str, find: Callable[[str], object], names: str, *, doing: str = "create a context for"
) -> str:
    """The language's name; "python" for none. `find` gives None for one that is not there; `names` for the message."""
    if language and find(language) is None:
        raise BadRequest(f"cannot {doing} {language[:80]!r}: languages are {names}")
    return language or "python"


def check_same_language(wished: str, context_id: str, language: str | None) -> None:
    """`language` is the context's; None for a context that does not exist."""
    if language not in (None, wished):
        raise BadRequest(f"cannot run {wished} in context {context_id}: its language is {language}")


def check_timeout(seconds: float | None, limits: Limits) -> float:
    """The deadline in seconds; the sandbox's default for None, infinite for 0 where the longest timeout is 0."""
    if seconds is None:
        return limits.default_timeout
    if seconds == 0 and limits.longest_timeout == math.inf:
        return math.inf
    if not 0 < seconds <= limits.longest_timeout:
        why = "; no deadline (0) needs a template whose longest timeout is 0" if seconds == 0 else ""
        raise BadRequest(
            f"cannot take a timeout of {seconds:g} s: it has to be above 0 and at most {limits.longest_timeout:g}{why}"
        )
    return seconds


def check_output_limit(size: int, limits: Limits) -> int:
    """Bytes of each stream; the sandbox's default for 0."""
    if size > MAX_OUTPUT_BYTES:
        raise BadRequest(f"cannot take an output limit of {size} bytes: the most is {MAX_OUTPUT_BYTES}")
    return size or limits.output_bytes


def check_input(text: str) -> str:
    """One line of input."""
    if "\n" in text or "\r" in text:
        raise BadRequest("cannot send that input: it has more than one line")
    if len(text.encode()) > MAX_LINE_BYTES:
        raise BadRequest(f"cannot send that input: it is longer than {MAX_LINE_BYTES} bytes (64 KiB)")
    return text


def check_size(rows: int, cols: int) -> tuple[int, int]:
    """Of a terminal."""
    if not (1 <= rows <= MAX_TERMINAL_SIZE and 1 <= cols <= MAX_TERMINAL_SIZE):
        raise BadRequest(
            f"cannot make a terminal of {rows} rows and {cols} columns: each has to be 1 to {MAX_TERMINAL_SIZE}"
        )
    return rows, cols


def check_term(term: str) -> str:
    """The terminal's kind; the usual one for an empty name."""
    if term and not TERM.fullmatch(term):
        raise BadRequest(f"cannot use {term[:80]!r} as TERM: it has to be 1 to 64 of A-Z a-z 0-9 . _ + -")
    return term or DEFAULT_TERM


def check_port(port: int) -> int:
    if not 1 <= port <= MAX_PORT:
        raise BadRequest(f"cannot connect to port {port}: it has to be 1 to {MAX_PORT}")
    return port


def check_rows(rows: int) -> int:
    """Check how many rows of each frame a cell is to bring along. Raises BadRequest."""
    if rows > MAX_ROWS:
        raise BadRequest(f"cannot show {rows} rows of a frame: the most are {MAX_ROWS}")
    return rows


def check_cwd(cwd: bytes, workspace: str) -> bytes:
    """An absolute path as user code sees it, like `workspace`. Its use shows whether it exists."""
    if b"\0" in cwd or len(cwd) > 4095:
        raise BadRequest("cannot use that working directory: it holds a NUL or is longer than 4095 bytes")
    return cwd if cwd.startswith(b"/") else workspace.encode() + (b"/" + cwd if cwd else b"")


def command_payload(argv: Sequence[bytes], shell: bytes) -> bytes:
    """What the supervisor takes: the shell line, or argv joined by NUL."""
    if bool(argv) == bool(shell):
        raise BadRequest("cannot start the command: give either argv or a shell line")
    payload = shell or b"\0".join(argv)
    if (shell and b"\0" in shell) or any(b"\0" in argument for argument in argv):
        raise BadRequest("cannot start the command: it holds a NUL")
    if not shell and not argv[0]:
        raise BadRequest("cannot start the command: the program's name is empty")
    if len(payload) > MAX_ARGV_BYTES:
        raise BadRequest(
            f"cannot start the command: it is larger than {MAX_ARGV_BYTES} bytes (2 MiB): use stdin or a file"
        )
    return payload

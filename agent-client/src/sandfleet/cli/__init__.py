"""The command `sandfleet`: one module for each of its commands, imported when it is asked for.

Exit codes: 0 all well, 1 what was run failed, 2 wrong usage, 3 the platform failed, 130 Ctrl-C. `run` ends with the
exit code of its script; `exec` and `shell` end with that of their command, and with 255 when the platform failed.
"""

from __future__ import annotations

import argparse
import difflib
import errno
import json
import os
import re
import signal
import sys
import textwrap
import threading
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import NoReturn

from sandfleet import __version__
from sandfleet.errors import InvalidArgument, SandfleetError
from sandfleet.values import _show
from sandfleet.values._show import visible

OK, FAILED, USAGE, PLATFORM, INTERRUPTED = 0, 1, 2, 3, 130

_COMMANDS = {
    "run": ("sandfleet.cli.run", "run a file in a new sandbox, or in an existing one"),
    "create": ("sandfleet.cli.create", "create a sandbox that stays, and print its id"),
    "cp": ("sandfleet.cli.cp", "copy files between this machine and a sandbox"),
    "sandboxes": (
        "sandfleet.cli.sandboxes",
        "list, describe, suspend, resume and end sandboxes, and run commands in them",
    ),
    "shell": ("sandfleet.cli.shell", "open a terminal in a sandbox, or in a fresh one that ends with it"),
    "forward": ("sandfleet.cli.forward", "forward ports of this machine to a sandbox, until Ctrl-C"),
    "serve": ("sandfleet.cli.serve", "serve previews of what runs in sandboxes to browsers of this machine"),
    "pool": ("sandfleet.cli.fleets.pool", "list the pools of warm sandboxes of a cluster"),
    "queue": ("sandfleet.cli.fleets.queue", "list queues, show how full they are, and explain claims in them"),
    "explain": ("sandfleet.cli.fleets.explain", "explain why a claim waits, or what a reason means: QuotaReached, say"),
    "egress": ("sandfleet.cli.fleets.egress", "show what a sandbox reaches by name, and change what it may reach"),
    "reviews": ("sandfleet.cli.fleets.reviews", "list, show and answer what waits for approval in sandboxes"),
    "trace": ("sandfleet.cli.traces.trace", "draw where the time of a session or a run went"),
    "report": ("sandfleet.cli.traces.report", "write a page of HTML about a session or a run"),
    "skills": ("sandfleet.cli.skills", "list, show, check and approve the skills of a library"),
    "journal": (
        "sandfleet.cli.journals.commands",
        "export, show, check, replay and compare the records of sessions",
    ),
    "snapshot": (
        "sandfleet.cli.snapshots",
        "take, list, describe and delete snapshots of sessions, and move them as files",
    ),
    "jupyter": ("sandfleet.cli.jupyter", "run notebooks of JupyterLab, VS Code and nbclient in sandboxes"),
    "mcp": ("sandfleet.cli.mcp", "give an MCP client a sandbox: serve its tools over stdio"),
    "demo": ("sandfleet.demo", "watch many agent sessions solve real tasks"),
    "eval": ("sandfleet.evals", "run tasks with checkers, and compare policies"),
    "doctor": ("sandfleet.cli.doctor", "check which isolation is available on this machine, and why"),
    "support-bundle": ("sandfleet.cli.fleets.bundle", "write a file about an installation for who helps, no secrets"),
    "dev": ("sandfleet.cli.fleets.dev", "serve a fleet on this machine until Ctrl-C"),
    "completion": ("sandfleet.cli.completion", "print what makes bash, zsh or fish complete this command"),
}
# The help lists the commands by what a person wants to do; each stands in one group.
_GROUPS = {
    "run": ("run", "create", "shell", "cp", "forward", "serve", "jupyter", "mcp", "demo", "eval"),
    "look": ("sandboxes", "trace", "report", "journal", "reviews", "doctor"),
    "data": ("snapshot", "skills", "egress"),
    "fleet": ("dev", "pool", "queue", "explain", "support-bundle", "completion"),
}
_ABOUT = {
    "run": "Run code",
    "look": "Look at sandboxes, and at what happened in them",
    "data": "Keep and share",
    "fleet": "Fleets and queues",
}
# Short for `sandboxes ls`, …
_SHORT = {
    "ls": "list sandboxes",
    "ps": "list the commands that are running in a sandbox",
    "top": "show the fleet, or what one sandbox uses of its limits",
    "exec": "run a command in a sandbox",
    "logs": "show the log of a service",
    "suspend": "end the processes of a session and keep the rest of it",
    "resume": "take a suspended session on",
    "kill": "end sandboxes, with everything in them",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    _open_missing()
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words[:2] == ["completion", "--words"]:
        return int(import_module("sandfleet.cli.completion").complete(words[2:]))
    if not words:
        parser_for(words).print_help(sys.stderr)
        return USAGE
    words, behind = _cut(in_full(words))
    try:
        options = _parsed(words)
        options.behind = behind
    except KeyboardInterrupt:
        return INTERRUPTED
    return carried_out(
        lambda: import_module(_COMMANDS[options.command][0]).run(options), as_json=getattr(options, "json", False)
    )


def carried_out(work: Callable[[], int], *, as_json: bool) -> int:
    """Do the work of a command; return its exit code, also that of a failure, which it reports."""
    try:
        code = work()
        sys.stdout.flush()
    except InvalidArgument as error:
        report(error, as_json=as_json)
        return USAGE
    except SandfleetError as error:
        report(error, as_json=as_json)
        return PLATFORM
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of our output has gone: nothing more can be written there, not even at the exit.
        sys.stdout = sys.stderr
        return FAILED
    except OSError as error:
        # A local error, mostly of our output (a full disk); buffered output cannot be written at the exit either.
        refuse(f"cannot go on: {what(error)}", error, as_json=False)
        sys.stdout = sys.stderr
        return FAILED
    return code


def _open_missing() -> None:
    """Open the null device in the place of streams that were closed before the start: Python has None there."""
    nowhere = Path(os.devnull)
    sys.stdin = sys.stdin or nowhere.open(encoding="utf-8")
    sys.stdout = sys.stdout or nowhere.open("w", encoding="utf-8")
    sys.stderr = sys.stderr or nowhere.open("w", encoding="utf-8")


def end_at_sigterm() -> None:
    """Treat SIGTERM as Ctrl-C, so that a command can first end its work in the sandbox."""
    # A program that calls the command line from another thread handles its signals itself.
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.default_int_handler)


def _parsed(words: list[str]) -> argparse.Namespace:
    parser = parser_for(words)
    options, unknown = parser.parse_known_args(words)
    if unknown:
        hint = "; options of the command go after --" if _takes_command(words) else ""
        parser.error(f"unrecognized arguments: {' '.join(unknown)}{hint}")
    return options


# A suggestion has to be so like a word: "lss" is like "ls", and "services" is not like "reviews".
_NEAR = 0.7


class _Parser(argparse.ArgumentParser):
    """Suggests what a wrong word may have meant; its own help has the commands in groups."""

    def error(self, message: str) -> NoReturn:
        wrong = re.search(r"invalid choice: '([^']*)' \(choose from (.*)\)", message)
        if wrong is None:
            super().error(message)
        known = re.findall(r"[\w-]+", wrong[2])
        # difflib finds no word that is like enough to a short one with two letters exchanged.
        exchanged = [name for name in known if sorted(name) == sorted(wrong[1])]
        near = exchanged or difflib.get_close_matches(wrong[1], known, 2, _NEAR)
        is_command = "COMMAND" in message
        there = "; `sandfleet --help` lists them" if is_command else f": there are {', '.join(known)}"
        hint = f"; did you mean {' or '.join(near)}?" if near else there
        super().error(f"{visible(wrong[1])} is no {'command' if is_command else 'choice here'}{hint}")


def _overview() -> str:
    lines = []
    for group, names in _GROUPS.items():
        lines.append(f"{_ABOUT[group]}:")
        for name in names:
            lines += _entry(name, _COMMANDS[name][1])
            if name == "sandboxes":
                lines += [line for short, summary in _SHORT.items() for line in _entry(f"  {short}", summary)]
        lines.append("")
    return "\n".join([*lines, "`sandfleet COMMAND --help` has the options. `ls` is short for `sandboxes ls`."])


def _entry(name: str, summary: str) -> list[str]:
    first, *rest = textwrap.wrap(summary, 63)
    return [f"  {name:<12} {first}", *(f"{'':<15}{line}" for line in rest)]


def _takes_command(words: Sequence[str]) -> bool:
    return words[:2] == ["sandboxes", "exec"] or words[:1] in (["shell"], ["run"])


def in_full(words: list[str]) -> list[str]:
    """Replace a short word: `ls` is `sandboxes ls`."""
    return ["sandboxes", *words] if words[:1] and words[0] in _SHORT else words


def _cut(words: list[str]) -> tuple[list[str], list[str]]:
    """Cut off the command that `exec` or `shell` runs, or a script's arguments: argparse would drop their own --."""
    if not _takes_command(words) or "--" not in words:
        return words, []
    place = words.index("--")
    return words[:place], words[place + 1 :]


def sentence(summary: str) -> str:
    """Make a sentence of a summary; names in it keep their capitals."""
    return f"{summary[0].upper()}{summary[1:]}."


def parser_for(words: Sequence[str]) -> argparse.ArgumentParser:
    """Make the parser, with the arguments of the command that the words name."""
    parser = _Parser(
        prog="sandfleet",
        usage="sandfleet COMMAND …",
        description="Sandboxes for agents that act by writing code.",
        epilog=_overview(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"sandfleet {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True, help=argparse.SUPPRESS)
    wanted = next((word for word in words if word in _COMMANDS), None)
    for name, (module, summary) in _COMMANDS.items():
        command = commands.add_parser(name, prog=f"sandfleet {name}", description=sentence(summary))
        if name == wanted:
            import_module(module).add_arguments(command)
    for name in _SHORT:
        commands.add_parser(name)
    return parser


def report(error: SandfleetError, *, as_json: bool) -> None:
    """Report a failure of the platform: to people on standard error, to programs as a JSON object."""
    if as_json:
        told = {} if error.retry_after is None else {"retry_after": error.retry_after}
        _print_error(type(error).__name__, error.reason, error.message, retryable=error.retryable, **told)
    else:
        later = "" if error.retry_after is None else f"; try again in {error.retry_after:.0f} s"
        print(f"sandfleet: {error}{later}", file=sys.stderr)


def refuse(message: str, error: Exception | None = None, *, as_json: bool) -> None:
    """Report a failure on this side, in the same two ways; `error` is its cause, if there is one."""
    if as_json:
        code = error.errno if isinstance(error, OSError) else None
        reason = errno.errorcode.get(code or 0, "WrongUsage" if error is None else "CannotRead")
        _print_error(type(error or InvalidArgument("")).__name__, reason, message, retryable=False)
    else:
        print(f"sandfleet: {visible(message)}", file=sys.stderr)


def print_json(value: object) -> None:
    """Print a value of the client for programs, as one line."""
    print(json.dumps(_show.to_json(value)), flush=True)


def what(error: Exception) -> str:
    """Return the message of an operating system's error, without its number and the file."""
    return (isinstance(error, OSError) and error.strerror) or str(error)


def _print_error(kind: str, reason: str, message: str, *, retryable: bool, **told: float) -> None:
    print(json.dumps({"error": {"type": kind, "reason": reason, "message": message, "retryable": retryable, **told}}))

"""The command `sandfleet`: one module for each of its commands, imported when it is asked for.

Exit codes: 0 all well, 1 what was run failed, 2 wrong usage, 3 the platform failed, 130 Ctrl-C. `sandboxes exec` and
`shell` end with the exit code of their command, and with 255 when the platform failed.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from importlib import import_module

from sandfleet.errors import SandfleetError

OK, FAILED, USAGE, PLATFORM, INTERRUPTED = 0, 1, 2, 3, 130

_COMMANDS = {
    "run": ("sandfleet.cli.run", "run a file in a fresh sandbox, or in one that is there"),
    "cp": ("sandfleet.cli.cp", "copy files between this machine and a sandbox"),
    "sandboxes": ("sandfleet.cli.sandboxes", "list, describe and end sandboxes, and run commands in them"),
    "shell": ("sandfleet.cli.shell", "a terminal in a sandbox"),
    "forward": ("sandfleet.cli.forward", "ports of a sandbox as ports of this machine, until Ctrl-C"),
    "pool": ("sandfleet.cli.pool", "the pools of warm sandboxes of a cluster"),
    "demo": ("sandfleet.demo", "watch many agent sessions solve real tasks"),
    "doctor": ("sandfleet.cli.doctor", "what isolation is available here, and why"),
    "dev": ("sandfleet.cli.dev", "serve a fleet on this machine until Ctrl-C"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    words, behind = _cut(words)
    options = _parser(words).parse_args(words)
    options.behind = behind
    try:
        code = import_module(_COMMANDS[options.command][0]).run(options)
    except SandfleetError as error:
        report(error, as_json=options.json)
        return PLATFORM
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has enough; nothing more can be said there, at the exit neither.
        sys.stdout = sys.stderr
        return FAILED
    return int(code)


def _cut(words: list[str]) -> tuple[list[str], list[str]]:
    """Take off the command that `exec` or `shell` is to run: argparse would drop a -- that is the command's own."""
    if (words[:2] != ["sandboxes", "exec"] and words[:1] != ["shell"]) or "--" not in words:
        return words, []
    place = words.index("--")
    return words[:place], words[place + 1 :]


def _parser(words: Sequence[str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="sandfleet", description="Sandboxes for agents that act by writing code.")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    wanted = next((word for word in words if word in _COMMANDS), None)
    for name, (module, summary) in _COMMANDS.items():
        command = commands.add_parser(name, help=summary, description=f"{summary.capitalize()}.")
        if name == wanted:
            import_module(module).add_arguments(command)
    return parser


def report(error: SandfleetError, *, as_json: bool) -> None:
    """Say what the platform could not do: to people on standard error, to programs as a JSON object."""
    if as_json:
        said = {
            "type": type(error).__name__,
            "reason": error.reason,
            "message": error.message,
            "retryable": error.retryable,
        }
        print(json.dumps({"error": said}))
    else:
        print(f"sandfleet: {error}", file=sys.stderr)

"""The command `sandfleet`: one module for each of its commands, imported when it is asked for.

Exit codes: 0 all well, 1 what was run failed, 2 wrong usage, 3 the platform failed, 130 Ctrl-C.
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
    "demo": ("sandfleet.demo", "watch many agent sessions solve real tasks"),
    "doctor": ("sandfleet.cli.doctor", "what isolation is available here, and why"),
    "dev": ("sandfleet.cli.dev", "serve a fleet on this machine until Ctrl-C"),
    "sandboxes": ("sandfleet.cli.sandboxes", "list the sandboxes of this machine"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    options = _parser(words).parse_args(words)
    try:
        code = import_module(_COMMANDS[options.command][0]).run(options)
    except SandfleetError as error:
        _report(error, as_json=options.json)
        return PLATFORM
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has enough; nothing more can be said there, at the exit neither.
        sys.stdout = sys.stderr
        return FAILED
    return int(code)


def _parser(words: Sequence[str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="sandfleet", description="Sandboxes for agents that act by writing code.")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    wanted = next((word for word in words if word in _COMMANDS), None)
    for name, (module, summary) in _COMMANDS.items():
        command = commands.add_parser(name, help=summary, description=f"{summary.capitalize()}.")
        if name == wanted:
            import_module(module).add_arguments(command)
    return parser


def _report(error: SandfleetError, *, as_json: bool) -> None:
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

"""`sandfleet run FILE|-`: run one file in a new sandbox, or in an existing one, and show its output as it comes."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from sandfleet import Sandbox
from sandfleet.cli import FAILED, OK, PLATFORM, USAGE, end_at_sigterm, refuse, what
from sandfleet.values import _show
from sandfleet.values.execution import Blame, CommandResult, Execution, Outcome, Result
from sandfleet.values.fleet import Queued
from sandfleet.values.sandbox import Isolation

_SCRIPT = "/tmp/sandfleet-run"  # noqa: S108  in the sandbox, where /tmp is its own


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what the command takes."""
    parser.add_argument("file", metavar="FILE", help="file to run; - is standard input")
    parser.add_argument("--language", choices=["python", "bash"], default="python")
    parser.add_argument("--timeout", type=float, metavar="SECONDS", help="deadline of the run")
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--sandbox", metavar="ID", help="run in this sandbox and keep it; NAMESPACE/NAME is a CodeSandbox of a cluster"
    )
    where.add_argument("--pool", default="", metavar="POOL", help="claim the sandbox from this pool of a cluster")
    parser.add_argument(
        "--template", default="", metavar="NAME", help="template of the sandbox (default: the pool's, else python)"
    )
    parser.add_argument("-n", "--namespace", metavar="NS", help="namespace of the sandbox, on a cluster")
    parser.add_argument(
        "--max-wait", type=float, default=60.0, metavar="SECONDS", help="how long to wait for a sandbox (default: 60)"
    )
    where.add_argument(
        "--isolation", type=Isolation, choices=[Isolation.NONE, Isolation.NAMESPACE, Isolation.GVISOR], metavar="LEVEL",
        help="weakest acceptable isolation: none, namespace (default) or gvisor",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print only one JSON object, at the end")


def run(options: argparse.Namespace) -> int:
    """Run the file; return 0 if it ended well, 1 if not, 2 if it cannot be read, 3 if the platform failed."""
    try:
        code = sys.stdin.read() if options.file == "-" else Path(options.file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        refuse(f"cannot run {options.file}: {what(error)}", error, as_json=options.json)
        return USAGE
    end_at_sigterm()
    with _open(options) as sandbox:
        ended = _run_bash(sandbox, code, options) if options.language == "bash" else _run_python(sandbox, code, options)
    if options.json:
        print(json.dumps(_show.to_json(ended)))
    elif not ended.ok:
        _explain(ended)
    return OK if ended.ok else PLATFORM if ended.blame is Blame.PLATFORM else FAILED


def _open(options: argparse.Namespace) -> Sandbox:
    if options.sandbox:
        return Sandbox.connect(options.sandbox)
    return Sandbox.create(
        options.template,
        pool=options.pool,
        namespace=options.namespace,
        isolation=options.isolation,
        max_wait=options.max_wait,
        on_queued=_show_queued,
    )


def _show_queued(news: Queued) -> None:
    if not sys.stderr.isatty():
        return
    place = f"position {news.position}" if news.position else "not in the line"
    eta = "" if news.eta is None else f", about {news.eta:.0f} s"
    print(f"sandfleet: waiting for a sandbox: {place}{eta} ({news.reason or 'no reason given'})", file=sys.stderr)


def _run_python(sandbox: Sandbox, code: str, options: argparse.Namespace) -> Execution:
    if options.json:
        return sandbox.run_code(code, timeout=options.timeout)
    return sandbox.run_code(
        code, timeout=options.timeout, on_stdout=_to_stdout, on_stderr=_to_stderr, on_result=_show_result
    )


def _run_bash(sandbox: Sandbox, code: str, options: argparse.Namespace) -> CommandResult:
    # As a file, since one argument of a program is at most 128 KiB long.
    sandbox.files.write(_SCRIPT, code)
    if options.json:
        return sandbox.commands.run(["bash", _SCRIPT], timeout=options.timeout)
    return sandbox.commands.run(["bash", _SCRIPT], timeout=options.timeout, on_stdout=_to_stdout, on_stderr=_to_stderr)


def _to_stdout(text: str) -> None:
    print(text, end="", flush=True)


def _to_stderr(text: str) -> None:
    print(text, end="", file=sys.stderr, flush=True)


def _show_result(result: Result) -> None:
    print(result.text or repr(result), flush=True)


def _explain(ended: Execution | CommandResult) -> None:
    if isinstance(ended, Execution) and ended.error is not None:
        print(ended.error.traceback.rstrip() or f"{ended.error.name}: {ended.error.value}", file=sys.stderr)
    if ended.outcome is not Outcome.ERROR:
        print(f"sandfleet: {ended.outcome}: {ended.message}", file=sys.stderr)

"""`sandfleet create`: make a sandbox that stays, and say its id; and what all commands that make one have in common."""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sandfleet import Fleet, Sandbox
from sandfleet._fleets import discovery
from sandfleet.cli import OK, table
from sandfleet.errors import InvalidArgument, SandfleetError, UnavailableError
from sandfleet.values._show import clip
from sandfleet.values.sandbox import Isolation

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sandfleet.values.fleet import Queued

DEFAULT_KEEP = 3600.0
NO_QUEUE = "cannot wait in a queue for a sandbox that exists: give --queue and --priority where it is created"
# How often the process in the background looks whether its sandbox is still there, in seconds.
_LOOK = 1.0
_DURATION = re.compile(r"(\d+(?:\.\d+)?)([smhd]?)")
_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what the command takes."""
    parser.add_argument(
        "--keep",
        type=duration,
        default=DEFAULT_KEEP,
        metavar="TIME",
        help="how long the sandbox stays without a renewal: 90s, 30m, 1h, 2d (default: 1h)",
    )
    add_claim_arguments(parser, parser)
    parser.add_argument(
        "--upload", type=Path, metavar="DIR", help="first copy the contents of this directory to /workspace"
    )
    parser.add_argument("--json", action="store_true", help="print a JSON object")


def add_claim_arguments(parser: argparse._ActionsContainer, where: argparse._ActionsContainer) -> None:
    """Declare what a claim takes; `where` has what an existing sandbox excludes."""
    _add_origin_arguments(parser, where)
    add_queue_arguments(parser)
    parser.add_argument("-n", "--namespace", metavar="NS", help="namespace of the sandbox, on a cluster")
    parser.add_argument(
        "--max-wait", type=float, default=60.0, metavar="SECONDS", help="how long to wait for a sandbox (default: 60)"
    )
    parser.add_argument(
        "-e",
        "--env",
        type=_variable,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="set an environment variable; may be repeated",
    )
    where.add_argument(
        "--egress",
        action="append",
        default=[],
        metavar="HOST",
        help="let the sandbox reach this host, like packages.example.com, *.example.org:443 or 'GET api.example.com/v1/*'; may be "
        "repeated",
    )
    parser.add_argument(
        "--mount",
        type=_mount,
        action="append",
        default=[],
        metavar="PATH[=FOLDER]",
        help="find a folder of /workspace at this path as well, like /app or /app=src; may be repeated",
    )


def _add_origin_arguments(parser: argparse._ActionsContainer, where: argparse._ActionsContainer) -> None:
    """Declare what a sandbox is made of."""
    where.add_argument("--pool", default="", metavar="POOL", help="claim the sandbox from this pool of a cluster")
    where.add_argument(
        "--isolation", type=Isolation, choices=[Isolation.NONE, Isolation.NAMESPACE, Isolation.GVISOR], metavar="LEVEL",
        help="weakest acceptable isolation: none, namespace (default) or gvisor",
    )  # fmt: skip
    parser.add_argument(
        "--template", default="", metavar="NAME", help="template of the sandbox (default: the pool's, else python)"
    )
    where.add_argument(
        "--image", default="", metavar="IMAGE", help="run on this image: on one machine also a folder or an archive"
    )
    where.add_argument("--snapshot", default="", metavar="NAME", help="begin with this snapshot, by its name or id")


def add_queue_arguments(parser: argparse._ActionsContainer) -> None:
    """Declare in which queue a claim waits."""
    parser.add_argument(
        "--queue", default="", metavar="QUEUE", help="wait in this queue, and use its quota (default: default, if any)"
    )
    parser.add_argument(
        "--priority", default="", metavar="CLASS", help="priority class of the queue (default: its last)"
    )


def duration(text: str) -> float:
    """Read "90s", "30m", "1h", "2d" or a number of seconds."""
    match = _DURATION.fullmatch(text)
    if not match or not float(match[1]):
        raise argparse.ArgumentTypeError(f"cannot use {text!r} as a time: write it like 90s, 30m, 1h or 2d")
    return float(match[1]) * _SECONDS[match[2]]


def _variable(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise argparse.ArgumentTypeError(f"cannot use {text!r} as a variable: write it like NAME=VALUE")
    return name, value


def _mount(text: str) -> tuple[str, str]:
    path, equals, folder = text.partition("=")
    if not path.startswith("/") or bool(equals) != bool(folder):
        raise argparse.ArgumentTypeError(f"cannot mount {text!r}: write it like /app or /app=FOLDER")
    return path, folder


def run(options: argparse.Namespace) -> int:
    """Make a sandbox that outlives this command, and print its id."""
    with kept(options, options.keep, envs=dict(options.env)) as sandbox:
        if options.upload:
            sandbox.files.upload(options.upload, ".")
        if options.json:
            print(json.dumps({"sandbox_id": sandbox.sandbox_id, "seconds": options.keep}))
        else:
            print(sandbox.sandbox_id)
            if sys.stdout.isatty():
                print(hint(sandbox.sandbox_id, options.keep), file=sys.stderr)
    return OK


def hint(sandbox_id: str, seconds: float) -> str:
    """Say how to go on with a sandbox that stays."""
    return (
        f"sandfleet: sandbox {sandbox_id} stays for {table.length(seconds)}: "
        f"sandfleet shell {sandbox_id}, sandfleet kill {sandbox_id}"
    )


def claim(options: argparse.Namespace, **lasting: Any) -> Sandbox:
    """Claim a sandbox, with more arguments of `Sandbox.create` where it is to outlast this command."""
    try:
        return Sandbox.create(
            **wish(options), pool=options.pool, namespace=options.namespace, on_queued=show_queued, **lasting
        )
    finally:
        clear_queued()


def wish(options: argparse.Namespace) -> dict[str, Any]:
    """Return the arguments of `Sandbox.create` that its options of a command say."""
    return {
        "template": options.template,
        "isolation": options.isolation,
        "max_wait": options.max_wait,
        "mounts": dict(options.mount),
        "egress": options.egress or None,
        "queue": options.queue,
        "priority": options.priority,
        "snapshot": options.snapshot,
        "image": options.image,
    }


def claim_words(options: argparse.Namespace) -> list[str]:
    """Return the words by which another command claims the same sandbox."""
    known = ("pool", "isolation", "template", "image", "snapshot", "queue", "priority", "namespace")
    words = [word for name in known if getattr(options, name) for word in (f"--{name}", str(getattr(options, name)))]
    words += ["--max-wait", str(options.max_wait)]
    words += [word for name, value in options.env for word in ("--env", f"{name}={value}")]
    return words + [
        word for path, folder in options.mount for word in ("--mount", f"{path}={folder}" if folder else path)
    ]


def kept(options: argparse.Namespace, seconds: float, *, envs: Mapping[str, str] | None = None) -> Sandbox:
    """Claim a sandbox that stays, and connect to it without renewing its lease.

    On one machine a process in the background holds its fleet, and ends with the sandbox.
    """
    if discovery.is_named(pool=options.pool, namespace=options.namespace):
        made = claim(options, timeout=seconds, envs=envs, keep_alive=False)
        sandbox_id = made.sandbox_id
        made.close()
    else:
        sandbox_id = _held(options, seconds, envs or {})
    return Sandbox.connect(sandbox_id, keep_alive=False)


def _held(options: argparse.Namespace, seconds: float, envs: Mapping[str, str]) -> str:
    asked = {**wish(options), "timeout": seconds, "envs": dict(envs)}
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "sandfleet.cli.create"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
        cwd="/",
    )
    assert process.stdin is not None
    assert process.stdout is not None
    with process.stdout:
        # A process that has ended already has no answer either.
        with suppress(BrokenPipeError), process.stdin:
            process.stdin.write(json.dumps(asked))
        said = process.stdout.readline()
    answer = json.loads(said or '{"error": "its process ended without a word", "reason": "FleetNotStarted"}')
    if "error" in answer:
        message = f"cannot create a sandbox that stays: {answer['error']}"
        kind = InvalidArgument if answer.get("kind") == "InvalidArgument" else UnavailableError
        raise kind(message, reason=answer["reason"])
    return str(answer["sandbox_id"])


def show_queued(news: Queued) -> None:
    """Say on a terminal what a claim waits for."""
    if not sys.stderr.isatty():
        return
    place = f"position {news.position}" if news.position else "not in the line"
    if news.message:
        why = f": {news.message}"
    else:
        eta = "" if news.eta is None else f", about {news.eta:.0f} s"
        why = f"{eta} ({news.reason or 'no reason given'})"
    line = table.plain(f"sandfleet: waiting for a sandbox: {place}{why}")
    print(f"\r{clip(line, table.width())}\033[K", end="\r", file=sys.stderr, flush=True)


def clear_queued() -> None:
    """Take the line of `show_queued` away: the sandbox is there, or the wait is over."""
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr, flush=True)


def hold() -> None:
    """Hold the fleet of one sandbox that stays, in the background, until the sandbox ends.

    Reads the claim as JSON from standard input, and prints the sandbox's id or the error as JSON.
    """
    try:
        asked = json.load(sys.stdin)
        fleet = Fleet.connect(pool_size=0)
        sandbox = Sandbox.create(fleet=fleet, keep_alive=False, **asked)
    except SandfleetError as error:
        _answer({"error": error.message, "reason": error.reason, "kind": type(error).__name__})
        return
    sandbox.close()
    _answer({"sandbox_id": sandbox.sandbox_id})
    while fleet.list():
        time.sleep(_LOOK)


def _answer(said: dict[str, str]) -> None:
    print(json.dumps(said), flush=True)
    # The caller's pipe must not stay open for as long as the sandbox.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    hold()

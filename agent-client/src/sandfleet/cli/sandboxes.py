"""`sandfleet sandboxes ls|get|top|suspend|resume|kill|exec|services|logs`: those of a cluster, or of this machine."""

from __future__ import annotations

import argparse
import json
import os
import socket
import struct
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path

from sandfleet import Fleet, Sandbox
from sandfleet import _portal as portal
from sandfleet._fleets import cluster, discovery
from sandfleet.cli import (
    FAILED,
    INTERRUPTED,
    OK,
    USAGE,
    end_at_sigterm,
    print_json,
    refuse,
    report,
    sentence,
    services,
    table,
    top,
)
from sandfleet.cli.create import duration
from sandfleet.cli.terminal import interrupts, output
from sandfleet.errors import SandboxEnded, SandboxError, SandfleetError
from sandfleet.values import _show
from sandfleet.values.execution import Blame, CommandResult, Outcome, RunningCommand
from sandfleet.values.fleet import SandboxChange
from sandfleet.values.sandbox import SandboxInfo
from sandfleet.values.suspension import Resumption, Suspension

# The exit code of `exec` if the command has none.
NO_COMMAND = 255

_COLUMNS = ("SANDBOX", "STATE", "AGE", "LEASE ENDS", "TEMPLATE", "POOL", "ISOLATION", "WHOSE", "LABELS")
# Columns that narrow terminals go without, the least first.
_LESS = ("LABELS", "POOL", "ISOLATION", "TEMPLATE", "WHOSE")
_NONE = "no sandbox runs: `sandfleet create` makes one that stays"
_COMMANDS = ("COMMAND ID", "PID", "AGE", "COMMAND")
_WIDTH = 80
# Fixed widths: a watch prints its rows one by one.
_WATCHED = "{:<10}  {:<40}  {:<10}  {:<16}  {}"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what the command takes."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    listing = _action(actions, "ls", "list sandboxes", "print a JSON array; with --watch one object a line")
    listing.add_argument("-A", "--all-namespaces", action="store_true", help="list the sandboxes of all namespaces")
    listing.add_argument(
        "-l", "--selector", default="", metavar="KEY=VALUE,…", help="list only sandboxes with these labels"
    )
    listing.add_argument("--warm", action="store_true", help="on one machine: also those that no session has yet")
    listing.add_argument("-w", "--watch", action="store_true", help="then show changes, until Ctrl-C")
    described = "describe a sandbox, its isolation and limits included"
    _action(actions, "get", described, "print a JSON object").add_argument("sandbox", metavar="ID")
    shown = "show the fleet, or what one sandbox uses of its limits, until Ctrl-C"
    looking = _action(actions, "top", shown, "print one object a line")
    looking.add_argument("--count", type=int, metavar="N", help="of the fleet: end after N looks")
    looking.add_argument(
        "--interval", type=float, default=1.0, metavar="SECONDS", help="shortest interval: 0.1 to 60 (default: 1)"
    )
    looking.add_argument("sandbox", metavar="ID", nargs="?", default="", help="without it the fleet is shown")
    _add_suspension(actions)
    _action(actions, "kill", "end sandboxes, with everything in them", "print a JSON object").add_argument(
        "sandboxes", metavar="ID", nargs="+"
    )
    _action(actions, "services", "list the services of a sandbox", "print a JSON array").add_argument(
        "sandbox", metavar="ID"
    )
    logs = _action(
        actions,
        "logs",
        "show the log of a service",
        "print a JSON object; with --follow one object for each piece",
    )
    logs.add_argument("-f", "--follow", action="store_true", help="then show new output, until Ctrl-C")
    logs.add_argument("--tail", type=int, metavar="LINES", help="show only so many of the last lines")
    output.add_argument(logs)
    logs.add_argument("sandbox", metavar="ID")
    logs.add_argument("service", metavar="SERVICE")
    _action(actions, "ps", "list the commands that are running in a sandbox", "print a JSON array").add_argument(
        "sandbox", metavar="ID"
    )
    _add_exec(actions)


def _add_suspension(actions: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    summary = "end the processes of a session and keep its files, variables and services"
    suspending = _action(actions, "suspend", summary, "print a JSON object")
    suspending.add_argument(
        "--force", action="store_true", help="end what runs in it, and go without what cannot be saved"
    )
    suspending.add_argument(
        "--timeout", type=duration, metavar="TIME", help="how long it may stay suspended: 90s, 30m, 1h, 2d"
    )
    suspending.add_argument(
        "--to",
        choices=("volume", "snapshot"),
        default="volume",
        help="snapshot: nothing else is left of it, and it outlives its fleet (default: %(default)s)",
    )
    suspending.add_argument("sandbox", metavar="ID")
    resuming = _action(actions, "resume", "take a suspended session on", "print a JSON object")
    resuming.add_argument(
        "--max-wait", type=float, default=60.0, metavar="SECONDS", help="how long to wait for a place (default: 60)"
    )
    resuming.add_argument("sandbox", metavar="ID")


def _add_exec(actions: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    execute = _action(actions, "exec", "run a command in a sandbox", "print only one JSON object, at the end")
    execute.add_argument("-i", "--stdin", action="store_true", help="pass standard input to the command")
    execute.add_argument("--cwd", default="", metavar="DIR", help="working directory, relative to /workspace")
    execute.add_argument("--timeout", type=float, metavar="SECONDS", help="deadline of the command")
    output.add_argument(execute)
    execute.add_argument("sandbox", metavar="ID")
    execute.add_argument("words", metavar="-- CMD", nargs="*", help="the command and its arguments, after --")


def _action(
    actions: argparse._SubParsersAction[argparse.ArgumentParser],  # the library has no public name for it
    name: str,
    summary: str,
    as_json: str,
) -> argparse.ArgumentParser:
    made = actions.add_parser(name, help=summary, description=sentence(summary))
    made.add_argument("-n", "--namespace", metavar="NS", help="namespace of the sandbox, on a cluster")
    made.add_argument("--json", action="store_true", help=as_json)
    return made


def run(options: argparse.Namespace) -> int:
    """Run the action."""
    match options.action:
        case "ls":
            return _watch(options) if options.watch else _list(options)
        case "get":
            return _get(options)
        case "top":
            return _top(options)
        case "suspend":
            return _suspend(options)
        case "resume":
            return _resume(options)
        case "kill":
            return _kill(options)
        case "services":
            return services.show(full_id(options.sandbox, options), options)
        case "ps":
            return _processes(options)
        case "logs":
            return services.logs(full_id(options.sandbox, options), options)
    return _exec(options)


def _list(options: argparse.Namespace) -> int:
    found = Sandbox.list(options.selector, namespace=_namespace(options), warm=options.warm)
    if options.json:
        print_json(found)
    else:
        owners = {} if discovery.is_named(namespace=_namespace(options)) else _owners()
        now = datetime.now(UTC)
        rows = (_row(info, now, owners.get(info.sandbox_id, "-")) for info in found)
        table.show(_COLUMNS, rows, drop=_LESS, none=_NONE)
    return OK


def _row(info: SandboxInfo, now: datetime, owner: str) -> tuple[str, ...]:
    return (
        info.sandbox_id,
        info.state,
        table.since(info.created, now),
        table.until(info.lease_expires or info.suspended_until, now),
        info.template,
        info.pool or "-",
        info.isolation,
        owner,
        table.pairs(info.labels.items()),
    )


def _owners() -> dict[str, str]:
    """Return whose the sandboxes of this machine are: the process that each fleet belongs to."""
    owners = {}
    for address in discovery.addresses():
        with suppress(SandfleetError, OSError), Fleet.connect(address) as fleet:
            owner = client_of(address)
            owners.update(dict.fromkeys((info.sandbox_id for info in fleet.list(warm=True)), owner))
    return owners


def client_of(address: str) -> str:
    """Name the parent of the process that serves at an address. Raises OSError."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(address.removeprefix("unix:"))
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    server = struct.unpack("3i", credentials)[0]
    status = Path(f"/proc/{server}/stat").read_text(encoding="utf-8", errors="replace")
    client = int(status.rpartition(") ")[2].split()[1])
    words = Path(f"/proc/{client}/cmdline").read_bytes().decode("utf-8", "replace").split("\0")
    if "sandfleet.cli.create" in words:
        return "kept"
    return f"{table.plain(program(words))[:30]} ({client})"


def program(words: Sequence[str]) -> str:
    """Name a program by its command line: a script or module of Python by its own name, without the interpreter."""
    rest = list(words)
    if "python" in Path(rest[0]).name:
        rest = rest[1:]
        while rest and rest[0].startswith("-") and rest[0] not in ("-m", "-c", "-"):
            rest = rest[2:] if rest[0] in ("-X", "-W") else rest[1:]
    if rest[:1] == ["-m"]:
        rest = rest[1:]
    elif rest[:1] in ([], ["-c"], ["-"], [""]):
        # The text of the program says little, and may be long.
        return " ".join([Path(words[0]).name, *rest[:1]]).strip()
    return " ".join([Path(rest[0]).name, *rest[1:]]).strip()


def _processes(options: argparse.Namespace) -> int:
    with Sandbox.connect(full_id(options.sandbox, options), keep_alive=False) as sandbox:
        found = sandbox.commands.list()
    now = datetime.now(UTC)

    def row(one: RunningCommand) -> tuple[str, ...]:
        words = table.plain(" ".join(one.argv))[:_WIDTH]
        return one.execution_id, str(one.pid or "-"), table.since(one.started, now), words

    return table.listing(found, _COMMANDS, row, as_json=options.json, none="no command runs")


def _watch(options: argparse.Namespace) -> int:
    namespace = _namespace(options)
    # Only a cluster can be watched, so no embedded fleet is started for this.
    named = os.environ.get("SANDFLEET_ADDRESS") or cluster.KUBERNETES
    with Fleet.connect(named, namespace=namespace) as fleet:
        changes = fleet.watch(options.selector, namespace=namespace)
        if options.json:
            for change in changes:
                print_json(change)
        else:
            _show_changes(changes)
    return OK


def _show_changes(changes: Iterable[SandboxChange]) -> None:
    for number, change in enumerate(changes):
        if number == 0:
            print(_WATCHED.format("CHANGE", "SANDBOX", "STATE", "TEMPLATE", "LABELS"), flush=True)
        if (info := change.sandbox) is not None:
            # Why it cannot be read is more than its labels of before.
            last = change.message or table.pairs(info.labels.items())
            print(_WATCHED.format(change.kind, info.sandbox_id, info.state, info.template, last), flush=True)


def _get(options: argparse.Namespace) -> int:
    sandbox_id = full_id(options.sandbox, options)
    fleet = Fleet(portal.run(discovery.find_fleet_of(sandbox_id)))
    info, silent = fleet.get(sandbox_id), ""
    try:
        with Sandbox.connect(sandbox_id, fleet=fleet, keep_alive=False) as sandbox:
            info = sandbox.get_info()
    except SandboxError as error:
        # The sandbox may not be ready, or the user may only look at it: then show what the fleet knows.
        silent = error.message
    if options.json:
        print_json(info)
        return OK
    lines = {
        "sandbox": info.sandbox_id,
        "state": info.state,
        "template": info.template,
        "pool": info.pool or "-",
        "labels": table.pairs(info.labels.items()),
        "created": table.moment(info.created),
        "lease ends": table.moment(info.lease_expires),
        **({"suspended": f"until {table.moment(info.suspended_until)}"} if info.suspended_until else {}),
        "workspace": info.workspace_id or "-",
        "mounts": table.pairs(info.mounts.items()),
        "isolation": f"{info.isolation} ({', '.join(info.separations) or 'nothing said'})",
        "egress": f"{info.egress.state} ({info.egress.message or 'nothing said'})",
        "kernel": info.kernel,
        "executor": info.executor_version,
        "restarts": f"{info.restarts} ({info.last_restart_reason})" if info.restarts else "0",
    }
    if silent:
        lines["executor"] = silent
    for name, value in lines.items():
        print(table.wrapped(f"{name + ':':<12} {value}".rstrip(), 13))
    return OK


def _top(options: argparse.Namespace) -> int:
    if not options.sandbox:
        # Late: it imports commands that import this one.
        return int(import_module("sandfleet.cli.fleets.live").follow(options))
    with Sandbox.connect(full_id(options.sandbox, options), keep_alive=False) as sandbox:
        usages = sandbox.watch_usage(options.interval)
        named = top.Names(sandbox.commands.list)
        top.follow(usages, as_json=options.json, name=sandbox.sandbox_id, out=sys.stdout, named=named)
    return OK


def _suspend(options: argparse.Namespace) -> int:
    sandbox_id = full_id(options.sandbox, options)
    kept = Sandbox.suspend(sandbox_id, force=options.force, timeout=options.timeout, to=options.to)
    if options.json:
        print_json(kept)
        return OK
    until = f" until {table.moment(kept.until)}" if kept.until else ""
    print(f"{sandbox_id} suspended{until}: {_carried(kept) if kept.known else 'it was suspended before'}")
    _tell("ended", kept.ended_executions)
    _tell("not kept", kept.lost)
    return OK


def _resume(options: argparse.Namespace) -> int:
    sandbox_id = full_id(options.sandbox, options)
    # It goes on without this process, for as long as its lease.
    sandbox = Sandbox.resume(sandbox_id, max_wait=options.max_wait, keep_alive=False)
    try:
        info, back = sandbox.get_info(), sandbox.resumption
    finally:
        sandbox.close()
    assert back is not None
    if options.json:
        print_json({"sandbox": info, "resumption": back})
        return OK
    print(f"{sandbox_id} resumed, its lease ends {table.moment(info.lease_expires)}: {_carried(back)}")
    _tell("not back", back.lost)
    return OK


def _carried(what: Suspension | Resumption) -> str:
    counts = {
        "variable": sum(one.variables for one in what.contexts),
        "context": len(what.contexts),
        "service": len(what.services),
    }
    return ", ".join(f"{count} {name}{'' if count == 1 else 's'}" for name, count in counts.items())


def _tell(what: str, names: Sequence[str]) -> None:
    for name in names:
        print(f"  {what}: {table.plain(name)}")


def _kill(options: argparse.Namespace) -> int:
    """End all sandboxes, also after a failure of one; return 1 if one had ended before."""
    was_there = {one: _end(full_id(one, options)) for one in options.sandboxes}
    if options.json:
        print(json.dumps({"killed": was_there}))
    else:
        for name, killed in was_there.items():
            print(
                f"{name} killed" if killed else f"{name} is not there: it has ended, or never was",
                file=sys.stdout if killed else sys.stderr,
            )
    return OK if all(was_there.values()) else FAILED


def _end(sandbox_id: str) -> bool:
    try:
        fleet = portal.run(discovery.find_fleet_of(sandbox_id))
    except SandboxEnded:
        return False
    return portal.run(fleet.release(sandbox_id))


def _exec(options: argparse.Namespace) -> int:
    """Run the command; return its exit code, 255 if the platform failed."""
    if not (options.words or options.behind):
        refuse("cannot run a command: none is given; use sandboxes exec ID -- CMD…", as_json=options.json)
        return USAGE
    try:
        with Sandbox.connect(full_id(options.sandbox, options)) as sandbox:
            ended = _run(sandbox, options)
    except SandfleetError as error:
        report(error, as_json=options.json)
        return NO_COMMAND
    if options.json:
        print_json(ended)
    elif ended.outcome not in (Outcome.OK, Outcome.ERROR):
        print(f"sandfleet: {ended.outcome}: {_show.visible(ended.message)}", file=sys.stderr)
    if ended.blame is Blame.PLATFORM:
        return NO_COMMAND
    if ended.outcome is Outcome.INTERRUPTED:
        return INTERRUPTED
    # A command that was ended from outside may have no exit code of its own.
    return ended.exit_code or (OK if ended.ok else FAILED)


def _run(sandbox: Sandbox, options: argparse.Namespace) -> CommandResult:
    end_at_sigterm()
    given = sys.stdin.buffer.read() if options.stdin else None
    handle = sandbox.commands.run(
        [*options.words, *options.behind], cwd=options.cwd, timeout=options.timeout, stdin=given, background=True
    )
    with output.opened(options) as outputs:
        return interrupts.followed(handle, None if options.json else outputs)


def _namespace(options: argparse.Namespace) -> str | None:
    return "" if options.all_namespaces else options.namespace


def full_id(name: str, options: argparse.Namespace) -> str:
    """Return the id of a sandbox: in a cluster a bare name is in the namespace."""
    if "/" in name:
        return name
    if options.namespace:
        return f"{options.namespace}/{name}"
    if not os.environ.get("SANDFLEET_ADDRESS") and cluster.is_chosen(asked=False):
        return f"{cluster.sandbox_namespace()}/{name}"
    return name

"""`sandfleet journal export|show|verify|replay|compare`: the records of sessions."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from sandfleet.cli import FAILED, OK, sentence
from sandfleet.cli.journals import files, shown
from sandfleet.errors import InvalidArgument, PreconditionFailed
from sandfleet.journal import records
from sandfleet.journal.notebook import page, visible
from sandfleet.journal.side_by_side import side_by_side
from sandfleet.journal.verify import Verifier

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sandfleet.journal.records import Record
    from sandfleet.replay.runner import Replayed
    from sandfleet.sandbox import AsyncSandbox
    from sandfleet.values.options import CreateOptions

_SAID = {
    "export": "copy the journal of a sandbox to a file, with the heads that prove it",
    "show": "show a journal as a notebook",
    "verify": "check a journal, and say who vouches for which records",
    "replay": "do a session again in a fresh sandbox, and compare each step",
    "compare": "put two sessions side by side",
}
_FILE = "a journal that was exported; - is standard input"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what the command takes."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    made = {name: actions.add_parser(name, help=said, description=sentence(said)) for name, said in _SAID.items()}
    made["export"].add_argument("sandbox", metavar="SANDBOX", help="its id")
    made["export"].add_argument("-o", "--output", metavar="FILE", help="the file (SANDBOX.journal)")
    made["export"].add_argument("--pod", default="", metavar="UID", help="an earlier pod on the same workspace")
    made["export"].add_argument("--no-sign", action="store_true", help="do not have the fleet sign the newest head")
    for name in ("show", "verify"):
        made[name].add_argument("file", metavar="FILE", help=_FILE)
    _add_proofs(made["verify"])
    _add_replay(made["replay"])
    made["compare"].add_argument("file", metavar="A", help="the journal of a session")
    made["compare"].add_argument("other", metavar="B", help="the journal of another one")
    for action in made.values():
        action.add_argument("--json", action="store_true", help="print JSON")


def _add_proofs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--heads",
        action="append",
        metavar="FILE",
        help="heads to check with, beside FILE.heads: a client's, or the control plane's audit log; may be repeated",
    )
    parser.add_argument("--keys", metavar="FILE", help="the fleet's keys (JWKS); no other signature counts then")
    parser.add_argument(
        "--ca", metavar="FILE", help="the cluster's authority (PEM); only keys count that it has signed"
    )


def _add_replay(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help=_FILE)
    parser.add_argument("--upto", type=int, default=0, metavar="N", help="do the records up to N, and keep the sandbox")
    parser.add_argument("--go-on", action="store_true", help="go on behind a step that differs or cannot be done again")
    parser.add_argument("--template", default="", metavar="NAME", help="of the fresh sandbox (as the session's)")
    parser.add_argument("--pool", default="", metavar="NAME", help="where the fresh sandbox comes from")
    parser.add_argument(
        "--env",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a variable that executions had; may be repeated",
    )
    parser.add_argument("--keep", action="store_true", help="keep the sandbox, and print its id")


def run(options: argparse.Namespace) -> int:
    """Do what the action says. Raises SandfleetError."""
    match options.action:
        case "export":
            return asyncio.run(_export(options))
        case "show":
            return _show(options)
        case "verify":
            return _verify(options)
        case "replay":
            return asyncio.run(_replay(options))
        case _:
            return _compare(options)


async def _export(options: argparse.Namespace) -> int:
    from sandfleet import AsyncSandbox
    from sandfleet.replay.files import unreadable

    target = options.output or f"{options.sandbox.replace('/', '.')}.journal"
    async with AsyncSandbox.connect(options.sandbox) as sandbox:
        try:
            done = await sandbox.journal.export(target, pod_uid=options.pod, sign=not options.no_sign)
        except OSError as error:
            raise unreadable(target, error) from error
    if options.json:
        said = {"path": str(done.path), "heads": str(done.heads_path), "bytes": done.size, "signed": done.is_signed}
        print(json.dumps({**said, "verification": shown.verification_json(done.verification)}, indent=2))
    else:
        print(f"{done.path}: {done.size} bytes")
        shown.verification(done.verification)
    return OK if done.verification.ok else FAILED


def _show(options: argparse.Namespace) -> int:
    verifier = Verifier()
    for line in records.lines(files.chunks(options.file)):
        record = verifier.take(line)
        if record is None:
            continue
        if options.json:
            print(line.data.decode("ascii", "backslashreplace"))
        else:
            print("\n".join([*page(record, shown.paint), ""]))
    found = verifier.end()
    if not found.ok:
        print(f"sandfleet: the journal has {found.fault_count} faults: see sandfleet journal verify", file=sys.stderr)
    return OK if found.count else FAILED


def _verify(options: argparse.Namespace) -> int:
    verifier = Verifier(files.heads_for(options), files.keys_for(options.keys, options.ca))
    for line in records.lines(files.chunks(options.file)):
        verifier.take(line)
    found = verifier.end()
    if options.json:
        print(json.dumps(shown.verification_json(found), indent=2))
    else:
        shown.verification(found)
    return OK if found.ok and found.count else FAILED


async def _replay(options: argparse.Namespace) -> int:
    from sandfleet.replay.runner import replay

    found = files.records_of(options.file)
    envs = files.environment(options.env)
    keeps = options.keep or bool(options.upto)
    sandbox = await _fresh(options, found, envs)
    try:

        def tell(step: Replayed) -> None:
            print(shown.step_json(step), flush=True) if options.json else shown.step(step)

        done = await replay(found, sandbox, upto=options.upto, go_on=options.go_on, envs=envs, on_step=tell)
    except BaseException:  # Also a cancellation: what is not told must not be kept.
        keeps = False
        raise
    finally:
        await (sandbox.close() if keeps else sandbox.kill())
    if options.json:
        print(json.dumps({"sandbox": done.sandbox_id if keeps else "", "ok": done.ok, "stopped": done.stopped}))
    else:
        shown.replayed(done)
        if keeps:
            print(f"the sandbox {done.sandbox_id} stands behind the last step")
    return OK if done.ok else FAILED


async def _fresh(options: argparse.Namespace, found: list[Record], envs: Mapping[str, str]) -> AsyncSandbox:
    """A sandbox like the recorded one. Where limits or mounts are not to be had, one without them."""
    from sandfleet import AsyncSandbox
    from sandfleet.replay.settings import session_settings

    about = files.exported(options.file)
    template = options.template or (about.template if about else "")
    contract: Literal["", "brokered"] = "brokered" if any(record.kind == "tool_call" for record in found) else ""
    settings: CreateOptions = {"pool": options.pool, "contract": contract, **session_settings(found, envs)}
    try:
        return await AsyncSandbox.create(template, **settings)
    except (InvalidArgument, PreconditionFailed) as error:
        if "limits" not in settings and "mounts" not in settings:
            raise
        settings.pop("limits", None)
        settings.pop("mounts", None)
        why = visible(error.message)
        print(f"sandfleet: {why}: the replay goes on without the session's limits and mounts", file=sys.stderr)
    return await AsyncSandbox.create(template, **settings)


def _compare(options: argparse.Namespace) -> int:
    found = side_by_side(files.records_of(options.file), files.records_of(options.other))
    if options.json:
        print(json.dumps(shown.comparison_json(found), indent=2))
    else:
        shown.comparison(found, (Path(options.file).name, Path(options.other).name))
    return OK

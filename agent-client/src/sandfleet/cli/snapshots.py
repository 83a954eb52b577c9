"""`sandfleet snapshot ls|show|create|delete|undelete|export|import`."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial

from sandfleet import Fleet, Sandbox
from sandfleet._fleets import cluster, discovery
from sandfleet.cli import FAILED, OK, print_json, refuse, sentence, table, what
from sandfleet.values import _show
from sandfleet.values.suspension import Snapshot

# Columns that narrow terminals go without, the least first.
_LESS = ("RECEIVED", "STORED", "FILES", "REASON", "SANDBOX")
_COLUMNS = ("SNAPSHOT", "NAME", "AGE", "SANDBOX", "FILES", "SIZE", "STORED", "REASON", "RECEIVED")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what the command takes."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    listing = _action(actions, "ls", "list snapshots", "an array")
    listing.add_argument("--sandbox", default="", metavar="ID", help="list only snapshots of this sandbox")
    listing.add_argument("--deleted", action="store_true", help="list those that can be taken back, instead")
    _action(actions, "show", "describe a snapshot, and what is not in it").add_argument("snapshot", metavar="SNAPSHOT")
    create = _action(actions, "create", "save a sandbox into a new snapshot")
    create.add_argument("sandbox", metavar="ID")
    create.add_argument("name", nargs="?", default="", metavar="NAME", help="1 to 63 of a-z, 0-9, '-' and '.'")
    delete = _action(actions, "delete", "delete snapshots; undelete takes them back for 30 days")
    delete.add_argument("snapshots", nargs="+", metavar="SNAPSHOT")
    delete.add_argument("--now", action="store_true", help="delete them for good, which makes room at once")
    _action(actions, "undelete", "take a deleted snapshot back").add_argument("snapshot", metavar="SNAPSHOT")
    export = _action(actions, "export", "write a snapshot into one file, which is not encrypted")
    export.add_argument("snapshot", metavar="SNAPSHOT")
    export.add_argument("file", metavar="FILE")
    imported = _action(actions, "import", "make a snapshot of an exported file; nothing in it is trusted")
    imported.add_argument("file", metavar="FILE")
    imported.add_argument("--name", default="", metavar="NAME", help="1 to 63 of a-z, 0-9, '-' and '.'")


def _action(
    actions: argparse._SubParsersAction[argparse.ArgumentParser], name: str, summary: str, prints: str = "an object"
) -> argparse.ArgumentParser:
    made = actions.add_parser(name, help=summary, description=sentence(summary))
    made.add_argument("--json", action="store_true", help=f"print {prints} of JSON")
    return made


def run(options: argparse.Namespace) -> int:
    """Run one of the actions."""
    actions = {
        "ls": _list,
        "show": _describe,
        "create": _create,
        "delete": _delete,
        "undelete": _undelete,
        "export": _export,
        "import": _import,
    }
    return actions[options.action](options)


@contextmanager
def _fleet() -> Iterator[Fleet]:
    """Connect to the fleet that the environment names; on one machine any fleet of this user has its snapshots."""
    address = os.environ.get("SANDFLEET_ADDRESS")
    if not address and cluster.is_chosen(asked=False):
        address = cluster.KUBERNETES
    found = [address] if address else discovery.addresses()
    with Fleet.connect(found[0]) if found else Fleet.connect(pool_size=0) as fleet:
        yield fleet


def _list(options: argparse.Namespace) -> int:
    with _fleet() as fleet:
        found = fleet.snapshots.list(options.sandbox, deleted=options.deleted)
    row = partial(_row, now=datetime.now(UTC))
    return table.listing(found, _COLUMNS, row, as_json=options.json, drop=_LESS, none="there are no snapshots")


def _row(one: Snapshot, now: datetime) -> tuple[str, ...]:
    sizes = (_show.size(one.size_bytes), _show.size(one.stored_bytes))
    received = ",".join(one.received) or "-"
    age = table.since(one.created, now)
    return (
        one.snapshot_id,
        one.name or "-",
        age,
        one.sandbox_id or "-",
        str(one.entries),
        *sizes,
        one.reason,
        received,
    )


def _describe(options: argparse.Namespace) -> int:
    with _fleet() as fleet:
        return _tell(fleet.snapshots.get(options.snapshot), as_json=options.json)


def _create(options: argparse.Namespace) -> int:
    sandbox = Sandbox.connect(options.sandbox, keep_alive=False)
    try:
        made = sandbox.snapshot(options.name)
    finally:
        sandbox.close()
    return _tell(made, as_json=options.json)


def _delete(options: argparse.Namespace) -> int:
    with _fleet() as fleet:
        existed = {one: fleet.snapshots.delete(one, now=options.now) for one in options.snapshots}
    if options.json:
        print(json.dumps({"existed": existed}))
    else:
        for name, was_there in existed.items():
            print(f"{name} {'deleted' if was_there else 'was not there'}")
    return OK


def _undelete(options: argparse.Namespace) -> int:
    with _fleet() as fleet:
        return _tell(fleet.snapshots.undelete(options.snapshot), as_json=options.json)


def _export(options: argparse.Namespace) -> int:
    try:
        with _fleet() as fleet:
            written = fleet.snapshots.export(options.snapshot, options.file)
    except OSError as error:
        refuse(f"cannot export to {options.file}: {what(error)}", error, as_json=options.json)
        return FAILED
    if options.json:
        print(json.dumps({"file": options.file, "bytes": written}))
    else:
        print(f"{options.file} has {_show.size(written)}, not encrypted")
    return OK


def _import(options: argparse.Namespace) -> int:
    with _fleet() as fleet:
        return _tell(fleet.snapshots.import_file(options.file, name=options.name), as_json=options.json)


def _tell(one: Snapshot, *, as_json: bool) -> int:
    if as_json:
        print_json(one)
        return OK
    named = f" ({one.name})" if one.name else ""
    entries = "file or folder" if one.entries == 1 else "files and folders"
    print(f"{one.snapshot_id}{named}: {one.entries} {entries}, {_show.size(one.size_bytes)}")
    print(f"  taken     {table.moment(one.created)} of sandbox {one.sandbox_id or '-'}, {one.reason}")
    print(f"  contract  {one.contract}; received: {', '.join(one.received) or 'nothing'}")
    print(f"  stored    {_show.size(one.stored_bytes)}, {_show.size(one.new_bytes)} of it new")
    for context in one.contents.contexts if one.contents else ():
        print(f"  context   {table.plain(context.context_id)}: {table.count(context.variables, 'variable')}")
    for missing in one.contents.lost if one.contents else ():
        print(f"  not in it {table.plain(missing)}")
    return OK

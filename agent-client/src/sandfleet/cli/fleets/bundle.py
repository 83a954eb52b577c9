"""`sandfleet support-bundle`: what another person needs to see of an installation, in one file and without secrets."""

from __future__ import annotations

import argparse
import io
import json
import tarfile
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from sandfleet._fleets import cluster
from sandfleet.cli import OK
from sandfleet.cli.fleets import installation
from sandfleet.errors import SandfleetError

_LINES = 2000
# Environment variables are people's own. What kubectl last applied has them again, and so have records of claims.
_HIDDEN_MAPS = {"envs"}
_HIDDEN_LISTS = {"env"}
_DROPPED = {"managedFields", "kubectl.kubernetes.io/last-applied-configuration", "sandfleet.io/claim"}
# Beside what the checks read.
_MORE = {
    "templates": ("sandboxtemplates", "--all-namespaces"),
    "sandboxes": ("codesandboxes", "--all-namespaces"),
    "queues": ("sandboxqueues", "--all-namespaces"),
    "snapshots": ("sandboxsnapshots", "--all-namespaces"),
    "events": ("events", "-n", "SYSTEM"),
    "processes": ("pods", "-n", "SYSTEM", "-l", "app.kubernetes.io/part-of=sandfleet"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what the command takes."""
    parser.add_argument("-o", "--output", metavar="FILE", help="file to write (default: sandfleet-support-TIME.tar.gz)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(options: argparse.Namespace) -> int:
    """Write the file, and say what is in it. Raises UnavailableError without a cluster, OSError if it cannot write."""
    now = time.time()
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime(now))
    path = Path(options.output or f"sandfleet-support-{stamp}.tar.gz")
    names = []
    with path.open("xb") as file, tarfile.open(fileobj=file, mode="w:gz") as archive:
        for name, data in _files(now):
            member = tarfile.TarInfo(f"sandfleet-support-{stamp}/{name}")
            member.size, member.mtime = len(data), int(now)
            archive.addfile(member, io.BytesIO(data))
            names.append(name)
    if options.json:
        print(json.dumps({"file": str(path), "members": names}))
    else:
        print(f"{path}: {len(names)} files, {path.stat().st_size >> 10} KiB; look at it before you send it")
    return OK


def _files(now: float) -> Iterator[tuple[str, bytes]]:
    seen, system = installation.look(_MORE), cluster.system_namespace()
    yield "checks.json", _text([asdict(check) for check in installation.examine(seen, now)])
    for name, objects in sorted(seen.objects.items()):
        yield f"objects/{name}.json", _text(without_secrets(objects))
    for name, why in sorted(seen.refused.items()):
        yield f"objects/{name}.txt", why.encode()
    for pod in (str(one["metadata"]["name"]) for one in seen.of("processes")):
        for name, more in ((pod, ()), (f"{pod}.previous", ("--previous",))):
            try:
                said = cluster.log(pod, system, _LINES, *more)
            except SandfleetError as error:
                said = error.message
            yield f"logs/{name}.log", said.encode()


def without_secrets(value: Any) -> Any:
    """Return a copy in which values of environment variables are hidden, and records of claims are left out."""
    if isinstance(value, list):
        return [without_secrets(one) for one in value]
    if not isinstance(value, dict):
        return value
    found: dict[str, Any] = {}
    for key, one in value.items():
        if key in _DROPPED:
            continue
        if key in _HIDDEN_MAPS and isinstance(one, dict):
            found[key] = dict.fromkeys(one, "(hidden)")
        elif key in _HIDDEN_LISTS and isinstance(one, list):
            found[key] = [{"name": each.get("name")} for each in one if isinstance(each, dict)]
        else:
            found[key] = without_secrets(one)
    return found


def _text(value: Any) -> bytes:
    return (json.dumps(value, indent=1, sort_keys=True) + "\n").encode()

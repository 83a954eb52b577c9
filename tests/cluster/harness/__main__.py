"""`python -m cluster.harness COMMAND`: the targets of cluster.mk and what helps to look inside."""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from . import base_image, binaries, images, s3
from .down import down
from .layout import Addresses, ClusterError, Layout, cache, directory
from .plan import Say, read_plan, recorded
from .progress import steps, timed
from .up import check, planned, up


def _enter(layout: Layout, command: list[str]) -> int:
    process = recorded(layout)
    if process is None:
        raise ClusterError("cannot enter the node: no cluster runs (make cluster)")
    inside = ["nsenter", "--target", str(process.pid), "--mount", "--pid", "--net", "--uts", "--ipc"]
    return subprocess.run([*inside, *(command or ["bash"])], check=False).returncode


def _kubectl(layout: Layout, say: Say, arguments: list[str]) -> int:
    program = binaries.provide(cache(), say, ["kubectl"])["kubectl"]
    return subprocess.run([program, "--kubeconfig", layout.kubeconfig, *arguments], check=False).returncode


def _s3(layout: Layout, say: Say) -> None:
    """Until Ctrl-C. The file with its address and keys is the cluster's: it goes with that at the latest."""
    if recorded(layout) is None:
        raise ClusterError("cannot serve S3 to the cluster: none runs (make cluster)")
    program = binaries.provide(cache(), say, ["versitygw"])["versitygw"]
    plan, file, folder = read_plan(layout), layout.root / "s3.env", layout.root / "s3"
    if plan is None:
        raise ClusterError("cannot serve S3 to the cluster: its plan is missing")
    shutil.rmtree(folder, ignore_errors=True)
    server, process = s3.start(program, folder, Addresses(plan.block).machine)
    try:
        (folder / "objects" / s3.BUCKET).mkdir()
        file.touch(mode=0o600)
        file.write_text(server.shell)
        say(f"S3 until Ctrl-C, with the bucket {s3.BUCKET}: . {file}")
        with suppress(KeyboardInterrupt):
            signal.pause()
    finally:
        file.unlink(missing_ok=True)
        s3.stop(process)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="cluster.harness", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("up", help="start the cluster, or what is missing of it")
    commands.add_parser("down", help="end it and leave nothing")
    commands.add_parser("check", help="say whether this machine can run one, and what it lacks")
    commands.add_parser("s3", help="serve S3 to the machine and the cluster, until Ctrl-C")
    building = commands.add_parser("binaries", help="build what the cache lacks")
    building.add_argument("names", nargs="*", help="these programs alone")
    commands.add_parser("base-image", help="make the Debian base image with Python, for buildah")
    commands.add_parser("testkit-image", help="write the tests' own image, for kind").add_argument("archive", type=Path)
    commands.add_parser("load-image", help="put an OCI archive into the node").add_argument("archive", type=Path)
    tagging = commands.add_parser("tag-image", help="give an image of the node more names")
    tagging.add_argument("name")
    tagging.add_argument("others", nargs="+")
    commands.add_parser("running", help="exit 0 when the cluster runs")
    commands.add_parser("has-image", help="exit 0 when the node has this image").add_argument("name")
    rest = {
        "enter": "run a command on the node",
        "kubectl": "talk to the cluster",
        "buildah": "run buildah on the storage that has the base image",
    }
    for name, text in rest.items():
        commands.add_parser(name, help=text).add_argument("rest", nargs=argparse.REMAINDER)
    return parser


def main() -> int:
    arguments = _parser().parse_args()
    layout, say = Layout(directory(dict(os.environ))), timed("cluster")
    match arguments.command:
        case "up":
            with steps("cluster", planned(layout)) as say:
                up(layout, say)
            say(f"ready: export KUBECONFIG={layout.kubeconfig}")
        case "down":
            down(layout, say)
            say("down")
        case "check":
            check()
        case "s3":
            _s3(layout, say)
        case "binaries":
            with steps("cluster", binaries.planned(cache(), arguments.names)) as say:
                binaries.provide(cache(), say, arguments.names)
        case "base-image":
            print(base_image.make(cache(), say))
        case "testkit-image":
            arguments.archive.write_bytes(images.testkit(binaries.provide(cache(), say, ["probe"])["probe"]))
        case "load-image":
            images.load(layout, binaries.provide(cache(), say, ["ctr"])["ctr"], arguments.archive)
        case "tag-image":
            images.tag(layout, binaries.provide(cache(), say, ["ctr"])["ctr"], arguments.name, arguments.others)
        case "running":
            return 0 if recorded(layout) else 1
        case "has-image":
            return 0 if images.has(layout, binaries.provide(cache(), say, ["ctr"])["ctr"], arguments.name) else 1
        case "buildah":
            print(base_image.buildah(cache(), *arguments.rest))
        case "enter":
            return _enter(layout, arguments.rest)
        case _:
            return _kubectl(layout, say, arguments.rest)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except ClusterError as error:
        print(error, file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        print(
            "cluster: stopped; what was begun is taken up by the next start, or ended by make cluster-down",
            file=sys.stderr,
        )
        sys.exit(130)

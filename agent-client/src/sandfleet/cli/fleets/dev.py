"""`sandfleet dev`: serve a fleet on this machine, for programs whose SANDFLEET_ADDRESS is its address."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from sandfleet._fleets.embedded import Options, Process
from sandfleet.cli import OK, PLATFORM, end_at_sigterm
from sandfleet.observe.provider import FILE
from sandfleet.observe.spans.store import default_path, made
from sandfleet.values.sandbox import Isolation


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what the command takes."""
    parser.add_argument("--pool-size", type=int, metavar="N", help="sandboxes kept warm")
    parser.add_argument("--max-sandboxes", type=int, metavar="N", help="largest number of sandboxes at the same time")
    parser.add_argument("--isolation", type=Isolation, choices=[Isolation.NONE, Isolation.NAMESPACE], metavar="LEVEL",
                        help="namespace (default), or none: user code runs as a plain process here")  # fmt: skip
    parser.add_argument("--preload", metavar="MODULE,…", type=lambda text: tuple(text.split(",")),
                        help="modules that each sandbox has in memory from its start, as pandas")  # fmt: skip
    parser.add_argument("--queues", type=Path, metavar="FILE", help="SandboxQueues of the fleet, as YAML")
    parser.add_argument("--reviewers", metavar="NAME,…", type=lambda text: tuple(text.split(",")),
                        help="reviewers that are told apart; each is named by SANDFLEET_REVIEWER")  # fmt: skip
    parser.add_argument("--approvals", type=int, metavar="N", help="how many of them have to approve each request")
    parser.add_argument("--review-rules", metavar="RULE,…", type=lambda text: tuple(text.split(",")),
                        help="rules that approve without a reviewer: PureExpression, SameCell")  # fmt: skip
    parser.add_argument("--traces", type=Path, nargs="?", const=default_path(), metavar="FILE",
                        help="append the spans of fleet and programs to a file, for `sandfleet trace` and `sandfleet report`")  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print the address as a JSON object")


def run(options: argparse.Namespace) -> int:
    """Serve until Ctrl-C or SIGTERM; return 3 when the fleet ends by itself."""
    end_at_sigterm()
    asked = Options(
        options.pool_size,
        options.max_sandboxes,
        options.isolation,
        options.preload,
        options.queues,
        options.reviewers,
        options.approvals,
        options.review_rules,
    )
    with ExitStack() as stack:
        traced = {FILE: str(made(options.traces))} if options.traces else {}
        # The fleet appends its own spans, too.
        os.environ |= traced
        fleet = Process(asked.filled())
        stack.callback(fleet.stop)
        try:
            told = {"address": fleet.address} | ({"traces": traced[FILE]} if traced else {})
            print(json.dumps(told) if options.json else _welcome(fleet.address, traced), flush=True)
            code = fleet.wait()
        except KeyboardInterrupt:
            return OK
    print(f"sandfleet: the fleet ended by itself, with exit code {code}", file=sys.stderr)
    return PLATFORM


def _welcome(address: str, traced: Mapping[str, str]) -> str:
    told = {"SANDFLEET_ADDRESS": address, **traced}
    how = "\n".join(f"  export {name}={value}" for name, value in told.items())
    return f"The fleet is ready. Tell its clients where it is:\n\n{how}\n\nCtrl-C ends the fleet and all its sandboxes."

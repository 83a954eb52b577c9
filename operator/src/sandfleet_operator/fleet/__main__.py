"""`python -m sandfleet_operator.fleet serve-local`."""

import argparse
import logging
import re
import sys
from collections.abc import Callable
from pathlib import Path

from sandfleet_operator.api.errors import FleetError
from sandfleet_operator.api.kinds.preload import check
from sandfleet_operator.api.kinds.template import ReviewRule
from sandfleet_operator.api.values import Isolation
from sandfleet_operator.fleet.local.serve import Options, serve_local
from sandfleet_operator.plan.reviews.votes import MAX_APPROVALS

MAX_SANDBOXES = 1024


def main() -> int:
    parser = _parser()
    arguments = parser.parse_args()
    if arguments.approvals > max(1, len(arguments.reviewers)):
        parser.error(f"cannot demand {arguments.approvals} approvals of {max(1, len(arguments.reviewers))} reviewers")
    logging.basicConfig(level=logging.WARNING, format="sandfleet fleet: %(message)s", stream=sys.stderr)
    return serve_local(
        Options(
            state_dir=arguments.state_dir,
            ready_fd=arguments.ready_fd,
            lifeline_fd=arguments.lifeline_fd,
            metrics_port=arguments.metrics_port,
            pool_size=arguments.pool_size,
            max_sandboxes=arguments.max_sandboxes,
            isolation=Isolation[arguments.isolation.upper()],
            preload=arguments.preload,
            reviewers=arguments.reviewers,
            approvals=arguments.approvals,
            review_rules=arguments.review_rules,
            queues=arguments.queues,
        )
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="sandfleet-fleet", description="Hands out sandboxes.")
    serve = parser.add_subparsers(dest="command", required=True).add_parser(
        "serve-local", help="sandboxes on this machine, until a signal or the end of the lifeline"
    )
    serve.add_argument(
        "--state-dir", type=Path, help="directory of this fleet, removed at its end (default: a new one)"
    )
    serve.add_argument(
        "--ready-fd", type=_number(0, 1 << 20), help="gets the line 'ready' or 'failed: …' (default: standard output)"
    )
    serve.add_argument(
        "--lifeline-fd", type=_number(0, 1 << 20), help="a pipe or socket; its end is the end of the fleet"
    )
    serve.add_argument(
        "--metrics-port", type=_number(0, 65535), default=0, help="serves GET /metrics at this port of 127.0.0.1"
    )
    serve.add_argument("--pool-size", type=_number(0, MAX_SANDBOXES), default=2, help="sandboxes kept warm")
    serve.add_argument(
        "--max-sandboxes", type=_number(1, MAX_SANDBOXES), default=128, help="warm and claimed ones together"
    )
    serve.add_argument("--isolation", choices=["namespace", "none"], default="namespace")
    serve.add_argument(
        "--preload", type=_modules, default=(), help="modules that each context has in memory, with commas between them"
    )
    serve.add_argument("--reviewers", type=_reviewers, default=(), help="names of reviewers, with commas between them")
    serve.add_argument(
        "--approvals", type=_number(1, MAX_APPROVALS), default=1, help="reviewers that approve each request"
    )
    serve.add_argument(
        "--review-rules",
        type=_rules,
        default=(),
        help="rules that approve without a reviewer, with commas between them",
    )
    serve.add_argument("--queues", type=Path, metavar="FILE", help="SandboxQueues, as YAML")
    return parser


def _modules(text: str) -> tuple[str, ...]:
    modules = tuple(text.split(","))
    try:
        check(modules)
    except FleetError as error:
        raise argparse.ArgumentTypeError(error.problem.message) from None
    return modules


def _rules(text: str) -> tuple[ReviewRule, ...]:
    try:
        return tuple(ReviewRule(name) for name in text.split(","))
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{error}: the rules are {', '.join(ReviewRule)}") from None


def _reviewers(text: str) -> tuple[str, ...]:
    names = tuple(text.split(","))
    if len(set(names)) < len(names) or not all(re.fullmatch(r"[a-z0-9][a-z0-9_-]{0,31}", name) for name in names):
        raise argparse.ArgumentTypeError("names of reviewers differ, and are 1 to 32 of a-z, 0-9, _ and -")
    return names


def _number(least: int, most: int) -> Callable[[str], int]:
    def number(text: str) -> int:
        value = int(text)
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(f"{value} is not between {least} and {most}")
        return value

    return number


if __name__ == "__main__":
    sys.exit(main())

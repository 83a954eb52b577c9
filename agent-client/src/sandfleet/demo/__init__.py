"""`sandfleet demo`: five agents in many concurrent sessions solve real tasks by writing and running code."""

import os
from argparse import ArgumentParser, Namespace

# Sessions at the same time. The work is bound by processors: more at once only makes each step and claim wait longer.
CONCURRENCY = min(64, 4 * (os.cpu_count() or 1))


def add_arguments(parser: ArgumentParser) -> None:
    """The demo's own options; `--json` is there for every command."""
    parser.add_argument(
        "--sessions",
        type=_count,
        default=64,
        metavar="N",
        help="how many sessions, shared out among the five agents (64)",
    )
    parser.add_argument(
        "--concurrency",
        type=_count,
        default=CONCURRENCY,
        metavar="C",
        help=f"how many at the same time ({CONCURRENCY})",
    )
    parser.add_argument(
        "--policy",
        default="scripted",
        metavar="P",
        help='"scripted" (no model), or "openai:MODEL" at OPENAI_BASE_URL with OPENAI_API_KEY',
    )
    parser.add_argument(
        "--no-chaos",
        dest="chaos",
        action="store_false",
        help="leave out the session whose interpreter is ended in the middle",
    )
    parser.add_argument("--output", metavar="DIR", help="save the plots there")
    parser.add_argument("--trace", metavar="FILE", help="append the spans of the run to a file, one JSON object a line")
    parser.add_argument("--json", action="store_true", help="print only the summary, as JSON")


def run(args: Namespace) -> int:
    """Run the demo. Returns 0 when every session was solved, 1 when one was not. Raises SandfleetError, OSError."""
    # Late: the command line's help does not need any of it.
    from sandfleet.demo.main import main

    return main(args)


def _count(text: str) -> int:
    value = int(text)
    if not 1 <= value <= 10_000:
        raise ValueError(f"{value} is not between 1 and 10,000")
    return value

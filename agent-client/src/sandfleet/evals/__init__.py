"""`sandfleet eval`: tasks with checkers, run with one policy or several, with pass rates and intervals."""

from argparse import ArgumentParser, ArgumentTypeError, Namespace

from sandfleet.cli.create import add_queue_arguments

_MOST = 100_000


def add_arguments(parser: ArgumentParser) -> None:
    """Declare what the command takes."""
    parser.add_argument(
        "tasks", metavar="TASKS", help='a file of tasks (.toml, .json, .jsonl), or a shipped set: "functions", "data"'
    )
    parser.add_argument(
        "--policy", action="append", default=[], metavar="P", dest="policies",
        help='"scripted:careful" (default), "scripted:hasty", "openai:MODEL", or "module:function"; a second one is '
        "compared with the first",
    )  # fmt: skip
    parser.add_argument("-k", "--samples", type=_count, default=1, metavar="N", help="samples of each task (1)")
    parser.add_argument("--concurrency", type=_count, default=16, metavar="C", help="sessions at the same time (16)")
    parser.add_argument("--checkpoint", metavar="FILE", help="go on from this file, and keep the results there")
    parser.add_argument("--report", metavar="FILE", help="write a page of HTML about the evaluation")
    parser.add_argument("--max-steps", type=_count, default=20, metavar="N", help="steps of each agent (20)")
    parser.add_argument("--timeout", type=float, default=900.0, metavar="SECONDS", help="of each session (900)")
    parser.add_argument("--pool", default="", metavar="POOL", help="claim the sandboxes from this pool of a cluster")
    parser.add_argument("--template", default="", metavar="NAME", help="template of the sandboxes")
    parser.add_argument("-n", "--namespace", metavar="NS", help="namespace of the sandboxes, on a cluster")
    add_queue_arguments(parser)
    parser.add_argument("--json", action="store_true", help="print a JSON object")


def run(options: Namespace) -> int:
    """Run the evaluation. Returns 0 when each sample was judged, 1 when the platform or a checker failed for some."""
    # Late: the command line's help does not need any of it.
    from sandfleet.evals.main import main

    return main(options)


def _count(text: str) -> int:
    value = int(text) if text.isdecimal() else 0
    if not 1 <= value <= _MOST:
        raise ArgumentTypeError(f"cannot use {text!r}: it has to be a number from 1 to {_MOST:,}")
    return value

"""`python -m sandfleet_executor`: one executor, or the host of many."""

import argparse
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sandfleet_executor.core.config import ExecutorConfig


def main() -> int:
    parser = argparse.ArgumentParser(prog="sandfleet_executor", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("serve", help="serve one sandbox")
    one.add_argument("--config", type=Path, help="a JSON file, see docs/reference/executor.md; else the environment")
    many = commands.add_parser("host", help="serve the sandboxes that the owner of a socket asks for")
    many.add_argument("--control-fd", required=True, type=int)
    options = parser.parse_args()
    if options.command == "host":
        from sandfleet_executor import host  # each command imports what it needs

        return host.main(options.control_fd)
    from sandfleet_executor import server
    from sandfleet_executor.core.errors import ConfigError

    try:
        config = load(options.config)
    except (OSError, ValueError, ConfigError) as error:
        print(f"cannot start: {error}", file=sys.stderr)
        return server.EXIT_BAD_CONFIG
    return server.run(config, lambda: print("ready", flush=True))


def load(file: Path | None) -> "ExecutorConfig":
    from sandfleet_executor.core.config import ExecutorConfig

    if file is None:
        return ExecutorConfig.from_environment(environment(), os.getuid())
    return ExecutorConfig.parse(json.loads(file.read_text()))


def environment() -> dict[str, str]:
    """The variables of the container: those of this process, or, beside another image, those that its start kept."""
    from sandfleet_executor.core.session.foreign import ENVIRON_VARIABLE

    if ENVIRON_VARIABLE not in os.environ:
        return dict(os.environ)
    lines = Path(os.environ[ENVIRON_VARIABLE]).read_bytes().split(b"\0")
    pairs = (os.fsdecode(line).partition("=") for line in lines if line)
    return {name: value for name, _, value in pairs}


if __name__ == "__main__":
    sys.exit(main())

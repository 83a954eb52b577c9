"""`python -m sandfleet_executor`: one executor, or the host of many."""

import argparse
import json
import sys
from pathlib import Path


def main() -> int:
    parser = argparse.ArgumentParser(prog="sandfleet_executor", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("serve", help="serve one sandbox")
    one.add_argument("--config", required=True, type=Path, help="a JSON file; see docs/reference/executor.md")
    many = commands.add_parser("host", help="serve the sandboxes that the owner of a socket asks for")
    many.add_argument("--control-fd", required=True, type=int)
    options = parser.parse_args()
    if options.command == "host":
        from sandfleet_executor import host  # each command imports what it needs

        return host.main(options.control_fd)
    from sandfleet_executor import serve
    from sandfleet_executor.core.config import ConfigError, ExecutorConfig

    try:
        config = ExecutorConfig.parse(json.loads(options.config.read_text()))
    except (OSError, ValueError, ConfigError) as error:
        print(f"cannot start: {error}", file=sys.stderr)
        return serve.EXIT_BAD_CONFIG
    return serve.run(config, lambda: print("ready", flush=True))


if __name__ == "__main__":
    sys.exit(main())

"""`sandfleet mcp`: an MCP server over stdio whose tools work in a sandbox; `mcp install` says how clients find it."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from sandfleet import Egress
from sandfleet.cli import OK, USAGE, create, end_at_sigterm, refuse

if TYPE_CHECKING:
    from sandfleet.values.options import CreateOptions

_TOOLS = ("python", "node")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what the command takes."""
    parser.add_argument("action", nargs="?", choices=("install",), help="print what makes clients start this server")
    add_sandbox_arguments(parser)


def add_sandbox_arguments(parser: argparse._ActionsContainer) -> None:
    """Declare which sandboxes the sessions of a server get."""
    create.add_claim_arguments(parser, parser)
    parser.add_argument(
        "--packages",
        type=_tools,
        default=(),
        metavar="TOOL,…",
        help="let sandboxes install packages from the index of this machine's pip (python) or npm (node)",
    )


def _tools(text: str) -> tuple[str, ...]:
    tools = tuple(text.split(","))
    if wrong := [tool for tool in tools if tool not in _TOOLS]:
        raise argparse.ArgumentTypeError(f"cannot allow packages of {wrong[0]!r}: the tools are {', '.join(_TOOLS)}")
    return tools


def run(options: argparse.Namespace) -> int:
    """Serve until standard input ends, or print lines for clients."""
    if options.action == "install":
        print(lines([sys.executable, "-m", "sandfleet", "mcp", *_words(options)]))
        return OK
    if lacking():
        return USAGE
    import anyio

    from sandfleet.doors.mcp import server

    end_at_sigterm()
    anyio.run(server.made(server.alone(*wish(options))).run_stdio_async)
    return OK


def lacking() -> bool:
    """Say that the extra is missing, if it is."""
    if find_spec("mcp") is None:
        refuse("cannot serve MCP: the SDK is missing: pip install 'sandfleet[mcp]'", as_json=False)
        return True
    return False


def wish(options: argparse.Namespace) -> tuple[str, CreateOptions, tuple[str, ...]]:
    """Return the template, the options and the package managers of a session's sandbox."""
    claim: Any = create.wish(options)
    template = claim.pop("template")
    if options.packages:
        claim["egress"] = Egress.packages(*options.packages) + Egress(tuple(options.egress))
    claim |= {"pool": options.pool, "namespace": options.namespace, "envs": dict(options.env)}
    return template, claim, options.packages


def lines(command: list[str]) -> str:
    """Return what each client needs to start the server.

    >>> print(lines(["sandfleet", "mcp"]).splitlines()[1])
    claude mcp add sandfleet -- sandfleet mcp
    """
    program, *words = command
    entry = {"command": program, "args": words}
    toml = f"[mcp_servers.sandfleet]\ncommand = {json.dumps(program)}\nargs = {json.dumps(words)}"
    return "\n".join(
        [
            "# Claude Code",
            f"claude mcp add sandfleet -- {shlex.join(command)}",
            "\n# Claude Desktop (claude_desktop_config.json), Cursor (.cursor/mcp.json), Windsurf (mcp_config.json)",
            json.dumps({"mcpServers": {"sandfleet": entry}}, indent=2),
            "\n# VS Code (.vscode/mcp.json)",
            json.dumps({"servers": {"sandfleet": {"type": "stdio", **entry}}}, indent=2),
            "\n# Codex (~/.codex/config.toml)",
            toml,
        ]
    )


def _words(options: argparse.Namespace) -> list[str]:
    words = create.claim_words(options)
    words += [word for host in options.egress for word in ("--egress", host)]
    return words + (["--packages", ",".join(options.packages)] if options.packages else [])

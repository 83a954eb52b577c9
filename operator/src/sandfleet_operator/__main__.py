"""`python -m sandfleet_operator operator|fleet`: the two processes of the control plane on Kubernetes."""

import argparse
import json
import logging
import os
import secrets
import socket
import sys
from importlib import import_module
from pathlib import Path

from sandfleet_operator.api.errors import FleetError
from sandfleet_operator.api.settings import Settings

# The service account names the pod's namespace here.
NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
DEFAULT_NAMESPACE = "sandfleet-system"
SETTINGS_FILE = "/etc/sandfleet/settings.json"
UNUSABLE = 2


def main(words: list[str] | None = None) -> int:
    arguments, rest = _parser().parse_known_args(words)
    logging.basicConfig(level=logging.INFO, format=f"sandfleet {arguments.command}: %(message)s", stream=sys.stderr)
    # aiohttp and gRPC log at length below INFO.
    logging.getLogger("sandfleet_operator").setLevel(logging.INFO)
    return _fleet(rest) if arguments.command == "fleet" else _operator(rest)


def _operator(rest: list[str]) -> int:
    # `run.main` reads sys.argv.
    sys.argv = ["sandfleet_operator operator", *rest]
    # A late import: it loads Kopf, which the fleet does not need.
    code = import_module("sandfleet_operator.reconciler.run").main()
    return int(code or 0)


def _fleet(rest: list[str]) -> int:
    from sandfleet_operator.fleet.kubernetes.serve import Options, serve

    given = _fleet_parser().parse_args(rest)
    try:
        settings = Settings.parse(json.loads(Path(given.settings).read_text(encoding="utf-8")))
    except (OSError, ValueError, FleetError) as error:
        print(f"cannot start the fleet: {error}", file=sys.stderr)
        return UNUSABLE
    options = Options(
        namespace=given.namespace,
        settings=settings,
        identity=f"{os.environ.get('POD_NAME') or socket.gethostname()}_{secrets.token_hex(4)}",
        pod_ip=given.pod_ip,
        port=given.port,
        kubeconfig=given.kubeconfig,
        health_port=given.health_port,
    )
    return serve(options)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="sandfleet_operator", description=__doc__, add_help=False)
    parser.add_argument("command", choices=["operator", "fleet"])
    return parser


def _fleet_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="sandfleet_operator fleet", description="Gives callers access to sandboxes.")
    parser.add_argument("--namespace", default=own_namespace(), help="of the control plane (default: the pod's)")
    parser.add_argument("--pod-ip", default=os.environ.get("POD_IP", ""), help="a name of the port (default: POD_IP)")
    parser.add_argument("--port", type=int, default=8443, help="where to serve (default: 8443)")
    parser.add_argument("--health-port", type=int, default=0, help="of the probes (default: none)")
    parser.add_argument("--settings", default=os.environ.get("SANDFLEET_SETTINGS", SETTINGS_FILE), help="a JSON file")
    parser.add_argument("--kubeconfig", default="", help="instead of the pod's service account")
    return parser


def own_namespace() -> str:
    """SANDFLEET_NAMESPACE, else the namespace of the pod that this runs in."""
    if named := os.environ.get("SANDFLEET_NAMESPACE"):
        return named
    try:
        return NAMESPACE_FILE.read_text(encoding="ascii").strip()
    except OSError:
        return DEFAULT_NAMESPACE


if __name__ == "__main__":
    sys.exit(main())

"""`python -m sandfleet_operator COMMAND`: the processes of the control plane on Kubernetes, a command each."""

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
from sandfleet_operator.cluster.service_address import located

# The service account names the pod's namespace here.
NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
DEFAULT_NAMESPACE = "sandfleet-system"
SETTINGS_FILE = "/etc/sandfleet/settings.json"
# The Service of the fleet, and where clients in pods have their token and the CA.
SERVICE = "sandfleet-fleet"
CREDENTIALS = Path("/var/run/secrets/sandfleet")
UNUSABLE = 2


def main(words: list[str] | None = None) -> int:
    arguments, rest = _parser().parse_known_args(words)
    logging.basicConfig(level=logging.INFO, format=f"sandfleet {arguments.command}: %(message)s", stream=sys.stderr)
    # aiohttp and gRPC log at length below INFO.
    logging.getLogger("sandfleet_operator").setLevel(logging.INFO)
    return COMMANDS[arguments.command](rest)


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
        settings = located(Settings.parse(json.loads(Path(given.settings).read_text(encoding="utf-8"))))
    except (OSError, ValueError, FleetError) as error:
        print(f"cannot start the fleet: {error}", file=sys.stderr)
        return UNUSABLE
    options = Options(
        namespace=given.namespace,
        settings=settings,
        identity=f"{os.environ.get('POD_NAME') or socket.gethostname()}_{secrets.token_hex(4)}",
        pod_ip=given.pod_ip,
        pod=os.environ.get("POD_NAME", ""),
        port=given.port,
        kubeconfig=given.kubeconfig,
        health_port=given.health_port,
    )
    return serve(options)


def _gateway(rest: list[str]) -> int:
    from sandfleet_operator.fleet.gateway.serve import Options, serve
    from sandfleet_operator.fleet.gateway.tunnels import Bounds

    given = _gateway_parser().parse_args(rest)
    bounds = Bounds(total=given.max_tunnels, per_caller=given.max_tunnels_per_caller)
    return serve(
        Options(
            fleet=given.fleet or f"{SERVICE}.{own_namespace()}.svc:8443",
            credentials=given.credentials,
            port=given.port,
            health_port=given.health_port,
            bounds=bounds,
        )
    )


def _snapshotter(rest: list[str]) -> int:
    from sandfleet_operator.fleet.snapshots.dialer import Options, serve

    given = _snapshotter_parser().parse_args(rest)
    return serve(
        Options(
            fleet=given.fleet or f"{SERVICE}.{own_namespace()}.svc:8443",
            credentials=given.credentials,
            health_port=given.health_port,
        )
    )


def _egress(rest: list[str]) -> int:
    from sandfleet_operator.fleet.egress.cluster import Options, serve

    given = _egress_parser().parse_args(rest)
    try:
        settings = Settings.parse(json.loads(Path(given.settings).read_text(encoding="utf-8")))
    except (OSError, ValueError, FleetError) as error:
        print(f"cannot start the egress process: {error}", file=sys.stderr)
        return UNUSABLE
    if not settings.egress.service:
        print("cannot start the egress process: the settings have no egress.service", file=sys.stderr)
        return UNUSABLE
    return serve(
        Options(
            fleet=given.fleet or f"{SERVICE}.{own_namespace()}.svc:8443",
            credentials=given.credentials,
            settings=settings,
            health_port=given.health_port,
            kubeconfig=given.kubeconfig,
        )
    )


COMMANDS = {
    "operator": _operator,
    "fleet": _fleet,
    "gateway": _gateway,
    "snapshotter": _snapshotter,
    "egress": _egress,
}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="sandfleet_operator", description=__doc__, add_help=False)
    parser.add_argument("command", choices=list(COMMANDS))
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


def _gateway_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="sandfleet_operator gateway",
        description="Carries connections to executors of clients outside the cluster.",
    )
    parser.add_argument(
        "--credentials", type=Path, default=CREDENTIALS, help=f"ca.crt and token (default: {CREDENTIALS})"
    )
    parser.add_argument("--fleet", default="", help="HOST:PORT (default: the Service of the pod's namespace)")
    parser.add_argument("--port", type=int, default=8444, help="where to serve, on 127.0.0.1 (default: 8444)")
    parser.add_argument("--health-port", type=int, default=0, help="of the probes (default: none)")
    parser.add_argument("--max-tunnels", type=int, default=1000, help="of all callers together (default: 1000)")
    parser.add_argument("--max-tunnels-per-caller", type=int, default=250, help="of one caller (default: 250)")
    return parser


def _snapshotter_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="sandfleet_operator snapshotter",
        description="Moves sessions between executors and the store of snapshots.",
        epilog="SANDFLEET_SNAPSHOTS (s3://BUCKET/PREFIX or file://DIR) and SANDFLEET_SNAPSHOT_KEYS say where they are kept.",
    )
    parser.add_argument(
        "--credentials", type=Path, default=CREDENTIALS, help=f"ca.crt and token (default: {CREDENTIALS})"
    )
    parser.add_argument("--fleet", default="", help="HOST:PORT (default: the Service of the pod's namespace)")
    parser.add_argument("--health-port", type=int, default=0, help="of the probes (default: none)")
    return parser


def _egress_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="sandfleet_operator egress", description="Connects sandboxes to hosts, by name; it alone has a network."
    )
    parser.add_argument(
        "--credentials", type=Path, default=CREDENTIALS, help=f"ca.crt and token (default: {CREDENTIALS})"
    )
    parser.add_argument("--fleet", default="", help="HOST:PORT (default: the Service of the pod's namespace)")
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

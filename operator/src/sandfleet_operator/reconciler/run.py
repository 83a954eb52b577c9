"""`python -m sandfleet_operator operator`: the process.

Exit codes: 0 after a signal to stop; 1 when leadership was lost or an error occurred: restart it; 2 for bad settings.
"""

import argparse
import asyncio
import json
import logging
import os
import secrets
import socket
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from sandfleet_operator.api.errors import FleetError
from sandfleet_operator.api.kube import LEASE, POD, KubeError, Ref
from sandfleet_operator.api.settings import Settings
from sandfleet_operator.cluster import kube as kubernetes
from sandfleet_operator.cluster.clock import wall_clock
from sandfleet_operator.cluster.elector import steady
from sandfleet_operator.cluster.kube_api import KubeApi
from sandfleet_operator.cluster.lease import LeadershipLostError, Lease
from sandfleet_operator.cluster.service_address import located
from sandfleet_operator.cluster.tasks import collect_in_time, shorten_collections
from sandfleet_operator.executors.contact import Contacts
from sandfleet_operator.executors.handshake import Greeter
from sandfleet_operator.executors.services import asked_by
from sandfleet_operator.executors.signing import Signing
from sandfleet_operator.plan.audit import Writer
from sandfleet_operator.reconciler.health import Health
from sandfleet_operator.reconciler.kopf_watch import watch
from sandfleet_operator.reconciler.operator import Operator
from sandfleet_operator.reconciler.reconcile import Greeter as Greet
from sandfleet_operator.telemetry.audit import audit_log
from sandfleet_operator.telemetry.control_plane import process_families
from sandfleet_operator.telemetry.export import Export, Reports
from sandfleet_operator.telemetry.loop_times import LoopTimes
from sandfleet_operator.telemetry.metrics import exposition, together
from sandfleet_operator.telemetry.probes import Probes, Standing

MANAGER = "sandfleet-operator"
LEASE_NAME = "sandfleet-operator"
SETTINGS_FILE = "/etc/sandfleet/settings.json"
HEALTH_PORT = 8081
FAILED, UNUSABLE = 1, 2
# Seconds that an executor may take to list its services, because a silent one occupies a worker.
ASK_SECONDS = 5.0

_log = logging.getLogger(__name__)


def _said(group: BaseExceptionGroup) -> str:
    """The messages of all nested exceptions."""
    return "; ".join(_said(one) if isinstance(one, BaseExceptionGroup) else str(one) for one in group.exceptions)


def main(words: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(words)
    if options.kubeconfig:
        # Kopf reads the variable, too.
        os.environ["KUBECONFIG"] = options.kubeconfig
    # Kopf logs every event at level INFO.
    logging.getLogger("kopf").setLevel(logging.WARNING)
    try:
        settings = located(Settings.parse(json.loads(Path(options.settings).read_text(encoding="utf-8"))))
    except (OSError, ValueError, FleetError) as error:
        print(f"cannot start the operator: {error}", file=sys.stderr)
        return UNUSABLE
    return live(settings, options.namespace or settings.control_plane_namespace, options.health_port)


def live(
    settings: Settings,
    namespace: str,
    health_port: int,
    greet: Greet | None = None,
    times: LoopTimes | None = None,
) -> int:
    """Runs the operator until a signal stops it; returns an exit code.

    `greet` replaces the handshake where nodes run no containers, and `times` measures the event loop by another clock.
    """
    times = times or LoopTimes()
    shorten_collections()
    try:
        audit = audit_log(Writer(component="operator", instance=os.environ.get("POD_NAME", "")), wall_clock, os.environ)
        export = Export.begun("operator", os.environ)
        with closing(audit), closing(export), asyncio.Runner(loop_factory=times.new_loop) as runner:
            return runner.run(
                serve(settings, namespace, health_port, times, greet=greet, reports=Reports(audit, export))
            )
    except* (LeadershipLostError, KubeError, OSError) as group:
        print(f"the operator ends: {_said(group)}", file=sys.stderr)
    return FAILED


def own_identity() -> str:
    """Of this process, in its Lease: a restart has another one."""
    return f"{os.environ.get('POD_NAME') or socket.gethostname()}_{secrets.token_hex(4)}"


async def serve(
    settings: Settings, namespace: str, health_port: int, times: LoopTimes, *, greet: Greet | None, reports: Reports
) -> int:
    kube = await kubernetes.connect(MANAGER)
    signing = Signing(kube, namespace, wall_clock)
    name, identity = os.environ.get("POD_NAME", ""), own_identity()
    lease = Lease(kube, Ref(LEASE, namespace, LEASE_NAME), identity)
    health = Health(steady, Ref(POD, namespace, name) if name else None)
    operator = Operator(
        kube,
        settings,
        greet=greet or Greeter(Contacts(signing, wall_clock), wall_clock).greet,
        ask=asked_by(Contacts(signing, wall_clock, deadline=ASK_SECONDS)),
        keys=lambda: signing.public_keys,
        leading=lambda: lease.fencing,
        clock=wall_clock,
        instance=identity,
        audit=reports.audit.write,
        authority=lambda: signing.authority.public_text,
    )
    own = process_families(times, lambda: lease.fencing)
    families = together(own, reports.audit.families, kube.metrics.families, operator.families)
    probes = Probes(lambda: health.alive, lambda: _standing(health, lease), lambda: exposition(families()))
    try:
        async with asyncio.TaskGroup() as group:
            # Kopf handles SIGTERM and SIGINT and ends its watches. Then the rest is cancelled.
            watching = group.create_task(watch(operator, health, settings, namespace))
            works = (probes.serve(health_port), health.beat(kube), reports.export.run(families), collect_in_time())
            leading = _lead(operator, lease, signing, health)
            rest = [group.create_task(one) for one in (*works, operator.follow(), leading)]
            await asyncio.wait({watching})
            for task in rest:
                task.cancel()
    finally:
        await operator.close()
        await _leave(lease, kube)
    return 0


def _standing(health: Health, lease: Lease) -> Standing:
    number = lease.fencing
    return Standing(ready=health.ready, leads=number is not None, leader=lease.holder, fencing=number)


async def _lead(operator: Operator, lease: Lease, signing: Signing, health: Health) -> None:
    health.ready = True
    _log.info("waiting for leadership; the leader is %s", lease.holder or "unknown")
    number = await lease.acquire()
    _log.info("leading, with fencing number %d", number)
    await signing.load()
    async with asyncio.TaskGroup() as group:
        group.create_task(_hold(lease))
        group.create_task(signing.run())
        group.create_task(operator.run())


async def _hold(lease: Lease) -> None:
    await lease.hold(lambda: None)
    raise LeadershipLostError("cannot lead any more: the Lease was not renewed in time, or another process holds it")


async def _leave(lease: Lease, kube: KubeApi) -> None:
    await lease.release()
    await kube.close()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="sandfleet_operator operator", description=__doc__)
    parser.add_argument("--settings", default=os.environ.get("SANDFLEET_SETTINGS", SETTINGS_FILE), help="a JSON file")
    parser.add_argument("--namespace", default=os.environ.get("POD_NAMESPACE", ""), help="of the Lease and the keys")
    parser.add_argument("--kubeconfig", default="", help="instead of the pod's service account")
    parser.add_argument("--health-port", type=int, default=HEALTH_PORT)
    return parser

"""The Kopf handlers: Kopf keeps the watches open and runs one worker for each object that changes."""

from typing import Any

import kopf

from sandfleet_operator.api.kube import POD, Kind
from sandfleet_operator.api.settings import Settings
from sandfleet_operator.plan.pods import names
from sandfleet_operator.reconciler.health import Health
from sandfleet_operator.reconciler.operator import WATCHED, Operator

OPERATOR_COMPONENT = "operator"
# Seconds without an event or bookmark after which a watch is opened again.
INACTIVITY_SECONDS = 90.0
WORKERS = 64
# Seconds that a worker waits for more events of its object. A waiting worker occupies one of WORKERS places: with
# Kopf's default of five seconds, each kind could show no more than a dozen objects a second.
IDLE_SECONDS = 0.05
# The operator's own pod is watched with the sandboxes' pods: its heartbeat checks the most important watch.
PODS = f"{names.COMPONENT} in ({names.SANDBOX_COMPONENT},{OPERATOR_COMPONENT})"


class NoDiffs(kopf.DiffBaseStorage):
    """Turns off Kopf's diffs between versions of an object.

    Our handlers need only the current object, and copying each object for the diffs was a third of the operator's work.
    """

    def build(self, **_: Any) -> kopf.BodyEssence:
        return kopf.BodyEssence()

    def fetch(self, **_: Any) -> None:
        return None

    def store(self, **_: Any) -> None:
        return None


def registry(operator: Operator, health: Health) -> kopf.OperatorRegistry:
    """A handler for each watched kind; none of them makes Kopf write to the API server."""
    made = kopf.OperatorRegistry()
    for kind in WATCHED:
        _watch(made, kind, operator, health)

    @kopf.on.login(registry=made)
    async def login(**kwargs: Any) -> kopf.ConnectionInfo | None:
        return kopf.login_with_service_account(**kwargs) or kopf.login_with_kubeconfig(**kwargs)

    return made


def _watch(registry: kopf.OperatorRegistry, kind: Kind, operator: Operator, health: Health) -> None:
    @kopf.on.event(kind.group or "", kind.version, kind.plural, registry=registry, id=kind.plural)
    async def saw(event: Any, **_: Any) -> None:
        obj = {"apiVersion": kind.api_version, "kind": kind.kind, **event["object"]}
        if kind == POD and (obj["metadata"].get("labels") or {}).get(names.COMPONENT) == OPERATOR_COMPONENT:
            health.echo(obj)
        else:
            operator.saw(kind, event["type"] == "DELETED", obj)


def kopf_settings() -> kopf.OperatorSettings:
    made = kopf.OperatorSettings()
    # Leadership is decided by our own Lease, because peering is no leader election.
    made.peering.standalone = True
    made.posting.enabled = False
    made.persistence.diffbase_storage = NoDiffs()
    # The kinds and namespaces are known, and the operator has no right to list others.
    made.scanning.disabled = True
    made.queueing.worker_limit = WORKERS
    made.queueing.idle_timeout = IDLE_SECONDS
    made.watching.inactivity_timeout = INACTIVITY_SECONDS
    for kind, selector in WATCHED.items():
        if selector:
            made.watching.label_selectors[kind.group, kind.version, kind.plural] = PODS if kind == POD else selector
    return made


async def watch(operator: Operator, health: Health, settings: Settings, own_namespace: str) -> None:
    """Runs the watches until cancelled."""
    places = settings.watch_namespaces
    await kopf.operator(
        registry=registry(operator, health),
        settings=kopf_settings(),
        clusterwide=not places,
        namespaces=sorted({*places, own_namespace}) if places else (),
        standalone=True,
    )

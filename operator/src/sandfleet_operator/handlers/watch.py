"""Kopf's part: streams that are taken up again, and one worker for each object that changes."""

from typing import Any

import kopf

from sandfleet_operator.api.kube import POD, Kind
from sandfleet_operator.api.settings import Settings
from sandfleet_operator.handlers.health import Health
from sandfleet_operator.handlers.operator import WATCHED, Operator
from sandfleet_operator.plan import names

OPERATOR_COMPONENT = "operator"
# Seconds without a word on a stream, bookmarks included, after which it is opened anew.
INACTIVITY_SECONDS = 90.0
WORKERS = 64
# Seconds that a worker waits for more of its object. One that waits has a place among the few that there are: with
# Kopf's five seconds each kind could show no more than a dozen objects a second.
IDLE_SECONDS = 0.05
# Our own pod is watched with the sandboxes': its heartbeat comes back through the stream that matters most.
PODS = f"{names.COMPONENT} in ({names.SANDBOX_COMPONENT},{OPERATOR_COMPONENT})"


class NoDiffs(kopf.DiffBaseStorage):
    """Kopf works out what changed since the last version, for handlers that ask. Ours look at what is there, and copying
    each object for it was a third of the operator's work.
    """

    def build(self, **_: Any) -> kopf.BodyEssence:
        return kopf.BodyEssence()

    def fetch(self, **_: Any) -> None:
        return None

    def store(self, **_: Any) -> None:
        return None


def registry(operator: Operator, health: Health) -> kopf.OperatorRegistry:
    """A handler for each kind that is watched; none of them makes Kopf write anything."""
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
    # Leadership is our own Lease: peering is no leader election.
    made.peering.standalone = True
    made.posting.enabled = False
    made.persistence.diffbase_storage = NoDiffs()
    # Its kinds and namespaces are known, and it has no right to look for others.
    made.scanning.disabled = True
    made.queueing.worker_limit = WORKERS
    made.queueing.idle_timeout = IDLE_SECONDS
    made.watching.inactivity_timeout = INACTIVITY_SECONDS
    for kind, selector in WATCHED.items():
        if selector:
            made.watching.label_selectors[kind.group, kind.version, kind.plural] = PODS if kind == POD else selector
    return made


async def watch(operator: Operator, health: Health, settings: Settings, own_namespace: str) -> None:
    """Until it is cancelled."""
    places = settings.watch_namespaces
    await kopf.operator(
        registry=registry(operator, health),
        settings=kopf_settings(),
        clusterwide=not places,
        namespaces=sorted({*places, own_namespace}) if places else (),
        standalone=True,
    )

"""The Kopf handlers: Kopf watches CodeSandboxes and runs one worker for each that changes.

It also watches the operator's own pods, whose heartbeat shows that Kopf's watches live. All other kinds come by the
reflectors, which cost a fifth for an event and see what is deleted while a watch cannot go on (docs/dev/adr/0034).
"""

from typing import Any

import kopf

from sandfleet_operator.api.kube import CODE_SANDBOX, POD, Kind
from sandfleet_operator.api.settings import Settings
from sandfleet_operator.plan.pods import names
from sandfleet_operator.reconciler.health import Health
from sandfleet_operator.reconciler.operator import Operator

OPERATOR_COMPONENT = "operator"
# Seconds without an event or bookmark after which a watch is opened again.
INACTIVITY_SECONDS = 90.0
# Objects of a page of a list: some milliseconds' work.
PAGE = 10
# Objects wait whole for a worker, so there are more workers than Kopf's work on them can occupy.
WORKERS = 256
# Seconds that a worker waits for more events of its object. A waiting worker occupies one of WORKERS places: with
# Kopf's default of five seconds, each kind could show no more than fifty objects a second.
IDLE_SECONDS = 0.05
# What of an object's metadata Kopf needs nothing of once the object is taken in.
LARGE = ("managedFields", "annotations", "labels")
OWN_PODS = f"{names.COMPONENT}={OPERATOR_COMPONENT}"


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
    """None of the handlers makes Kopf write to the API server."""
    made = kopf.OperatorRegistry()

    @kopf.on.event(*_of(CODE_SANDBOX), registry=made, id=CODE_SANDBOX.plural)
    async def sandbox(event: Any, **_: Any) -> None:
        obj = {"apiVersion": CODE_SANDBOX.api_version, "kind": CODE_SANDBOX.kind, **event["object"]}
        operator.saw(event["type"] == "DELETED", obj, listed=event["type"] is None)
        _lighten(event["object"])

    @kopf.on.event(*_of(POD), registry=made, id=POD.plural)
    async def own_pod(event: Any, **_: Any) -> None:
        health.echo(event["object"])
        _lighten(event["object"])

    @kopf.on.login(registry=made)
    async def login(**kwargs: Any) -> kopf.ConnectionInfo | None:
        return kopf.login_with_service_account(**kwargs) or kopf.login_with_kubeconfig(**kwargs)

    return made


def _lighten(raw: dict[str, Any]) -> None:
    """Drops from Kopf's copy what nothing reads any more.

    Kopf's view of an object is a cycle, which lives until the collector finds it: an hour where it was in use during
    a collection (cluster/tasks.py).
    """
    for part in ("spec", "status"):
        raw.pop(part, None)
    for part in LARGE:
        raw["metadata"].pop(part, None)


def _of(kind: Kind) -> tuple[str, str, str]:
    return kind.group, kind.version, kind.plural


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
    # A page is parsed at a stretch, and its objects are shown in one round of the event loop.
    made.watching.chunk_size = PAGE
    made.watching.inactivity_timeout = INACTIVITY_SECONDS
    made.watching.label_selectors[_of(POD)] = OWN_PODS
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

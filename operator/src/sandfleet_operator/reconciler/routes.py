"""Which keys to reconcile when an object changes."""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass

from sandfleet_operator.api.kinds.meta import referred
from sandfleet_operator.api.kinds.queue import DEFAULT_QUEUE
from sandfleet_operator.api.kube import (
    CODE_SANDBOX,
    CONFIG_MAP,
    NETWORK_POLICY,
    PERSISTENT_VOLUME_CLAIM,
    POD,
    SANDBOX_POOL,
    SANDBOX_QUEUE,
    SANDBOX_TEMPLATE,
    Json,
    Kind,
)
from sandfleet_operator.cluster.store import Store
from sandfleet_operator.plan.pods import names
from sandfleet_operator.plan.pods.openings import is_ours
from sandfleet_operator.plan.sandbox.observed import owners_of, pod_of
from sandfleet_operator.reconciler.reconcile import Key


@dataclass(frozen=True, slots=True)
class Concern:
    """What many sandboxes of a namespace have in common; an empty name is not compared."""

    kind: Kind
    namespace: str
    name: str


def keys_of(kind: Kind, obj: Json) -> Iterator[Key]:
    """The few keys that an object names itself."""
    meta = obj["metadata"]
    namespace, name = meta.get("namespace", ""), meta["name"]
    if kind == CODE_SANDBOX:
        yield from (Key("sandbox", namespace, name), Key("namespace", namespace))
    elif kind == POD:
        yield from (*_sandboxes_of(namespace, obj), Key("namespace", namespace))
    elif kind == PERSISTENT_VOLUME_CLAIM:
        yield from _sandboxes_of(namespace, obj)
    elif kind == NETWORK_POLICY:
        yield from _of_policy(namespace, name, obj)
    elif kind == SANDBOX_TEMPLATE:
        yield from (Key("template", namespace, name), Key("namespace", namespace))
    elif kind in {SANDBOX_POOL, CONFIG_MAP}:
        yield Key("namespace", namespace)


def concern_of(kind: Kind, obj: Json) -> Concern | None:
    """What other sandboxes have to do with it; None: nothing. Nodes: see `on_nodes`."""
    meta = obj["metadata"]
    if kind in {SANDBOX_TEMPLATE, SANDBOX_POOL, SANDBOX_QUEUE}:
        return Concern(kind, meta["namespace"], meta["name"])
    # A policy of others may open any sandbox of its namespace.
    is_open = kind == NETWORK_POLICY and not is_ours(obj)
    return Concern(kind, meta["namespace"], "") if is_open else None


def concerned(what: Concern, store: Store) -> Iterator[Key | None]:
    """The keys; None for each sandbox that it does not concern, so that a reader can pause in time."""
    concerns = _CONCERNS[what.kind]
    for sandbox in store.all(CODE_SANDBOX, what.namespace):
        name = sandbox["metadata"]["name"]
        yield Key("sandbox", what.namespace, name) if concerns(sandbox, what.name) else None


def _has_template(sandbox: Json, name: str) -> bool:
    return referred(sandbox, "templateRef") == name


def _waits_for_pool(sandbox: Json, name: str) -> bool:
    status = sandbox.get("status") or {}
    # What the fleet has bound waits no more.
    return referred(sandbox, "poolRef") == name and not (status.get("binding") or status.get("podName"))


def _is_in_queue(sandbox: Json, name: str) -> bool:
    return (referred(sandbox, "queueRef") or DEFAULT_QUEUE) == name


_CONCERNS: Mapping[Kind, Callable[[Json, str], bool]] = {
    SANDBOX_TEMPLATE: _has_template,
    SANDBOX_POOL: _waits_for_pool,
    SANDBOX_QUEUE: _is_in_queue,
    NETWORK_POLICY: lambda *_: True,
}


def on_nodes(nodes: Collection[str], store: Store) -> Iterator[Key | None]:
    """Keys for nodes that have changed, of many together, since it looks at all pods; None for pods elsewhere."""
    for pod in store.all(POD):
        keys = _sandboxes_of(pod["metadata"]["namespace"], pod) if pod_of(pod).node in nodes else ()
        yield from keys or (None,)


def _sandboxes_of(namespace: str, obj: Json) -> list[Key]:
    """By label and by owner, because users may have changed either."""
    meta = obj["metadata"]
    owners = {one.name for one in owners_of(obj) if one.kind == "CodeSandbox"}
    label = (meta.get("labels") or {}).get(names.SANDBOX)
    return [Key("sandbox", namespace, name) for name in sorted(owners | ({label} if label else set()))]


def _of_policy(namespace: str, name: str, obj: Json) -> Iterator[Key]:
    if name == names.DEFAULT_DENY:
        yield Key("namespace", namespace)
    for owner in owners_of(obj):
        if owner.kind == "CodeSandbox":
            yield Key("sandbox", namespace, owner.name)
        elif owner.kind == "SandboxTemplate":
            yield Key("template", namespace, owner.name)

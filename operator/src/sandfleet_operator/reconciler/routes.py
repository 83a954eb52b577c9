"""Which keys to reconcile when an object changes."""

from collections.abc import Collection, Iterator

from sandfleet_operator.api.kinds.meta import referred
from sandfleet_operator.api.kinds.queue import DEFAULT_QUEUE
from sandfleet_operator.api.kube import (
    CODE_SANDBOX,
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


def keys_of(kind: Kind, obj: Json, store: Store) -> Iterator[Key]:
    """Keys for an object. The store gives the sandboxes that use a template or a pool.

    Nodes have none: see `on_nodes`.
    """
    meta = obj["metadata"]
    namespace, name = meta.get("namespace", ""), meta["name"]
    if kind == CODE_SANDBOX:
        yield from (Key("sandbox", namespace, name), Key("namespace", namespace))
    elif kind == POD:
        yield from (*_sandboxes_of(namespace, obj), Key("namespace", namespace))
    elif kind == PERSISTENT_VOLUME_CLAIM:
        yield from _sandboxes_of(namespace, obj)
    elif kind == NETWORK_POLICY:
        yield from _of_policy(namespace, name, obj, store)
    elif kind == SANDBOX_TEMPLATE:
        yield from (Key("template", namespace, name), Key("namespace", namespace))
        yield from _on_template(namespace, name, store)
    elif kind == SANDBOX_POOL:
        yield from (Key("namespace", namespace), *_waiting_for(namespace, name, store))
    elif kind == SANDBOX_QUEUE:
        yield from _of_queue(namespace, name, store)


def _on_template(namespace: str, name: str, store: Store) -> Iterator[Key]:
    for sandbox in store.all(CODE_SANDBOX, namespace):
        if referred(sandbox, "templateRef") == name:
            yield Key("sandbox", namespace, sandbox["metadata"]["name"])


def _waiting_for(pool_namespace: str, pool: str, store: Store) -> Iterator[Key]:
    for sandbox in store.all(CODE_SANDBOX, pool_namespace):
        status = sandbox.get("status") or {}
        # What the fleet has bound waits no more.
        if referred(sandbox, "poolRef") == pool and not (status.get("binding") or status.get("podName")):
            yield Key("sandbox", pool_namespace, sandbox["metadata"]["name"])


def _of_queue(namespace: str, queue: str, store: Store) -> Iterator[Key]:
    for sandbox in store.all(CODE_SANDBOX, namespace):
        if (referred(sandbox, "queueRef") or DEFAULT_QUEUE) == queue:
            yield Key("sandbox", namespace, sandbox["metadata"]["name"])


def on_nodes(nodes: Collection[str], store: Store) -> Iterator[Key]:
    """Keys for nodes that have changed: of many together, since it looks at all pods."""
    for pod in store.all(POD):
        if pod_of(pod).node in nodes:
            yield from _sandboxes_of(pod["metadata"]["namespace"], pod)


def _sandboxes_of(namespace: str, obj: Json) -> Iterator[Key]:
    """By label and by owner, because users may have changed either."""
    meta = obj["metadata"]
    owners = {one.name for one in owners_of(obj) if one.kind == "CodeSandbox"}
    label = (meta.get("labels") or {}).get(names.SANDBOX)
    for name in sorted(owners | ({label} if label else set())):
        yield Key("sandbox", namespace, name)


def _of_policy(namespace: str, name: str, obj: Json, store: Store) -> Iterator[Key]:
    """A policy of others may open any sandbox of its namespace."""
    if name == names.DEFAULT_DENY:
        yield Key("namespace", namespace)
    if not is_ours(obj):
        yield from (Key("sandbox", namespace, one["metadata"]["name"]) for one in store.all(CODE_SANDBOX, namespace))
    for owner in owners_of(obj):
        if owner.kind == "CodeSandbox":
            yield Key("sandbox", namespace, owner.name)
        elif owner.kind == "SandboxTemplate":
            yield Key("template", namespace, owner.name)

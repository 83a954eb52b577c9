"""A real cluster for the sentences of tests/contract/kube."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from cluster.harness.testing import Cluster
from contract.kube.bed import THING, Bed
from sandfleet_operator.api.kube import KINDS, NAMESPACE, Kind, NotFound, Ref
from sandfleet_operator.cluster.kube import Kube, configure

DEFINITION = Kind("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", False)
SERVICE_ACCOUNT = Kind("", "v1", "serviceaccounts", "ServiceAccount")
ANY = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
CONDITION = {
    "type": "object",
    "required": ["type"],
    "properties": {name: {"type": "string"} for name in ("type", "status")},
}
CONDITIONS = {
    "type": "array",
    "items": CONDITION,
    "x-kubernetes-list-type": "map",
    "x-kubernetes-list-map-keys": ["type"],
}
SCHEMA = {
    "type": "object",
    "properties": {"spec": ANY, "status": {**ANY, "properties": {"conditions": CONDITIONS}}},
}


def definition() -> dict[str, object]:
    names = {"kind": THING.kind, "plural": THING.plural, "singular": "thing"}
    version = {"name": THING.version, "served": True, "storage": True, "subresources": {"status": {}}}
    return {
        "apiVersion": DEFINITION.api_version,
        "kind": DEFINITION.kind,
        "metadata": {"name": f"{THING.plural}.{THING.group}"},
        "spec": {
            "group": THING.group,
            "names": names,
            "scope": "Namespaced",
            "versions": [{**version, "schema": {"openAPIV3Schema": SCHEMA}}],
        },
    }


async def client(cluster: Cluster, watch: float = 300.0) -> Kube:
    kinds = (*KINDS, THING, DEFINITION, SERVICE_ACCOUNT)
    return Kube(await configure(str(cluster.kubeconfig)), "kube-contract", kinds, watch=watch)


@asynccontextmanager
async def things(cluster: Cluster) -> AsyncIterator[None]:
    """The custom resource of the contract, for as long as its tests run."""
    api, ref = await client(cluster), Ref(DEFINITION, "", f"{THING.plural}.{THING.group}")
    try:
        # One that another run has left may still be going.
        await until(lambda: _gone(api, ref))
        await api.create(definition())
        await until(lambda: _listed(api))
        yield
        await until(lambda: _gone(api, ref))
    finally:
        await api.close()


async def _gone(api: Kube, ref: Ref) -> bool:
    return not await api.delete(ref)


async def _listed(api: Kube) -> bool:
    try:
        await api.list(THING)
    except NotFound:
        return False
    return True


async def _found(api: Kube, ref: Ref) -> bool:
    try:
        await api.get(ref)
    except NotFound:
        return False
    return True


async def until(happened: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(60):
        while not await happened():
            await asyncio.sleep(0.1)


@asynccontextmanager
async def bed_on(cluster: Cluster) -> AsyncIterator[Bed]:
    # A bookmark comes two seconds before the end of a watch that lasts so long; a shorter one has none.
    api, short = await client(cluster), await client(cluster, watch=10)
    name = f"kube-contract-{secrets.token_hex(4)}"
    await api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})

    async def kubelet(ref: Ref) -> None:
        await api.delete(ref, grace_seconds=0)

    def nothing() -> None:
        """The cluster's own controllers see to it."""

    try:
        # Pods are not let in before it is there.
        await until(lambda: _found(api, Ref(SERVICE_ACCOUNT, name, "default")))
        # The server remembers no custom resource from before their definition came.
        yield Bed(api, short, name, kubelet, nothing, nothing, lambda: "1")
    finally:
        await api.delete(Ref(NAMESPACE, "", name))
        await short.close()
        await api.close()


async def free(bed: Bed) -> None:
    """Takes the finalizers off that a test has left, so that its namespace can go."""
    for thing in (await bed.api.list(THING, bed.namespace)).items:
        if thing["metadata"].get("finalizers"):
            await bed.api.merge(bed.ref(THING, thing["metadata"]["name"]), {"metadata": {"finalizers": None}})

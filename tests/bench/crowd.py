"""Thousands of sandboxes as an API server gives them: a few that were made in memory, copied as text."""

import asyncio
import itertools
import json
import uuid
from collections.abc import AsyncGenerator, Sequence
from typing import Any

from sandfleet_operator.api import kube
from sandfleet_operator.api.kube import CODE_SANDBOX, POD, Event, Invalid, Json, Kind, Listing, NotFound, Ref
from sandfleet_operator.cluster.kube import ListText
from sandfleet_operator.cluster.kube_api import PART, PagedLists
from sandfleet_operator.cluster.tasks import a_turn
from sandfleet_operator.plan.pods import names
from support.fakes.kube_objects import PatchError, json_patch
from support.kubernetes.world import TEAM, World, pool_object, template_object
from transition import fake_time
from transition import world as operated

# Objects of one answer to a list.
PAGE = 500
SINCE = "2026-01-01T00:00:00Z"
READY = (
    ("WorkspaceReady", "WorkspaceBound"),
    ("PodReady", "Running"),
    ("Isolated", "Isolated"),
    ("Ready", "ExecutorAnswers"),
    ("Expired", "Running"),
)


class Crowd(PagedLists):
    """An API server of which only lists, watches and reads are used; writes are counted and answered."""

    def __init__(self) -> None:
        self.writes = 0
        self._version = 1_000_000
        self._texts: dict[Kind, dict[tuple[str, str], bytes]] = {}
        self._watches: dict[Kind, list[asyncio.Queue[Event]]] = {}

    def add(self, kind: Kind, obj: Json) -> None:
        self._version += 1
        meta = {**obj["metadata"], "resourceVersion": str(self._version)}
        key = meta.get("namespace", ""), meta["name"]
        text = json.dumps({**obj, "metadata": meta}).encode()
        self._texts.setdefault(kind, {})[key] = text
        for queue in self._watches.get(kind, ()):
            queue.put_nowait(Event("MODIFIED", json.loads(text)))

    def drop(self, ref: Ref) -> None:
        text = self._texts.get(ref.kind, {}).pop((ref.namespace, ref.name), None)
        for queue in self._watches.get(ref.kind, ()) if text else ():
            queue.put_nowait(Event("DELETED", json.loads(text)))

    def copies(self, kind: Kind, of: Json, numbers: Sequence[int], says: dict[str, str]) -> None:
        """Copies with names and uids of their own; `says` are texts that have `{}` for the number."""
        text = json.dumps(of)
        for number in numbers:
            copy = text
            for old, new in says.items():
                copy = copy.replace(old, new.format(number) if "{" in new else uid(new, number))
            self.add(kind, json.loads(copy))

    def some(self, kind: Kind, many: int) -> list[Json]:
        return [json.loads(text) for text in itertools.islice(self._texts[kind].values(), many)]

    async def pages(
        self, kind: Kind, namespace: str | None = None, selector: str = "", fields: str = "", limit: int = PAGE
    ) -> AsyncGenerator[Listing, None]:
        texts = [text for (place, _), text in self._texts.get(kind, {}).items() if namespace in {None, place}]
        for start in range(0, max(1, len(texts)), limit):
            await a_turn()
            said = b'],"metadata":{"resourceVersion":"%d"}}' % self._version
            page = ListText(b'{"items":[' + b",".join(texts[start : start + limit]) + said)
            for part in page.parts(PART):
                items = ({"apiVersion": kind.api_version, "kind": kind.kind, **item} for item in part)
                yield Listing(tuple(items), page.resource_version)
                await a_turn()

    async def watch(
        self,
        kind: Kind,
        namespace: str | None = None,
        selector: str = "",
        resource_version: str = "",
        seconds: float | None = None,
        *,
        fields: str = "",
    ) -> AsyncGenerator[Event, None]:
        queue: asyncio.Queue[Event] = asyncio.Queue()
        self._watches.setdefault(kind, []).append(queue)
        while True:
            yield await queue.get()

    async def get(self, ref: Ref) -> Json:
        await asyncio.sleep(0)
        found = self._texts.get(ref.kind, {}).get((ref.namespace, ref.name))
        if found is None:
            raise NotFound(404, "NotFound", f"cannot get {ref}")
        return json.loads(found)

    async def _write(self, *_: Any, **__: Any) -> Json:
        self.writes += 1
        await asyncio.sleep(0)
        return {"metadata": {"name": "x", "uid": "x", "resourceVersion": "0"}}

    create = apply = patch = merge = delete = _write

    async def close(self) -> None:
        pass


class Written(Crowd):
    """Patches and deletions are done, too. What is created is answered, and never seen again."""

    async def create(self, obj: Json) -> Json:
        self.writes += 1
        await asyncio.sleep(0)
        meta = {"uid": uid("created", self.writes), "resourceVersion": str(self._version), **obj["metadata"]}
        return {**obj, "metadata": meta}

    async def patch(self, ref: Ref, operations: Sequence[Json], _subresource: str = "", *, brief: bool = False) -> Json:
        found = await self.get(ref)
        try:
            new = json_patch(found, list(operations))
        except PatchError as error:
            raise Invalid(422, "Invalid", f"cannot patch {ref}: {error}") from error
        self.writes += 1
        self.add(ref.kind, new)
        return {"metadata": new["metadata"]} if brief else new

    async def delete(self, ref: Ref, **_: Any) -> bool:
        self.writes += 1
        await asyncio.sleep(0)
        self.drop(ref)
        return True


def uid(kind: str, number: int) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_OID, f"{kind}-{number}"))


def served(obj: Json) -> Json:
    """With what an API server, a kubelet and a container runtime add."""
    meta = {"creationTimestamp": SINCE, "managedFields": managed(obj), **obj["metadata"]}
    if obj["kind"] != "Pod":
        return {**obj, "metadata": meta}
    spec = {"nodeName": "node-0", **obj["spec"], **SPEC_DEFAULTS}
    said = obj.get("status") or {}
    (container,) = POD_STATUS["containerStatuses"]
    containers = [{**container, **one} for one in said.get("containerStatuses") or [{}]]
    status = {
        "podIP": "10.20.30.40",
        "hostIP": "10.0.0.1",
        "phase": "Running",
        "startTime": SINCE,
        **said,
        **POD_STATUS,
    }
    return {**obj, "metadata": meta, "spec": spec, "status": {**status, "containerStatuses": containers}}


SPEC_DEFAULTS = {
    "dnsPolicy": "ClusterFirst",
    "preemptionPolicy": "PreemptLowerPriority",
    "priority": 0,
    "schedulerName": "default-scheduler",
    "serviceAccount": "default",
    "serviceAccountName": "default",
    "tolerations": [
        {"effect": "NoExecute", "key": f"node.kubernetes.io/{what}", "operator": "Exists", "tolerationSeconds": 300}
        for what in ("not-ready", "unreachable")
    ],
}
POD_STATUS: Json = {
    "conditions": [
        {"lastProbeTime": None, "lastTransitionTime": SINCE, "observedGeneration": 1, "status": "True", "type": what}
        for what in ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
    ],
    "containerStatuses": [
        {
            "allocatedResources": {"cpu": "250m", "memory": "512Mi"},
            "containerID": "containerd://" + "0123456789abcdef" * 4,
            "image": "registry.example/sandfleet-executor:1",
            "imageID": "registry.example/sandfleet-executor@sha256:" + "0123456789abcdef" * 4,
            "lastState": {},
            "name": "executor",
            "ready": True,
            "resources": {"limits": {"cpu": "1", "memory": "2Gi"}, "requests": {"cpu": "250m", "memory": "512Mi"}},
            "restartCount": 0,
            "started": True,
            "state": {"running": {"startedAt": SINCE}},
            "volumeMounts": [{"mountPath": f"/volume-{number}", "name": f"volume-{number}"} for number in range(5)],
        }
    ],
    "hostIPs": [{"ip": "10.0.0.1"}],
    "podIPs": [{"ip": "10.20.30.40"}],
    "qosClass": "Burstable",
}


def managed(obj: Json) -> list[Json]:
    """Who has written which fields: a tree with a key for each of them."""

    def tree(value: Any) -> Json:
        if isinstance(value, dict):
            return {f"f:{name}": tree(inner) for name, inner in value.items()}
        if isinstance(value, list) and value and isinstance(value[0], dict):
            return {f'k:{{"name":"{one.get("name", "")}"}}': {".": {}, **tree(one)} for one in value}
        return {}

    parts = {name: obj[name] for name in ("metadata", "spec", "status") if name in obj}
    return [
        {
            "apiVersion": "v1",
            "fieldsType": "FieldsV1",
            "fieldsV1": tree({name: part}),
            "manager": f"m-{name}",
            "time": SINCE,
        }
        for name, part in parts.items()
    ]


async def _seeds() -> list[Json]:
    """A fleet's objects after one claim."""
    async with World() as world:
        await world.add(template_object(), pool_object(size=1))
        fleet = await world.fleet()
        await world.until(lambda: fleet.scheduler.summary(f"{TEAM}/fast").warm)
        await world.claim(fleet)
        await world.until(lambda: world.objects() and len(world.pods()) == 2)
        await world.until(lambda: all((one.get("status") or {}).get("podIP") for one in world.pods()))
        await world.until(lambda: all(one["metadata"].get("ownerReferences") for one in world.pods()))
        return list(world.cluster.objects.values())


def fleets(sandboxes: int) -> Crowd:
    """So many claimed pods with their CodeSandboxes, and as many warm pods of one pool."""
    crowd, found = Written(), [served(one) for one in asyncio.run(_seeds())]
    by_state = {one["metadata"]["labels"].get(names.STATE): one for one in found if one["kind"] == "Pod"}
    claimed, warm = by_state["claimed"], by_state["warm"]
    (made,) = [one for one in found if one["kind"] == CODE_SANDBOX.kind]
    for one in found:
        kind = next((kind for kind in kube.KINDS if kind.kind == one["kind"]), None)
        if kind not in {None, POD, CODE_SANDBOX, kube.PERSISTENT_VOLUME_CLAIM}:
            size = {"replicas": sandboxes} if kind == kube.SANDBOX_POOL else {}
            crowd.add(kind, {**one, "spec": {**one["spec"], **size}} if "spec" in one else one)
    record = json.loads(claimed["metadata"]["annotations"][names.CLAIM])
    says = {
        claimed["metadata"]["uid"]: "pod",
        made["metadata"]["uid"]: "sandbox",
        claimed["metadata"]["name"]: "fast-{:08d}",
        made["metadata"]["name"]: "sandbox-{:08d}",
        json.dumps(json.dumps(record["request"]))[1:-1]: '\\"r-{}\\"',
    }
    made = {**made, "status": {**(made.get("status") or {}), **status(claimed)}}
    crowd.copies(POD, claimed, range(sandboxes), says)
    crowd.copies(CODE_SANDBOX, made, range(sandboxes), says)
    says = {warm["metadata"]["uid"]: "warm", warm["metadata"]["name"]: "warm-{:08d}"}
    crowd.copies(POD, warm, range(sandboxes), says)
    return crowd


def status(pod: Json) -> Json:
    """As the operator writes it."""
    return {
        "address": "10.20.30.40:50051",
        "conditions": [
            {
                "lastTransitionTime": SINCE,
                "message": "",
                "observedGeneration": 1,
                "reason": why,
                "status": "True",
                "type": what,
            }
            for what, why in READY[:-1]
        ],
        "fencing": 1,
        "observedGeneration": 1,
        "podName": pod["metadata"]["name"],
        "podUID": pod["metadata"]["uid"],
        "nodeName": "node-0",
        "imageDigest": "sha256:" + "0123456789abcdef" * 4,
        "restarts": 0,
        "runtime": "gvisor",
    }


async def _operated() -> tuple[list[Json], float]:
    async with operated.World() as world:
        await world.make_sandbox()
        await world.until_ready()
        await world.settle()
        return list(world.cluster.objects.values()), world.clock()


def operators(sandboxes: int) -> tuple[Crowd, float]:
    """So many Ready sandboxes that the operator has made, and the time at which they are."""
    crowd, (found, now) = Crowd(), fake_time.run(_operated())
    mine = {one["kind"]: one for one in found if one["metadata"]["name"].endswith(operated.NAME)}
    uids = {one["metadata"]["uid"]: one["kind"] for one in mine.values()}
    for one in found:
        kind = next((kind for kind in kube.KINDS if kind.kind == one["kind"]), None)
        if kind is None:
            continue
        if one["metadata"]["name"].endswith(operated.NAME):
            says = {**uids, operated.NAME: operated.NAME + "-{:08d}"}
            crowd.copies(kind, served(one), range(sandboxes), says)
        else:
            crowd.add(kind, served(one) if kind != kube.EVENT else one)
    return crowd, now

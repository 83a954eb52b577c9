"""An API server in memory (KubeApi) with faults on demand. tests/contract/kube holds it to the real one."""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field
from typing import Any

from sandfleet_operator.api import kube
from sandfleet_operator.api.kube import Conflict, Event, Expired, Invalid, Json, Kind, Listing, Ref, path, ref_of
from sandfleet_operator.cluster.kube_api import PagedLists
from support.fakes.kube_cluster import Change, MemoryCluster, deleting
from support.fakes.kube_objects import (
    PatchError,
    copied,
    json_patch,
    merge_patch,
    overlay,
    prune,
    selects,
    selects_fields,
)

OWN_GROUP = "sandfleet.io"
WITH_STATUS = {
    kube.POD,
    kube.NAMESPACE,
    kube.NODE,
    kube.PERSISTENT_VOLUME,
    kube.PERSISTENT_VOLUME_CLAIM,
    kube.VOLUME_ATTACHMENT,
}
WITH_GENERATION = {kube.POD, kube.NETWORK_POLICY}
# Bytes of keys and values of one object, and of an object in etcd.
MAX_ANNOTATIONS, MAX_OBJECT = 256 << 10, 3 << 19
# Only the API server writes them.
SYSTEM = (
    "uid",
    "creationTimestamp",
    "generation",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "resourceVersion",
)


@dataclass(frozen=True)
class Write:
    verb: str
    ref: Ref
    body: Any
    subresource: str = ""
    # The how manyeth of its client.
    number: int = 0


@dataclass(frozen=True)
class Before:
    """The write is not done; its caller gets this."""

    error: BaseException


def lost_reply() -> BaseException:
    return kube.Unreachable(0, "ConnectionFailed", "cannot write: the reply was lost")


@dataclass(frozen=True)
class After:
    """The write is done; its caller gets this instead of the reply."""

    error: BaseException = field(default_factory=lost_reply)


class MemoryKube(PagedLists):
    """`fault` sees each write before it is done; `lag` serves gets and lists from so many changes ago.

    `writes` are those of this client; several clients share a cluster.
    """

    def __init__(
        self, cluster: MemoryCluster | None = None, manager: str = "test", kinds: tuple[Kind, ...] = kube.KINDS
    ) -> None:
        self.cluster = cluster or MemoryCluster()
        self._manager, self._kinds = manager, kinds
        self.fault: Callable[[Write], Before | After | None] = lambda _write: None
        self.lag = 0
        self.writes: list[Write] = []

    async def get(self, ref: Ref) -> Json:
        path(ref)
        await asyncio.sleep(self.cluster.latency)
        objects = self._seen()[1]
        if ref not in objects:
            raise kube.NotFound(404, "NotFound", f'cannot get {ref}: {ref.kind} "{ref.name}" not found')
        return copied(objects[ref])

    async def pages(
        self, kind: Kind, namespace: str | None = None, selector: str = "", fields: str = "", limit: int = 500
    ) -> AsyncGenerator[Listing, None]:
        await asyncio.sleep(self.cluster.latency)
        version, objects = self._seen()
        wanted, fitting = _wanted(kind, namespace, selector), selects_fields(fields)
        found = [obj for ref, obj in sorted(objects.items(), key=str) if wanted(ref, obj) and fitting(obj)]
        for start in range(0, max(1, len(found)), limit):
            if start:
                await asyncio.sleep(0)
            yield Listing(tuple(copied(found[start : start + limit])), str(version))

    def _seen(self) -> tuple[int, dict[Ref, Json]]:
        states = self.cluster.states
        return states[max(0, len(states) - 1 - self.lag)]

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
        cluster, wanted = self.cluster, _wanted(kind, namespace, selector, fields)
        position, begin, since = 0, len(cluster.changes), int(resource_version or 0)
        if since and since < cluster.oldest:
            raise Expired(410, "Expired", f"cannot watch {kind}: too old resource version: {since}")
        if not since:
            position, since = begin, cluster.version
            for ref, obj in list(cluster.objects.items()):
                if wanted(ref, obj):
                    yield Event("ADDED", copied(obj))
        news = asyncio.Event()
        cluster.waiting[news] = None
        try:
            while True:
                news.clear()
                while position < len(cluster.changes):
                    change, heard = cluster.changes[position], position >= begin
                    position += 1
                    if change.sign == "END" and heard:
                        return
                    if (heard or not change.sign) and (event := _event(change, since, kind, wanted)):
                        yield event
                if seconds is not None:
                    # The bookmark near its end.
                    yield _bookmark(kind, cluster.version)
                    return
                await news.wait()
        finally:
            cluster.waiting.pop(news, None)

    def apart(self) -> "MemoryKube":
        return self

    async def close(self) -> None:
        pass

    async def create(self, obj: Json) -> Json:
        ref = ref_of(obj, self._kinds)
        return await self._write(Write("create", ref, obj), lambda: self._create(ref, obj))

    async def apply(self, obj: Json) -> Json:
        ref = ref_of(obj, self._kinds)
        return await self._write(Write("apply", ref, obj), lambda: self._apply(ref, obj))

    async def patch(self, ref: Ref, operations: Any, subresource: str = "", *, brief: bool = False) -> Json:
        def do() -> Json:
            try:
                new = json_patch(self.cluster.found(ref), list(operations))
            except PatchError as error:
                raise Invalid(422, "Invalid", f"cannot patch {ref}: {error}") from None
            return self._update(ref, new, subresource)

        done = await self._write(Write("patch", ref, operations, subresource), do)
        return {"metadata": done["metadata"]} if brief else done

    async def merge(self, ref: Ref, patch: Json, subresource: str = "") -> Json:
        def do() -> Json:
            return self._update(ref, merge_patch(self.cluster.found(ref), patch), subresource)

        return await self._write(Write("merge", ref, patch, subresource), do)

    async def delete(
        self,
        ref: Ref,
        uid: str | None = None,
        resource_version: str | None = None,
        grace_seconds: int | None = None,
        propagation: str = "Background",
    ) -> bool:
        assert propagation == "Background", "other propagations are not made"

        def do() -> bool:
            if ref not in self.cluster.objects:
                return False
            now = self.cluster.objects[ref]["metadata"]
            if uid not in {None, now["uid"]} or resource_version not in {None, now["resourceVersion"]}:
                raise Conflict(409, "Conflict", f"cannot delete {ref}: it is another one, or another version of it")
            self.cluster.remove(ref, grace_seconds)
            return True

        options = {"uid": uid, "resource_version": resource_version, "grace_seconds": grace_seconds}
        done: bool = await self._write(Write("delete", ref, options), do)
        return done

    async def _write(self, write: Write, do: Callable[[], Any]) -> Any:
        if write.verb != "create":
            path(write.ref)
        # Others get their turn, as they would during a call over the network.
        await asyncio.sleep(self.cluster.latency)
        write = Write(write.verb, write.ref, copied(write.body), write.subresource, len(self.writes))
        self.writes.append(write)
        fault = self.fault(write)
        if isinstance(fault, Before):
            raise fault.error
        done = do()
        if self.cluster.latency:
            await asyncio.sleep(self.cluster.latency)
        if isinstance(fault, After):
            raise fault.error
        return copied(done)

    def _create(self, ref: Ref, obj: Json) -> Json:
        new, number = copied(obj), self.cluster.number()
        metadata = new["metadata"]
        if not ref.name and metadata.get("generateName"):
            ref = Ref(ref.kind, ref.namespace, f"{metadata['generateName']}{number:05d}")
        path(ref)
        self.cluster.check_namespace(ref)
        if ref in self.cluster.objects:
            raise kube.AlreadyExists(409, "AlreadyExists", f"cannot create {ref}: it already exists")
        if metadata.get("resourceVersion"):
            raise kube.ServerError(500, "InternalError", f"cannot create {ref}: resourceVersion should not be set")
        for name in SYSTEM:
            metadata.pop(name, None)
        metadata |= {"name": ref.name, "uid": f"00000000-0000-4000-8000-{number:012d}"}
        metadata["creationTimestamp"] = self.cluster.time()
        if _has_status(ref.kind):
            new.pop("status", None)
        if ref.kind in WITH_GENERATION or _custom(ref.kind):
            metadata["generation"] = 1
        if ref.kind == kube.POD:
            new["spec"].setdefault("terminationGracePeriodSeconds", 30)
            new["status"] = {"phase": "Pending"}
        if ref.kind == kube.NAMESPACE:
            new |= {"spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}}
        _check_sizes("create", ref, new)
        self.cluster.admit(self._manager, ref, None, new)
        return self.cluster.commit(ref, new)

    def _apply(self, ref: Ref, obj: Json) -> Json:
        given = obj["metadata"]
        config = _without(obj, "status") if _has_status(ref.kind) else dict(obj)
        config["metadata"] = _without(given, "name", "namespace", *SYSTEM)
        if ref in self.cluster.objects:
            return self._configure(ref, config, "", {name: given[name] for name in SYSTEM if name in given})
        if given.get("uid") or given.get("resourceVersion"):
            raise Conflict(409, "Conflict", f"cannot apply {ref}: the object with this uid does not exist")
        new = self._create(ref, obj)
        self.cluster.applied[new["metadata"]["uid"], "", self._manager] = copied(config)
        return new

    def _configure(self, ref: Ref, config: Json, subresource: str, given: Json) -> Json:
        old = self.cluster.objects[ref]
        key = old["metadata"]["uid"], subresource, self._manager
        new = overlay(prune(old, self.cluster.applied.get(key, {}), config), config)
        done = self._update(ref, {**new, "metadata": {**new["metadata"], **given}}, subresource)
        self.cluster.applied[key] = copied(config)
        return done

    def _update(self, ref: Ref, new: Json, subresource: str = "") -> Json:
        old = self.cluster.found(ref)
        was, given = old["metadata"], new["metadata"]
        # The status of a custom resource is taken without a look at the rest of what was sent.
        guarded = not (subresource and _custom(ref.kind))
        if guarded and given.get("uid", was["uid"]) != was["uid"]:
            raise Invalid(422, "Invalid", f"cannot update {ref}: metadata.uid: field is immutable")
        if given.get("resourceVersion", was["resourceVersion"]) != was["resourceVersion"]:
            raise Conflict(409, "Conflict", f"cannot update {ref}: the object has been modified")
        if subresource == "status":
            new = {**old, "status": new["status"]} if "status" in new else old
        elif _has_status(ref.kind):
            new = {**_without(new, "status"), **({"status": old["status"]} if "status" in old else {})}
        system = {name: was[name] for name in SYSTEM if name in was}
        # It keeps no managedFields, whatever is asked of it.
        new = {**copied(new), "metadata": {**_without(copied(new["metadata"]), *SYSTEM, "managedFields"), **system}}
        if ref.kind == kube.POD and _fixed(new["spec"]) != _fixed(old["spec"]):
            raise Invalid(422, "Invalid", f"cannot update {ref}: pod updates may not change these fields")
        if deleting(old) and set(new["metadata"].get("finalizers", ())) - set(was.get("finalizers", ())):
            raise Invalid(422, "Invalid", f"cannot update {ref}: no new finalizers when it is being deleted")
        if "generation" in was and _without(new, "metadata", "status") != _without(old, "metadata", "status"):
            new["metadata"]["generation"] += 1
        _check_sizes("update", ref, new)
        self.cluster.admit(self._manager, ref, old, new)
        return self.cluster.commit(ref, new)


def _check_sizes(doing: str, ref: Ref, new: Json) -> None:
    """As the API server does it, and the store behind it."""
    annotations = new["metadata"].get("annotations") or {}
    if sum(len(key.encode()) + len(value.encode()) for key, value in annotations.items()) > MAX_ANNOTATIONS:
        why = f"metadata.annotations: Too long: may not be more than {MAX_ANNOTATIONS} bytes"
        raise Invalid(422, "Invalid", f'cannot {doing} {ref}: {ref.kind.kind} "{ref.name}" is invalid: {why}')
    if len(json.dumps(new)) > MAX_OBJECT:
        raise kube.ServerError(500, "InternalError", f"cannot {doing} {ref}: etcdserver: request is too large")


def _custom(kind: Kind) -> bool:
    return kind.group.endswith(OWN_GROUP)


def _has_status(kind: Kind) -> bool:
    return kind in WITH_STATUS or _custom(kind)


def _without(obj: Json, *names: str) -> Json:
    return {name: value for name, value in obj.items() if name not in names}


def _fixed(spec: Json) -> Json:
    containers = [_without(container, "image") for container in spec.get("containers", ())]
    return {**_without(spec, "tolerations", "schedulingGates", "activeDeadlineSeconds"), "containers": containers}


def _wanted(kind: Kind, namespace: str | None, selector: str, fields: str = "") -> Callable[[Ref, Json], bool]:
    labelled, fitting = selects(selector), selects_fields(fields)

    def wanted(ref: Ref, obj: Json) -> bool:
        here = ref.kind == kind and namespace in {None, "", ref.namespace}
        return here and labelled(obj["metadata"].get("labels") or {}) and fitting(obj)

    return wanted


def _bookmark(kind: Kind, version: int) -> Event:
    metadata = {"resourceVersion": str(version)}
    return Event("BOOKMARK", {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata})


def _event(change: Change, since: int, kind: Kind, wanted: Callable[[Ref, Json], bool]) -> Event | None:
    if change.sign == "EXPIRED":
        raise Expired(410, "Expired", f"cannot watch {kind}: the resource version has expired")
    if change.sign:
        return _bookmark(kind, change.version)
    if change.ref is None or change.version <= since:
        return None
    was, now = (obj is not None and wanted(change.ref, obj) for obj in (change.before, change.after))
    if now:
        return Event("MODIFIED" if was else "ADDED", copied(change.after or {}))
    gone = copied(change.before or {})
    gone.get("metadata", {})["resourceVersion"] = str(change.version)
    return Event("DELETED", gone) if was else None

"""Writes of the leader, retried until the API server takes or refuses them, or until another fleet leads."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import nullcontext, suppress
from dataclasses import replace
from functools import partial
from typing import TypeVar

from sandfleet_rules.backoff import Backoff

from sandfleet_operator.api.errors import FleetError
from sandfleet_operator.api.kinds.meta import Meta, meta_of
from sandfleet_operator.api.kinds.sandbox import AdmissionStatus, CodeSandbox, SnapshotStatus, readable
from sandfleet_operator.api.kinds.sandbox import code_sandbox as parse
from sandfleet_operator.api.kube import (
    CODE_SANDBOX,
    POD,
    AlreadyExists,
    Conflict,
    Forbidden,
    Invalid,
    Json,
    KubeError,
    NotFound,
    Ref,
)
from sandfleet_operator.api.table import encode
from sandfleet_operator.cluster.kube_api import KubeApi
from sandfleet_operator.cluster.lease import NotLeadingError
from sandfleet_operator.plan.claims.patches import owner_patch, retire_patch, tests_hold
from sandfleet_operator.plan.claims.record import Record, record_text
from sandfleet_operator.plan.claims.sandbox_object import bound_annotations, code_sandbox
from sandfleet_operator.plan.pods import names
from sandfleet_operator.plan.pods.podspec import PodState
from sandfleet_operator.plan.sandbox.binding import Binding, binding_of, has_begun, settled_binding, told
from sandfleet_operator.plan.sandbox.observed import owner_of, pod_of

# Before a write that failed is tried again: the API server was busy or did not answer.
FAILED = Backoff(first=0.1, longest=5.0)
# The same after a refusal, which ends when rights or admission change.
REFUSED = Backoff(first=0.1, longest=60.0)
# How long the CodeSandbox of an ended claim may take to go before a new one of the same request is given up.
MAKE_ROOM = 30.0
# Warm pods that are retired at the same time. A pool of thousands that is emptied would otherwise take all connections
# to the API server, and claims would wait for one.
RETIRING = 16

_LOG = logging.getLogger(__name__)
T = TypeVar("T")


class RefusedError(Exception):
    """The API server does not take the object, and never will."""


class NameTakenError(Exception):
    """An object of a user has the name that is the claim's."""


class Writer:
    """`leading` gives the fencing number, None when leadership may be over."""

    def __init__(self, kube: KubeApi, leading: Callable[[], int | None]) -> None:
        self._kube = kube
        self._leading = leading
        self._tasks: set[asyncio.Task[None]] = set()
        self._retiring = asyncio.Semaphore(RETIRING)

    def fencing(self) -> int:
        """Asked before each write. Raises NotLeadingError."""
        number = self._leading()
        if number is None:
            raise NotLeadingError("cannot write: leadership is over")
        return number

    async def look(self, ref: Ref) -> Json | None:
        """As it is now, past all caches; None where there is none. Insists on an answer. Raises NotLeadingError."""
        return await self._insist(f"get {ref}", lambda: self._found(ref))

    async def _found(self, ref: Ref) -> Json | None:
        try:
            return await self._kube.get(ref)
        except NotFound:
            return None

    async def delete(self, ref: Ref, uid: str) -> None:
        """Of that uid only. Raises NotLeadingError."""
        await self._insist(f"delete {ref}", lambda: self._deleted(ref, uid))

    async def _deleted(self, ref: Ref, uid: str, version: str | None = None) -> bool:
        """False where another object has the name by now, or where it is not of this version any more."""
        try:
            await self._kube.delete(ref, uid=uid, resource_version=version)
        except Conflict:
            return False
        return True

    async def retire(self, pod: Ref, pod_uid: str, record: Record | None, *, claimed: bool) -> bool:
        """Retires the pod; returns whether this fleet may remove it. Raises NotLeadingError.

        `record` is the claim that was sent for it, `claimed` says whether that has certainly arrived.
        """
        # In this order: what was sent may arrive between the two.
        if not claimed and await self._has_retired(pod, pod_uid):
            return True
        if record is not None and await self.patch(pod, retire_patch(pod_uid, record)):
            return True
        found = await self.look(pod)
        if found is None or found["metadata"]["uid"] != pod_uid:
            return True
        meta = found["metadata"]
        said = (meta.get("annotations") or {}).get(names.CLAIM)
        mine = record_text(record) if record is not None else None
        # Retired already, by a write whose reply was lost.
        return said in {None, mine} and (meta.get("labels") or {}).get(names.STATE) == PodState.RETIRING.value

    async def _has_retired(self, pod: Ref, pod_uid: str) -> bool:
        """Whether the pod was warm, and is retired now."""
        warm = retire_patch(pod_uid)
        return await self._insist(f"retire {pod}", lambda: self._patched(pod, warm), turns=self._retiring) is not None

    async def delete_claimed(self, pod: Ref, pod_uid: str, record: Record, seen: Json | None) -> bool:
        """Deletes the pod of exactly this claim, with one write as a rule. Raises NotLeadingError.

        False where another fleet has taken the claim over: that changes the pod, and the deletion names its version.
        `seen` is the pod as a watch has shown it.
        """
        while True:
            if seen is None or not _has_claim(seen, pod_uid, record):
                seen = await self.look(pod)
                if seen is None or seen["metadata"]["uid"] != pod_uid or "deletionTimestamp" in seen["metadata"]:
                    return True
                if not _has_claim(seen, pod_uid, record):
                    return False
            if late := owner_of(seen):
                # Created by an earlier leader, and seen late: the operator would recover what it has put on record.
                await self.delete(Ref(CODE_SANDBOX, pod.namespace, record.object), late)
            version = seen["metadata"]["resourceVersion"]
            if await self._insist(f"delete {pod}", partial(self._deleted, pod, pod_uid, version)):
                return True
            seen = None

    def delete_later(self, ref: Ref, uid: str) -> None:
        self._later(f"delete {ref}", lambda: self._deleted(ref, uid))

    def discard_later(self, pod: Ref, pod_uid: str, record: Record | None) -> None:
        """Removes a warm pod, or with `record` the pod of this claim, unless another fleet has taken it meanwhile."""

        async def discarded() -> None:
            if await self.retire(pod, pod_uid, record, claimed=record is not None):
                await self.delete(pod, pod_uid)

        self._later(f"discard {pod}", discarded)

    async def write_object(
        self,
        pod: Ref,
        pod_uid: str,
        record: Record,
        *,
        template: str,
        pool: str,
        memory_reserve: int,
        is_there: Callable[[], bool],
    ) -> Meta | None:
        """The CodeSandbox of a claim, written with its pod; None if it names another pod.

        Raises RefusedError, NameTakenError and NotLeadingError.

        `is_there` says whether the pod still exists: a declared CodeSandbox never gets one that is gone.
        """
        ref = Ref(CODE_SANDBOX, pod.namespace, record.object)
        if record.uid:
            return await self._insist(f"bind {ref}", lambda: self._annotated(ref, pod.name, pod_uid, record, is_there))
        manifest = code_sandbox(
            pod.namespace, pod.name, pod_uid, record, template=template, pool=pool, memory_reserve=memory_reserve
        )
        give_up = asyncio.get_running_loop().time() + MAKE_ROOM
        # Whether an object that is there already may be of our own making: by a write whose reply was lost, or by the
        # fleet that had the claim before. Any other one is a tenant's, whatever it says.
        lost = [record.keeper > 0]
        while True:
            made = await self._insist(f"create {ref}", lambda: self._made(manifest, lost))
            found = made or await self.look(ref)
            ours = made is not None or (lost[0] and found is not None and _names(found, pod.name, pod_uid))
            if found is not None and not ours:
                if not await self._makes_room(ref, found, record):
                    await self._check_is_claims(found)
                    return None
                if asyncio.get_running_loop().time() > give_up:
                    return None
                found = None
            if found is not None:
                return _meta(found)
            await asyncio.sleep(FAILED.first)

    async def _makes_room(self, ref: Ref, found: Json, record: Record) -> bool:
        """Whether the object that has the name goes: it is going, or a fleet has made it that leads no more."""
        if "deletionTimestamp" in found["metadata"]:
            return True
        other = _told(found)
        # One fleet binds a request again only where the first pod came to nothing: the later of its claims stays.
        if other is None or other.record.uid or (other.record.fencing, other.record.at) >= (record.fencing, record.at):
            return False
        await self.delete(ref, found["metadata"]["uid"])
        return True

    async def _check_is_claims(self, found: Json) -> None:
        """Raises NameTakenError unless a fleet has made the object, for another pod or one that it says it has."""
        made, hinted = readable(found), _told(found)
        if made is not None and settled_binding(made) is not None:
            return
        pod = await self.look(Ref(POD, found["metadata"]["namespace"], hinted.pod)) if hinted is not None else None
        if made is None or pod is None or binding_of(made, [pod_of(pod)]) is None:
            raise NameTakenError(f"an object of a user has the name {found['metadata']['name']}")

    async def _made(self, manifest: Json, lost: list[bool]) -> Json | None:
        try:
            return await self._kube.create(manifest)
        except AlreadyExists:
            return None
        except (Forbidden, Invalid, NotFound) as error:
            raise RefusedError(str(error)) from error
        except KubeError as error:
            lost[0] |= error.unsettled
            raise

    async def _annotated(
        self, ref: Ref, pod: str, pod_uid: str, record: Record, is_there: Callable[[], bool]
    ) -> Meta | None:
        while True:
            found = await self._found(ref)
            if found is None or found["metadata"]["uid"] != record.uid or "deletionTimestamp" in found["metadata"]:
                return None
            try:
                sandbox = parse(found)
            except FleetError:
                return None
            if (bound := settled_binding(sandbox)) is not None:
                return sandbox.meta if (bound.pod, bound.pod_uid) == (pod, pod_uid) else None
            if not is_there() or await self._has_other_pod(sandbox, pod_uid):
                return None
            self.fencing()
            try:
                await self._settled(sandbox.meta, Binding(pod, pod_uid, record))
                patch = {"metadata": {"annotations": bound_annotations(pod, pod_uid, record)}}
                return _meta(await self._kube.merge(ref, patch))
            except (Conflict, NotFound):
                continue

    async def _has_other_pod(self, sandbox: CodeSandbox, pod_uid: str) -> bool:
        """Whether an earlier version of the fleet has bound another pod, or the operator has made one."""
        hinted = told(sandbox)
        if has_begun(sandbox.status) or hinted is None or hinted.pod_uid == pod_uid:
            return has_begun(sandbox.status)
        other = await self._found(Ref(POD, sandbox.meta.namespace, hinted.pod))
        return other is not None and binding_of(sandbox, [pod_of(other)]) is not None

    async def _settled(self, owner: Meta, binding: Binding) -> Json:
        """Over this version of the CodeSandbox only. Raises KubeError."""
        said = {"metadata": {"resourceVersion": owner.resource_version}, "status": {"binding": encode(binding.status)}}
        return await self._kube.merge(Ref(CODE_SANDBOX, owner.namespace, owner.name), said, "status")

    async def bind(self, owner: Meta, binding: Binding) -> None:
        """Writes the binding into the status of its CodeSandbox, unless that is gone. Raises NotLeadingError."""
        ref = Ref(CODE_SANDBOX, owner.namespace, owner.name)
        await self._insist(f"bind {ref}", lambda: self._bound(ref, owner, binding))

    async def _bound(self, ref: Ref, owner: Meta, binding: Binding) -> None:
        if not binding.record.uid:
            # It was created just now: nothing is to be read first, unless others wrote it meanwhile.
            with suppress(Conflict, NotFound):
                await self._settled(owner, binding)
                return
        while True:
            found = await self._found(ref)
            if found is None or found["metadata"]["uid"] != owner.uid:
                return
            said = found.get("status")
            if isinstance(said, dict) and said.get("binding") == encode(binding.status):
                return
            with suppress(Conflict, NotFound):
                await self._settled(replace(owner, resource_version=found["metadata"]["resourceVersion"]), binding)
                return

    async def admit(self, ref: Ref, uid: str, wanted: Callable[[CodeSandbox], AdmissionStatus | None]) -> Json | None:
        """Writes the admission that the present version wants; None if it wants none. Raises NotLeadingError."""

        def said(made: CodeSandbox) -> Json | None:
            found = wanted(made) if made.meta.uid == uid else None
            return None if found is None else {"admission": encode(replace(found, fencing=self.fencing()))}

        return await self._insist(f"admit {ref}", lambda: self._said(ref, said))

    async def park(self, ref: Ref, said: SnapshotStatus | None, when: Callable[[CodeSandbox], bool]) -> Json | None:
        """Writes a session's snapshot over a version for which `when` is true, if any. Raises NotLeadingError."""

        def wanted(made: CodeSandbox) -> Json | None:
            fenced = encode(replace(said, fencing=self.fencing())) if said is not None else None
            return {"snapshot": fenced} if when(made) and not made.meta.deleting else None

        return await self._insist(f"write the snapshot of {ref}", lambda: self._said(ref, wanted))

    async def _said(self, ref: Ref, wanted: Callable[[CodeSandbox], Json | None]) -> Json | None:
        """Writes what the present version wants into its status; None if it wants nothing."""
        while True:
            found = await self._found(ref)
            made = readable(found) if found is not None else None
            said = wanted(made) if made is not None else None
            if made is None or said is None:
                return None
            patch = {"metadata": {"resourceVersion": made.meta.resource_version}, "status": said}
            with suppress(Conflict, NotFound):
                return await self._kube.merge(ref, patch, "status")

    async def own_pod(self, pod: Ref, pod_uid: str, record: Record, owner: Meta) -> None:
        """Raises NotLeadingError."""
        # Where it is gone, or is not this claim's any more, there is nothing to own.
        await self.patch(pod, owner_patch(pod_uid, record, owner))

    async def patch(self, ref: Ref, operations: list[Json]) -> bool:
        """Whether it is done: not where a test fails, or there is no such object. Raises NotLeadingError.

        What the API server refuses for another reason is tried again, as all writes are.
        """
        return await self.patched(ref, operations) is not None

    async def patched(self, ref: Ref, operations: list[Json]) -> Json | None:
        """The metadata of the patched object; None where a test fails, or there is none. Raises NotLeadingError."""
        return await self._insist(f"patch {ref}", lambda: self._patched(ref, operations))

    async def _patched(self, ref: Ref, operations: list[Json]) -> Json | None:
        try:
            found = await self._kube.patch(ref, operations, brief=True)
        except NotFound:
            return None
        except Invalid:
            there = await self._found(ref)
            if there is not None and tests_hold(there, operations):
                raise
            return None
        meta: Json = found["metadata"]
        return meta

    def _later(self, doing: str, work: Callable[[], Awaitable[object]]) -> None:
        """In the background, until it is done or this fleet leads no more."""
        task = asyncio.create_task(self._done(doing, work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _done(self, doing: str, work: Callable[[], Awaitable[object]]) -> None:
        try:
            await self._insist(doing, work)
        except NotLeadingError as error:
            _LOG.info("%s", error)

    async def _insist(
        self, doing: str, work: Callable[[], Awaitable[T]], *, turns: asyncio.Semaphore | None = None
    ) -> T:
        """Retries `work`, also after refusals: rights and admission change. Raises NotLeadingError.

        `turns` is held while it tries, and not between two tries.
        """
        failures = 0
        while True:
            try:
                async with turns or nullcontext():
                    self.fencing()
                    return await work()
            except KubeError as error:
                # Conflict: others wrote the same object faster than the API server could try again.
                passing = error.unsettled or isinstance(error, Conflict) or error.status == 429
                _LOG.log(logging.INFO if passing else logging.WARNING, "cannot %s yet: %s", doing, error)
                failures += 1
                await asyncio.sleep(error.retry_after or (FAILED if passing else REFUSED).after(failures))

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def _told(obj: Json) -> Binding | None:
    try:
        return told(parse(obj))
    except FleetError:
        return None


def _names(obj: Json, pod: str, pod_uid: str) -> bool:
    """Whether the object says that it was made for this pod."""
    found = _told(obj)
    return found is not None and (found.pod, found.pod_uid) == (pod, pod_uid)


def _has_claim(pod: Json, uid: str, record: Record) -> bool:
    meta = pod["metadata"]
    return meta["uid"] == uid and (meta.get("annotations") or {}).get(names.CLAIM) == record_text(record)


def _meta(obj: Json) -> Meta:
    return meta_of(obj)

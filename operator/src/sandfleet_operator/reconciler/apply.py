"""Applies the actions of a plan. The API server's answers go into the store, so that the next round sees our writes."""

import logging
from collections.abc import Callable
from typing import Any

from sandfleet_operator.api.conditions import Reason
from sandfleet_operator.api.kinds.sandbox import CodeSandbox, SandboxStatus, status_json
from sandfleet_operator.api.kube import (
    CODE_SANDBOX,
    CONFIG_MAP,
    NETWORK_POLICY,
    PERSISTENT_VOLUME_CLAIM,
    POD,
    SANDBOX_QUEUE,
    AlreadyExists,
    Conflict,
    Forbidden,
    Invalid,
    Json,
    Kind,
    KubeError,
    NotFound,
    Ref,
)
from sandfleet_operator.cluster.creation import USED_UP
from sandfleet_operator.cluster.kube_api import KubeApi
from sandfleet_operator.cluster.lease import NotLeadingError
from sandfleet_operator.cluster.revisions import Revisions
from sandfleet_operator.cluster.store import Store
from sandfleet_operator.plan.audit import Decision, Record, Verdict
from sandfleet_operator.plan.claims.patches import tests_hold
from sandfleet_operator.plan.pods import names
from sandfleet_operator.plan.pods.podspec import has_keys, keys_config_map, trusting
from sandfleet_operator.plan.sandbox.actions import (
    AdjustVolume,
    AdoptPod,
    CreatePod,
    CreateVolume,
    DeletePod,
    DeleteVolume,
    EnsureKeys,
    EnsurePolicy,
    EnsureRevision,
    RemovePolicy,
    SandboxAction,
)

_LOG = logging.getLogger(__name__)


class RefusedError(Exception):
    """The API server refuses what a sandbox needs, and says why. Trying again at once would not help."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class Applier:
    """Writes to the API server.

    `leading` gives the fencing number, None if leadership may be over; `keys` is the JWKS, `authority`
    the public key that signs the keys in it, or empty; `audit` writes records.
    """

    def __init__(
        self,
        kube: KubeApi,
        store: Store,
        keys: Callable[[], str],
        leading: Callable[[], int | None],
        *,
        audit: Callable[[Record], None] = lambda _: None,
        authority: Callable[[], str] = lambda: "",
    ) -> None:
        self._kube = kube
        self._store = store
        self._keys = keys
        self._leading = leading
        self._audit, self._authority = audit, authority
        self.revisions = Revisions(kube)

    def fencing(self) -> int:
        """The fencing number; called before each write. Raises NotLeadingError."""
        number = self._leading()
        if number is None:
            raise NotLeadingError("cannot write: leadership is over")
        return number

    def has_keys(self, namespace: str) -> bool:
        there = self._store.get(Ref(CONFIG_MAP, namespace, names.KEYS_CONFIG_MAP))
        return there is not None and has_keys(there, self._keys())

    async def apply(self, action: SandboxAction) -> None:
        """Raises KubeError, RefusedError and NotLeadingError."""
        self.fencing()
        match action:
            case EnsurePolicy():
                self._store.put(NETWORK_POLICY, await self._kube.apply(dict(action.manifest)))
                meta = action.manifest["metadata"]
                self._audit(_egress(meta["namespace"], meta["name"], "applied"))
            case RemovePolicy():
                await self._remove_policy(Ref(NETWORK_POLICY, action.namespace, action.name))
                self._audit(_egress(action.namespace, action.name, "removed"))
            case EnsureKeys():
                await self._publish(action.namespace)
            case EnsureRevision():
                await self.revisions.ensure(dict(action.manifest))
            case CreateVolume():
                await self._create(PERSISTENT_VOLUME_CLAIM, dict(action.manifest))
            case AdjustVolume():
                await self._adjust(action)
            case CreatePod():
                await self._create(POD, trusting(action.manifest, self._authority()))
            case AdoptPod():
                await self._adopt(action)
            case DeletePod() | DeleteVolume():
                kind = POD if isinstance(action, DeletePod) else PERSISTENT_VOLUME_CLAIM
                await self._delete(Ref(kind, action.namespace, action.name), uid=action.uid)
            case _:
                raise TypeError(f"cannot apply {action!r}")

    async def write_status(self, sandbox: CodeSandbox, status: SandboxStatus) -> None:
        """Writes the status over the version that the decision was based on.

        Raises Conflict if there is a newer one.
        """
        meta = sandbox.meta
        fenced = {**status_json(status), "fencing": self.fencing()}
        patch = {"metadata": {"resourceVersion": meta.resource_version}, "status": fenced}
        ref = Ref(CODE_SANDBOX, meta.namespace, meta.name)
        self._store.put(CODE_SANDBOX, await self._kube.merge(ref, patch, "status"))

    async def write_conditions(self, obj: Json, conditions: list[Json]) -> None:
        """Writes the conditions of a CodeSandbox over this version of it. Raises Conflict if there is a newer one."""
        meta = obj["metadata"]
        status = {"conditions": conditions, "fencing": self.fencing()}
        patch = {"metadata": {"resourceVersion": meta["resourceVersion"]}, "status": status}
        ref = Ref(CODE_SANDBOX, meta["namespace"], meta["name"])
        self._store.put(CODE_SANDBOX, await self._kube.merge(ref, patch, "status"))

    async def look(self, ref: Ref) -> Json | None:
        """The current object, read past all caches; None if there is none."""
        try:
            found = await self._kube.get(ref)
        except NotFound:
            known = self._store.get(ref)
            if known is not None:
                self._store.remove(ref.kind, known, for_good=True)
            return None
        self._store.put(ref.kind, found)
        return None if self._store.is_buried(found) else found

    async def pods(self, namespace: str, sandbox: str = "") -> list[Json]:
        """The current sandbox pods of this namespace, or of one sandbox, read past all caches."""
        selector = f"{names.SANDBOX_SELECTOR},{names.SANDBOX}={sandbox}" if sandbox else names.SANDBOX_SELECTOR
        found = (await self._kube.list(POD, namespace, selector)).items
        return [one for one in found if not self._store.is_buried(one)]

    async def look_for_queues(self, namespace: str) -> bool:
        """Reads the SandboxQueues past all caches; whether one of them was not known."""
        known = self._store.specs(SANDBOX_QUEUE, namespace)
        for one in (await self._kube.list(SANDBOX_QUEUE, namespace)).items:
            self._store.put(SANDBOX_QUEUE, one)
        return not self._store.specs(SANDBOX_QUEUE, namespace).keys() <= known.keys()

    async def _create(self, kind: Kind, manifest: Json) -> None:
        try:
            self._store.put(kind, await self._kube.create(manifest))
        except AlreadyExists:
            # An earlier operator created it and ended before it knew, or the reply was lost.
            await self.look(Ref(kind, manifest["metadata"]["namespace"], manifest["metadata"]["name"]))
        except (Forbidden, Invalid, NotFound) as error:
            raise RefusedError(reason_of(error), error.message) from error

    async def _adjust(self, action: AdjustVolume) -> None:
        before: dict[str, Any] = {"op": "test", "path": "/metadata/resourceVersion", "value": action.version}
        if action.before:
            before = {"op": "test", "path": "/metadata/ownerReferences", "value": list(map(dict, action.before))}
        operations: list[dict[str, Any]] = [
            {"op": "test", "path": "/metadata/uid", "value": action.uid},
            before,
            {"op": "add", "path": "/metadata/ownerReferences", "value": [dict(owner) for owner in action.owners]},
        ]
        ref = Ref(PERSISTENT_VOLUME_CLAIM, action.namespace, action.name)
        known = await self._known(ref)
        for field, added in (("annotations", action.annotations), ("labels", action.labels)):
            value = {**(known["metadata"].get(field) or {}), **added}
            operations.append({"op": "add", "path": f"/metadata/{field}", "value": value})
        await self._patch(ref, operations)

    async def _adopt(self, action: AdoptPod) -> None:
        ref = Ref(POD, action.namespace, action.name)
        operations: list[dict[str, Any]] = [{"op": "test", "path": "/metadata/uid", "value": action.uid}]
        if action.owner is not None:
            # Fail if the pod has got an owner since it was observed without one.
            operations.append({"op": "test", "path": "/metadata/resourceVersion", "value": action.version})
        known = (await self._known(ref))["metadata"].get("labels") or {}
        if not known and action.labels:
            operations.append({"op": "add", "path": "/metadata/labels", "value": {}})
        for label, value in action.labels.items():
            path = f"/metadata/labels/{label.replace('~', '~0').replace('/', '~1')}"
            if value is not None:
                operations.append({"op": "add", "path": path, "value": value})
            elif label in known:
                operations.append({"op": "remove", "path": path})
        if action.owner is not None:
            operations.append({"op": "add", "path": "/metadata/ownerReferences", "value": [dict(action.owner)]})
        await self._patch(ref, operations)

    async def _known(self, ref: Ref) -> Json:
        """The object from the store, else from the API server: it may have lost the labels by which it is watched."""
        return self._store.get(ref) or await self.look(ref) or {"metadata": {}}

    async def _patch(self, ref: Ref, operations: list[dict[str, Any]]) -> None:
        try:
            self._store.put(ref.kind, await self._kube.patch(ref, operations))
        except NotFound:
            await self.look(ref)
        except Invalid:
            # The object was replaced: the next round decides. Otherwise the API server does not want this write.
            there = await self.look(ref)
            if there is not None and tests_hold(there, operations):
                raise

    async def _remove_policy(self, ref: Ref) -> None:
        """Removes the policy that the decision was based on: one that was changed or made anew since stays."""
        known = self._store.get(ref)
        if known is not None:
            await self._delete(ref, known["metadata"]["uid"], known["metadata"]["resourceVersion"])

    async def _delete(self, ref: Ref, uid: str, version: str | None = None) -> None:
        try:
            if not await self._kube.delete(ref, uid=uid, resource_version=version):
                gone = {"metadata": {"namespace": ref.namespace, "name": ref.name, "uid": uid}}
                self._store.remove(ref.kind, gone, for_good=True)
        except Conflict:
            # Another object has the name now, or another version of it.
            _LOG.info("cannot delete %s: it has changed", ref)
        await self.look(ref)

    async def _publish(self, namespace: str) -> None:
        self._store.put(CONFIG_MAP, await self._kube.apply(keys_config_map(namespace, self._keys())))


def _egress(namespace: str, policy: str, change: str) -> Record:
    details = {"policy": policy, "change": change}
    return Record(decision=Decision.EGRESS, verdict=Verdict.ALLOWED, namespace=namespace, details=details)


def reason_of(error: KubeError) -> Reason:
    """The reason that the status gives for a refusal."""
    text = error.message.lower()
    if USED_UP in text or "must specify limits" in text:
        return Reason.QUOTA_EXCEEDED
    if "runtimeclass" in text and "not found" in text:
        return Reason.RUNTIME_CLASS_NOT_FOUND
    if isinstance(error, Invalid):
        return Reason.TEMPLATE_INVALID
    return Reason.FORBIDDEN

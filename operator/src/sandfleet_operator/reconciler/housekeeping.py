"""Objects beyond single sandboxes: policies of namespaces and templates, published keys, orphaned volume claims."""

from collections.abc import Callable
from contextlib import suppress

from sandfleet_operator.api.errors import FleetError
from sandfleet_operator.api.kinds.template import Retention, sandbox_template
from sandfleet_operator.api.kube import (
    CODE_SANDBOX,
    CONFIG_MAP,
    CONTROLLER_REVISION,
    NETWORK_POLICY,
    PERSISTENT_VOLUME_CLAIM,
    POD,
    SANDBOX_POOL,
    SANDBOX_TEMPLATE,
    Conflict,
    NotFound,
    Ref,
)
from sandfleet_operator.api.settings import Settings
from sandfleet_operator.api.times import parse_time
from sandfleet_operator.cluster.kube_api import KubeApi
from sandfleet_operator.cluster.store import Store
from sandfleet_operator.cluster.tasks import in_turns
from sandfleet_operator.plan.pods import names
from sandfleet_operator.plan.pods.networkpolicy import default_deny, template_egress
from sandfleet_operator.plan.sandbox.actions import EnsureKeys, EnsurePolicy, RemovePolicy
from sandfleet_operator.plan.sandbox.dependencies import is_in_place
from sandfleet_operator.reconciler.apply import Applier

# Kinds and selectors of the objects that need default deny and keys. Templates and pools count: the fleet starts the
# first pod of a claim only in a namespace that is closed.
INHABITANTS = {CODE_SANDBOX: "", SANDBOX_TEMPLATE: "", SANDBOX_POOL: "", POD: names.SANDBOX_SELECTOR}
# Seconds for which the policy stays after the last of them.
EMPTY_SECONDS = 30.0
# Objects that are looked at before others get their turn.
TURN = 200
# Seconds for which a kept spec of a template stays unused: the fleet makes it before the first pod.
REVISION_SECONDS = 600.0


class Housekeeper:
    """`busy` says whether a round for a sandbox of the namespace is running."""

    def __init__(
        self,
        kube: KubeApi,
        store: Store,
        applier: Applier,
        settings: Settings,
        *,
        busy: Callable[[str], bool],
        clock: Callable[[], float],
    ) -> None:
        self._kube = kube
        self._store = store
        self._applier = applier
        self._settings = settings
        self._busy = busy
        self._clock = clock
        self._empty_since: dict[str, float] = {}
        # Namespaces whose policy is being removed: no round may start there meanwhile.
        self.leaving: set[str] = set()

    async def template(self, namespace: str, name: str) -> None:
        """Updates the egress policy of the template's sandboxes. The owner reference deletes it with the template."""
        found = self._store.get(Ref(SANDBOX_TEMPLATE, namespace, name))
        if found is None:
            return
        try:
            wanted = template_egress(sandbox_template(found), self._settings)
        except FleetError:
            # A template that cannot be read opens no egress.
            wanted = None
        there = self._store.specs(NETWORK_POLICY, namespace)
        if wanted is not None:
            if not is_in_place(wanted, there):
                await self._applier.apply(EnsurePolicy(wanted))
        elif names.class_policy(name) in there:
            await self._applier.apply(RemovePolicy(namespace, names.class_policy(name)))

    async def namespace(self, namespace: str) -> float | None:
        """Keeps default deny and the keys in place while the namespace has one of INHABITANTS, and then removes them.

        Returns the seconds until the next look; None: only an event starts it.
        """
        if self._inhabited(namespace):
            self._empty_since.pop(namespace, None)
            deny = default_deny(namespace, self._settings)
            if not is_in_place(deny, self._store.specs(NETWORK_POLICY, namespace)):
                await self._applier.apply(EnsurePolicy(deny))
            if not self._applier.has_keys(namespace):
                await self._applier.apply(EnsureKeys(namespace))
            return None
        since = self._empty_since.setdefault(namespace, self._clock())
        left = since + EMPTY_SECONDS - self._clock()
        if left > 0:
            return left
        return await self._leave(namespace)

    async def remove_orphans(self) -> None:
        """Deletes volume claims whose sandbox is gone, and that lost the owner reference which would delete them."""
        async for claim in in_turns(self._store.all(PERSISTENT_VOLUME_CLAIM), TURN):
            meta = claim["metadata"]
            sandbox = (meta.get("labels") or {}).get(names.SANDBOX, "")
            kept = (meta.get("annotations") or {}).get(names.RETENTION) != Retention.DELETE.value
            # The volume claim of a warm pod is deleted with the pod, through its owner reference.
            if kept or meta.get("ownerReferences") or not sandbox or "deletionTimestamp" in meta:
                continue
            ref = Ref(CODE_SANDBOX, meta["namespace"], sandbox)
            if self._store.get(ref) is None and await self._applier.look(ref) is None:
                self._applier.fencing()
                orphan = Ref(PERSISTENT_VOLUME_CLAIM, meta["namespace"], meta["name"])
                # A volume claim that has got an owner since stays.
                with suppress(Conflict):
                    await self._kube.delete(orphan, uid=meta["uid"], resource_version=meta["resourceVersion"])

    async def remove_revisions(self) -> None:
        """Deletes kept specs of templates that no sandbox, pod or template has any more."""
        used = await self._used_revisions()
        for namespace in self._settings.watch_namespaces or (None,):
            for found in (await self._kube.list(CONTROLLER_REVISION, namespace, names.SANDBOX_SELECTOR)).items:
                meta = found["metadata"]
                old = parse_time(meta["creationTimestamp"], "creationTimestamp") < self._clock() - REVISION_SECONDS
                if old and (meta["namespace"], meta["name"]) not in used:
                    self._applier.fencing()
                    await self._applier.revisions.remove(found)

    async def _used_revisions(self) -> set[tuple[str, object]]:
        """Namespaces and names, as far as the store shows. What is used meanwhile is younger than REVISION_SECONDS."""
        used: set[tuple[str, object]] = set()
        for template in self._store.all(SANDBOX_TEMPLATE):
            manifest = self._applier.revisions.of(template)
            used.add((manifest["metadata"]["namespace"], manifest["metadata"]["name"]))
        async for sandbox in in_turns(self._store.all(CODE_SANDBOX), TURN):
            # Also of one that cannot be read.
            used.add((sandbox["metadata"]["namespace"], (sandbox.get("status") or {}).get("templateRevision")))
        async for pod in in_turns(self._store.all(POD), TURN):
            meta = pod["metadata"]
            used.add((meta["namespace"], (meta.get("annotations") or {}).get(names.TEMPLATE_REVISION)))
        return used

    async def _leave(self, namespace: str) -> float | None:
        """Removes the keys and the policy, after the API server has confirmed that the namespace is empty."""
        if self._busy(namespace):
            return 1.0
        self.leaving.add(namespace)
        try:
            for kind, selector in INHABITANTS.items():
                if (await self._kube.list(kind, namespace, selector, limit=1)).items:
                    return EMPTY_SECONDS
            self._applier.fencing()
            await self._delete_keys(Ref(CONFIG_MAP, namespace, names.KEYS_CONFIG_MAP))
            # The policy goes last: by it, the next operator finds namespaces that are not yet cleaned up.
            if names.DEFAULT_DENY in self._store.specs(NETWORK_POLICY, namespace):
                await self._applier.apply(RemovePolicy(namespace, names.DEFAULT_DENY))
            if names.DEFAULT_DENY in self._store.specs(NETWORK_POLICY, namespace):
                # It has changed meanwhile and was not removed.
                return 1.0
            self._empty_since.pop(namespace, None)
        finally:
            self.leaving.discard(namespace)
        return None

    async def _delete_keys(self, ref: Ref) -> None:
        with suppress(NotFound, Conflict):
            meta = (await self._kube.get(ref))["metadata"]
            await self._kube.delete(ref, uid=meta["uid"], resource_version=meta["resourceVersion"])
        await self._applier.look(ref)

    def _inhabited(self, namespace: str) -> bool:
        return any(True for kind in INHABITANTS for _ in self._store.all(kind, namespace))

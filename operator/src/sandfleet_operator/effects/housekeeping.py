"""What belongs to no single sandbox: policies of namespaces and templates, published keys, claims that were left behind."""

from collections.abc import Callable

from sandfleet_operator.api.errors import FleetError
from sandfleet_operator.api.kube import (
    CODE_SANDBOX,
    CONFIG_MAP,
    NETWORK_POLICY,
    PERSISTENT_VOLUME_CLAIM,
    POD,
    SANDBOX_POOL,
    SANDBOX_TEMPLATE,
    Ref,
)
from sandfleet_operator.api.parse import sandbox_template
from sandfleet_operator.api.resources import Retention
from sandfleet_operator.api.settings import Settings
from sandfleet_operator.effects.carry import Carrier
from sandfleet_operator.effects.kubeapi import KubeApi
from sandfleet_operator.effects.store import Store
from sandfleet_operator.plan import names
from sandfleet_operator.plan.networkpolicy import default_deny, template_egress
from sandfleet_operator.plan.sandbox.actions import EnsureKeys, EnsurePolicy, RemovePolicy
from sandfleet_operator.plan.sandbox.parts import is_in_place

# What a namespace is closed for, and which of them: a pool's is closed before its first warm pod is made.
INHABITANTS = {CODE_SANDBOX: "", SANDBOX_POOL: "", POD: names.SANDBOX_SELECTOR}
# Seconds that a namespace stays closed after its last sandbox.
EMPTY_SECONDS = 30.0


class Housekeeper:
    """`busy` says whether a sandbox of the namespace is being looked at."""

    def __init__(
        self,
        kube: KubeApi,
        store: Store,
        carrier: Carrier,
        settings: Settings,
        *,
        busy: Callable[[str], bool],
        clock: Callable[[], float],
    ) -> None:
        self._kube = kube
        self._store = store
        self._carrier = carrier
        self._settings = settings
        self._busy = busy
        self._clock = clock
        self._empty_since: dict[str, float] = {}
        # Namespaces that are being opened: nothing may be started there meanwhile.
        self.leaving: set[str] = set()

    async def template(self, namespace: str, name: str) -> None:
        """Its class policy as it says now, for all sandboxes that run on it. Deleted with it by its owner reference."""
        found = self._store.get(Ref(SANDBOX_TEMPLATE, namespace, name))
        if found is None:
            return
        try:
            wanted = template_egress(sandbox_template(found), self._settings)
        except FleetError:
            # What cannot be read opens nothing.
            wanted = None
        there = self._store.specs(NETWORK_POLICY, namespace)
        if wanted is not None:
            if not is_in_place(wanted, there):
                await self._carrier.carry(EnsurePolicy(wanted))
        elif names.class_policy(name) in there:
            await self._carrier.carry(RemovePolicy(namespace, names.class_policy(name)))

    async def namespace(self, namespace: str) -> float | None:
        """Default deny and keys while there are sandboxes or pools, nothing of ours when there are none; when to look again."""
        if self._inhabited(namespace):
            self._empty_since.pop(namespace, None)
            deny = default_deny(namespace, self._settings)
            if not is_in_place(deny, self._store.specs(NETWORK_POLICY, namespace)):
                await self._carrier.carry(EnsurePolicy(deny))
            if not self._carrier.has_keys(namespace):
                await self._carrier.carry(EnsureKeys(namespace))
            return None
        since = self._empty_since.setdefault(namespace, self._clock())
        left = since + EMPTY_SECONDS - self._clock()
        if left > 0:
            return left
        return await self._leave(namespace)

    async def remove_orphans(self) -> None:
        """Claims that were to go with their sandbox, whose owner reference somebody took away before it was deleted."""
        for claim in self._store.all(PERSISTENT_VOLUME_CLAIM):
            meta = claim["metadata"]
            sandbox = (meta.get("labels") or {}).get(names.SANDBOX, "")
            kept = (meta.get("annotations") or {}).get(names.RETENTION) != Retention.DELETE.value
            # That of a warm pod goes with the pod.
            if kept or meta.get("ownerReferences") or not sandbox or "deletionTimestamp" in meta:
                continue
            ref = Ref(CODE_SANDBOX, meta["namespace"], sandbox)
            if self._store.get(ref) is None and await self._carrier.look(ref) is None:
                self._carrier.fencing()
                await self._kube.delete(Ref(PERSISTENT_VOLUME_CLAIM, meta["namespace"], meta["name"]), uid=meta["uid"])

    async def _leave(self, namespace: str) -> float | None:
        """The API server is asked, with nothing being started meanwhile, before the policy goes."""
        if self._busy(namespace):
            return 1.0
        self.leaving.add(namespace)
        try:
            for kind, selector in INHABITANTS.items():
                if (await self._kube.list(kind, namespace, selector, limit=1)).items:
                    return EMPTY_SECONDS
            self._carrier.fencing()
            self._carrier.forget_keys(namespace)
            await self._kube.delete(Ref(CONFIG_MAP, namespace, names.KEYS_CONFIG_MAP))
            # Last: by the policy an operator that takes over finds the namespaces that are to be left.
            if names.DEFAULT_DENY in self._store.specs(NETWORK_POLICY, namespace):
                await self._carrier.carry(RemovePolicy(namespace, names.DEFAULT_DENY))
            self._empty_since.pop(namespace, None)
        finally:
            self.leaving.discard(namespace)
        return None

    def _inhabited(self, namespace: str) -> bool:
        return any(True for kind in INHABITANTS for _ in self._store.all(kind, namespace))

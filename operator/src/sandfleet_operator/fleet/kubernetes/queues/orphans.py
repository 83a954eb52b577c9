"""Pods whose CodeSandbox is gone or whose session is over: their quota is free when they are gone, too.

The garbage collector ends such a pod some time after its CodeSandbox. A pod may even turn up later than that, when the
operator was about to make it. So the API server is asked, past all caches, before the quota is free.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from sandfleet_rules.backoff import Backoff

from sandfleet_operator.api.kinds.sandbox import CodeSandbox, readable
from sandfleet_operator.api.kube import CODE_SANDBOX, POD, Json, KubeError, NotFound, Ref
from sandfleet_operator.cluster.kube_api import KubeApi
from sandfleet_operator.cluster.reflector import show_each
from sandfleet_operator.cluster.store import Store
from sandfleet_operator.cluster.tasks import BackgroundTasks
from sandfleet_operator.fleet.driver import FleetDriver
from sandfleet_operator.fleet.kubernetes.catalog import key_of
from sandfleet_operator.plan.claims.record import Record
from sandfleet_operator.plan.pods import names
from sandfleet_operator.plan.sandbox.binding import pod_names
from sandfleet_operator.plan.sandbox.observed import Pod, pod_of
from sandfleet_operator.plan.sandbox.remains import Remains, remains_of, remains_of_session

# Before a request that failed is repeated.
FAILED = Backoff(first=0.1, longest=5.0)
# Requests at the same time.
READERS = 32
# Seconds between two looks at a pod of which no watch says anything.
LOOK_AGAIN = 5.0

_LOG = logging.getLogger(__name__)


@dataclass(slots=True)
class _Orphan:
    # Of its pod.
    ref: Ref
    # UID of its CodeSandbox.
    owner: str
    # Empty: not known yet.
    pod_uid: str
    # Its CodeSandbox was there, and is gone. Otherwise a watch may still show it.
    was_seen: bool
    # It served a session that is over, whatever of its CodeSandbox is still there.
    is_over: bool = False
    news: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def key(self) -> str:
        """In the scheduler. Keys of CodeSandboxes have one slash."""
        return f"{self.ref.namespace}/{self.ref.name}/{self.owner}"


class Orphans:
    """`clock` is the scheduler's."""

    def __init__(self, kube: KubeApi, store: Store, driver: FleetDriver, clock: Callable[[], float]) -> None:
        self._kube = kube
        self._store = store
        self._driver = driver
        self._clock = clock
        # Pod, NAMESPACE/NAME → UID of its CodeSandbox.
        self._known: dict[str, dict[str, _Orphan]] = {}
        self._turns = asyncio.Semaphore(READERS)
        self._background = BackgroundTasks()

    def __len__(self) -> int:
        return sum(map(len, self._known.values()))

    def close(self) -> None:
        self._background.close()

    async def take_over(self) -> None:
        """Counts the pods that earlier leaders have left."""
        await show_each(self._store, POD, partial(self.look, gone=False))

    def leave(self, name: str, sandbox: CodeSandbox) -> None:
        """The CodeSandbox NAMESPACE/NAME that is declared to the scheduler is gone. What it counts, its pod counts."""
        ref = Ref(POD, sandbox.meta.namespace, sandbox.status.pod or sandbox.meta.name)
        orphan = _Orphan(ref, sandbox.meta.uid, sandbox.status.pod_uid, was_seen=True)
        if self._driver.scheduler.queues.rename(name, orphan.key):
            self._follow(orphan)

    def sandbox_gone(self, obj: Json) -> None:
        """A CodeSandbox is gone: the pods that it owns count from now on."""
        namespace, uid = obj["metadata"]["namespace"], obj["metadata"]["uid"]
        sandbox = readable(obj)
        for name in pod_names(sandbox) if sandbox is not None else (obj["metadata"]["name"],):
            found = self._store.get(Ref(POD, namespace, name))
            if found is not None and (pod := pod_of(found)).owner == uid:
                self._count(found, pod)

    def session_over(self, ref: Ref, uid: str, record: Record) -> None:
        """The session of the pod is over; the scheduler hears of that after this."""
        obj = self._store.get(ref)
        pod = pod_of(obj) if obj is not None else None
        if obj is None or pod is None or pod.uid != uid:
            return
        self._put(obj, pod, remains_of_session(pod, record, ref.namespace))
        for orphan in self._known.get(key_of(obj), {}).values():
            orphan.is_over = orphan.is_over or orphan.pod_uid == uid

    def look(self, obj: Json, *, gone: bool) -> None:
        """A pod is new, has changed, or is gone."""
        key = key_of(obj)
        for orphan in self._known.get(key, {}).values():
            orphan.news.set()
        annotations = obj["metadata"].get("annotations") or {}
        if gone or not (names.QUEUE in annotations or names.CLAIM in annotations):
            return
        pod = pod_of(obj)
        if self._driver.scheduler.inventory.of_incarnation(key) is None and not self._has_object(obj, pod):
            self._count(obj, pod)

    def _has_object(self, obj: Json, pod: Pod) -> bool:
        found = self._store.get(Ref(CODE_SANDBOX, obj["metadata"]["namespace"], pod.labels.get(names.SANDBOX, "")))
        if found is None:
            return False
        # A pod loses its owner when that is deleted without its dependents.
        is_served = (found.get("status") or {}).get("podUID") == pod.uid
        return found["metadata"]["uid"] == pod.owner if pod.owner else is_served

    def _count(self, obj: Json, pod: Pod) -> None:
        self._put(obj, pod, remains_of(pod, obj))

    def _put(self, obj: Json, pod: Pod, found: Remains | None) -> None:
        known = self._known.get(key_of(obj), {})
        if found is None or any(one.pod_uid == pod.uid or one.owner == pod.owner for one in known.values()):
            return
        orphan = _Orphan(Ref(POD, obj["metadata"]["namespace"], pod.name), pod.owner, pod.uid, was_seen=False)
        now, queues = self._clock(), self._driver.scheduler.queues
        self._driver.do(queues.declare(orphan.key, found.queue, found.amount, asked=now, admitted=True, now=now))
        self._follow(orphan)

    def _follow(self, orphan: _Orphan) -> None:
        self._known.setdefault(f"{orphan.ref.namespace}/{orphan.ref.name}", {})[orphan.owner] = orphan
        self._background.begin(self._ended(orphan), f"count pod {orphan.ref} until it is gone")

    async def _ended(self, orphan: _Orphan) -> None:
        failures = 0
        while True:
            orphan.news.clear()
            try:
                if not await self._is_there(orphan):
                    break
            except KubeError as error:
                failures += 1
                _LOG.info("cannot see yet whether %s is gone: %s", orphan.ref, error)
                await asyncio.sleep(error.retry_after or FAILED.after(failures))
                continue
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_AGAIN):
                    await orphan.news.wait()
        pod = f"{orphan.ref.namespace}/{orphan.ref.name}"
        self._known[pod].pop(orphan.owner, None)
        if not self._known[pod]:
            del self._known[pod]
        self._driver.do(self._driver.scheduler.queues.withdraw(orphan.key, self._clock()))

    async def _is_there(self, orphan: _Orphan) -> bool:
        """Raises KubeError."""
        found = self._store.get(orphan.ref)
        if found is None or not self._is_of(found, orphan):
            async with self._turns:
                try:
                    found = await self._kube.get(orphan.ref)
                except NotFound:
                    return False
        pod = pod_of(found)
        if orphan.is_over:
            return pod.uid == orphan.pod_uid and pod.ended is None
        if not self._is_of(found, orphan) or (not orphan.was_seen and self._has_object(found, pod)):
            return False
        # Of a session the scheduler knows when it counts no more.
        return names.CLAIM not in pod.annotations or remains_of(pod, found) is not None

    def _is_of(self, obj: Json, orphan: _Orphan) -> bool:
        pod = pod_of(obj)
        return pod.uid == orphan.pod_uid or (bool(orphan.owner) and pod.owner == orphan.owner)

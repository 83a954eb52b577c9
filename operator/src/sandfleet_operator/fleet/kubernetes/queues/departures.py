"""Pods whose sessions are over: they use their queues' quotas until they are gone, however long they take to end."""

from collections.abc import Callable

from sandfleet_operator.api.kube import POD, Json, Ref
from sandfleet_operator.cluster.store import Store
from sandfleet_operator.fleet.driver import FleetDriver
from sandfleet_operator.fleet.kubernetes.adoption import record_on
from sandfleet_operator.fleet.kubernetes.catalog import key_of
from sandfleet_operator.plan.claims.record import Record
from sandfleet_operator.plan.sandbox.observed import Pod, pod_of


class Departures:
    """`clock` is the scheduler's. Pods are told apart by their uids, since a name may come again."""

    def __init__(self, store: Store, driver: FleetDriver, *, clock: Callable[[], float]) -> None:
        self._store = store
        self._driver = driver
        self._clock = clock
        self._going: set[str] = set()

    def take_over(self) -> None:
        """Sessions that an earlier leader has ended."""
        for obj in list(self._store.all(POD)):
            pod = pod_of(obj)
            record = record_on(pod.annotations)
            known = self._driver.scheduler.inventory.of_incarnation(key_of(obj))
            if record is not None and pod.deleting and known is None:
                self.goes(Ref(POD, obj["metadata"]["namespace"], pod.name), pod.uid, record)

    def goes(self, ref: Ref, uid: str, record: Record) -> None:
        """The session of the pod is over. To be called before the scheduler hears of it."""
        found = self._store.get(ref)
        pod = pod_of(found) if found is not None else None
        if pod is None or pod.uid != uid or pod.ended is not None or not record.queue or record.amount is None:
            return
        self._going.add(uid)
        now = self._clock()
        declare = self._driver.scheduler.queues.declare
        self._driver.do(declare(uid, record.queue, record.amount, asked=now, admitted=True, now=now))

    def saw(self, obj: Json, *, gone: bool) -> None:
        pod: Pod = pod_of(obj)
        if pod.uid in self._going and (gone or pod.ended is not None):
            self._going.discard(pod.uid)
            self._driver.do(self._driver.scheduler.queues.withdraw(pod.uid, self._clock()))

"""Events for people, at most a few for each sandbox: what `kubectl describe csb` shows."""

import logging
from collections import OrderedDict
from collections.abc import Callable

from sandfleet_operator.api.conditions import Reason
from sandfleet_operator.api.kube import CODE_SANDBOX, Json, KubeError
from sandfleet_operator.api.resources import CodeSandbox, Condition
from sandfleet_operator.api.times import time_text
from sandfleet_operator.effects.kubeapi import KubeApi

REPORTER = "sandfleet-operator"
# So many at once, and then one in so many seconds, for each sandbox.
BURST = 10
REFILL_SECONDS = 60.0
MAX_KNOWN = 20_000
NORMAL = {
    one.value
    for one in (
        Reason.POD_STARTING,
        Reason.EXECUTOR_ANSWERS,
        Reason.SUSPENDING,
        Reason.SUSPENDED,
        Reason.WAITING_FOR_CLAIM,
        Reason.CLOSED,
        Reason.LIFETIME_OVER,
        Reason.IDLE_TIMEOUT_OVER,
        Reason.LEASE_OVER,
    )
}

_log = logging.getLogger(__name__)


class Events:
    def __init__(self, kube: KubeApi, clock: Callable[[], float], instance: str) -> None:
        self._kube = kube
        self._clock = clock
        self._instance = instance
        # By uid: what is left of the burst, and since when.
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    async def tell(self, sandbox: CodeSandbox, condition: Condition) -> None:
        """That it cannot be told is no error: the status says the same."""
        now = self._clock()
        if not self._take(sandbox.meta.uid, now):
            return
        try:
            await self._kube.create(self._event(sandbox, condition, now))
        except KubeError as error:
            _log.info("cannot write an Event: %s", error)

    def _take(self, uid: str, now: float) -> bool:
        left, since = self._left.pop(uid, (float(BURST), now))
        left = min(BURST, left + (now - since) / REFILL_SECONDS)
        self._left[uid] = (left - 1 if left >= 1 else left, now)
        while len(self._left) > MAX_KNOWN:
            self._left.popitem(last=False)
        return left >= 1

    def _event(self, sandbox: CodeSandbox, condition: Condition, now: float) -> Json:
        meta = sandbox.meta
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"namespace": meta.namespace, "name": f"{meta.name}.{int(now * 1e6):x}"},
            "involvedObject": {
                "apiVersion": CODE_SANDBOX.api_version,
                "kind": CODE_SANDBOX.kind,
                "namespace": meta.namespace,
                "name": meta.name,
                "uid": meta.uid,
            },
            "type": "Normal" if condition.reason in NORMAL else "Warning",
            "reason": condition.reason,
            "message": condition.message,
            "firstTimestamp": time_text(int(now)),
            "lastTimestamp": time_text(int(now)),
            "count": 1,
            "source": {"component": REPORTER},
            "reportingComponent": REPORTER,
            "reportingInstance": self._instance,
        }

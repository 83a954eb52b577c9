"""Events about sandboxes, as `kubectl describe csb` shows them; at most a few for each."""

import logging
from collections import OrderedDict
from collections.abc import Callable

from sandfleet_operator.api.conditions import Reason, ServiceReason
from sandfleet_operator.api.kinds.meta import Condition
from sandfleet_operator.api.kinds.sandbox import CodeSandbox
from sandfleet_operator.api.kube import CODE_SANDBOX, Json, KubeError
from sandfleet_operator.api.times import time_text
from sandfleet_operator.cluster.kube_api import KubeApi
from sandfleet_operator.plan.sandbox.services.status import Note

REPORTER = "sandfleet-operator"
# For each sandbox: this many at once, and then one in REFILL_SECONDS.
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
        ServiceReason.SERVICE_READY,
    )
}

_log = logging.getLogger(__name__)


class Events:
    def __init__(self, kube: KubeApi, clock: Callable[[], float], instance: str) -> None:
        self._kube = kube
        self._clock = clock
        self._instance = instance
        # (UID, subject) → what is left of the burst, and as of when.
        self._left: OrderedDict[tuple[str, str], tuple[float, float]] = OrderedDict()

    async def tell(self, sandbox: CodeSandbox, condition: Condition) -> None:
        """Writes an Event for a condition. A failure is not an error: the status says the same."""
        await self._tell(sandbox, "", Note(condition.reason, condition.message))

    async def tell_of_services(self, sandbox: CodeSandbox, note: Note) -> None:
        """Writes an Event for services.

        They have a limit of their own, so that Events of the sandbox still get through.
        """
        await self._tell(sandbox, "services", note)

    async def _tell(self, sandbox: CodeSandbox, about: str, note: Note) -> None:
        now = self._clock()
        if not self._take((sandbox.meta.uid, about), now):
            return
        try:
            await self._kube.create(self._event(sandbox, note, now))
        except KubeError as error:
            _log.info("cannot write an Event: %s", error)

    def _take(self, whose: tuple[str, str], now: float) -> bool:
        left, since = self._left.pop(whose, (float(BURST), now))
        left = min(BURST, left + (now - since) / REFILL_SECONDS)
        self._left[whose] = (left - 1 if left >= 1 else left, now)
        while len(self._left) > MAX_KNOWN:
            self._left.popitem(last=False)
        return left >= 1

    def _event(self, sandbox: CodeSandbox, note: Note, now: float) -> Json:
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
            "type": "Normal" if note.reason in NORMAL else "Warning",
            "reason": note.reason,
            "message": note.message,
            "firstTimestamp": time_text(int(now)),
            "lastTimestamp": time_text(int(now)),
            "count": 1,
            "source": {"component": REPORTER},
            "reportingComponent": REPORTER,
            "reportingInstance": self._instance,
        }

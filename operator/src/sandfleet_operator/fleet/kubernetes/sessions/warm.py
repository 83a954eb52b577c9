"""A session that comes out of its snapshot goes on in a warm pod of its pool, where there is one.

The pod is given first, in one write that no other caller of it survives, and then the mode is set. The operator takes
the pod for its own one. A fleet that ends in between has left a pod that the operator deletes when its time is over
(plan/sandbox/parked.py), and the next one gives another.
"""

from collections.abc import Callable

from sandfleet_operator.api.kinds.sandbox import readable
from sandfleet_operator.api.kube import POD, Ref
from sandfleet_operator.api.values import Sandbox, State
from sandfleet_operator.cluster.store import Store
from sandfleet_operator.fleet.kubernetes.writer import Writer
from sandfleet_operator.plan.claims.patches import give_patch
from sandfleet_operator.plan.pods import names
from sandfleet_operator.plan.sandbox.observed import pod_of
from sandfleet_operator.plan.sandbox.parked import may_be_given
from sandfleet_operator.plan.scheduler.scheduler import Scheduler


class WarmPods:
    """`given` is called with a sandbox that was warm and is a session's now. `clock`: seconds since the epoch."""

    def __init__(
        self,
        store: Store,
        writer: Writer,
        scheduler: Scheduler,
        *,
        copied_labels: tuple[str, ...],
        given: Callable[[Sandbox], None],
        clock: Callable[[], float],
    ) -> None:
        self._store, self._writer, self._scheduler = store, writer, scheduler
        self._copied, self._given, self._clock = copied_labels, given, clock

    async def give(self, ref: Ref, sandbox: Sandbox) -> None:
        """Gives the session at most one pod. Without one the operator makes it. Raises NotLeadingError."""
        found = self._store.get(ref)
        made = readable(found) if found is not None else None
        warm = self._warm(sandbox)
        if made is None or warm is None:
            return
        pod_ref = Ref(POD, *warm.sandbox_uid.split("/"))
        obj = self._store.get(pod_ref)
        pod = pod_of(obj) if obj is not None else None
        if pod is None or not may_be_given(made, pod, sandbox.contract):
            return
        copied = names.copied(made.meta.labels, self._copied)
        if await self._writer.patch(pod_ref, give_patch(pod.uid, made.meta, self._clock(), copied)):
            self._given(warm)

    def _warm(self, sandbox: Sandbox) -> Sandbox | None:
        pool = self._scheduler.pool(sandbox.pool)
        if pool is None or pool.closed:
            return None
        return self._scheduler.inventory.first_of(pool.name, State.WARM, pool.revision)

"""A session that comes out of its snapshot goes on in a warm pod of its pool, where there is one.

The pod is given first, in one write that no other caller of it survives, and then the mode is set. The operator takes
the pod for its own one. A fleet that ends in between has left a pod that the operator deletes when its time is over
(plan/sandbox/parked.py), and the next one gives another.
"""

from collections.abc import Callable

from sandfleet_operator.api.values import Sandbox, State
from sandfleet_operator.fleet.kubernetes.fleet import KubernetesFleet
from sandfleet_operator.plan.claims.patches import give_patch
from sandfleet_operator.plan.pods import names
from sandfleet_operator.plan.sandbox.parked import may_be_given


class WarmPods:
    """`copied_labels` are copied to pods; `wall_clock` gives seconds since the epoch."""

    def __init__(
        self, kubernetes: KubernetesFleet, copied_labels: tuple[str, ...], wall_clock: Callable[[], float]
    ) -> None:
        self._kubernetes, self._copied, self._clock = kubernetes, copied_labels, wall_clock

    async def give(self, sandbox: Sandbox) -> None:
        """Gives the session at most one pod. Without one the operator makes it. Raises NotLeadingError."""
        made, warm = self._kubernetes.parked.of(sandbox), self._warm(sandbox)
        pod = self._kubernetes.pod_of(warm) if warm is not None else None
        if made is None or warm is None or pod is None or not may_be_given(made, pod, sandbox.contract):
            return
        patch = give_patch(pod.uid, made.meta, self._clock(), names.copied(made.meta.labels, self._copied))
        if await self._kubernetes.patch_pod(warm, patch):
            # The watches will show it; until then no claim is to wait for it.
            fleet, scheduler = self._kubernetes.fleet, self._kubernetes.scheduler
            fleet.do(scheduler.taken(warm.sandbox_uid, fleet.now()))

    def _warm(self, sandbox: Sandbox) -> Sandbox | None:
        scheduler = self._kubernetes.scheduler
        pool = scheduler.pool(sandbox.pool)
        if pool is None or pool.closed:
            return None
        return scheduler.inventory.first_of(pool.name, State.WARM, pool.revision)

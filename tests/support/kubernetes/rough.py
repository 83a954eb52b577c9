"""An unreliable cluster: late writes, late watches, lost replies, disobedient executors, and an operator."""

import asyncio
from contextlib import aclosing

from sandfleet_operator.api.errors import Code, FleetError, Problem
from sandfleet_operator.api.kinds.sandbox import code_sandbox
from sandfleet_operator.api.kube import CODE_SANDBOX, LEASE, PERSISTENT_VOLUME_CLAIM, POD, Ref
from sandfleet_operator.cluster.reviews import REVIEW_KINDS
from sandfleet_operator.plan.claims.record import read_record
from sandfleet_operator.plan.pods import names
from support.fakes.kube_memory import MemoryKube
from support.kubernetes.world import TEAM, Pretended, World

# What is written for claims.
CLAIMING = (POD, CODE_SANDBOX, PERSISTENT_VOLUME_CLAIM, LEASE)


class RoughKube(MemoryKube):
    """Writes arrive late, also when who sent them is dead; watches tell late."""

    def __init__(self, world):
        super().__init__(world.cluster, kinds=REVIEW_KINDS)
        self._world = world
        self.fault = world.trouble

    async def _write(self, write, do):
        seconds = self._world.on_its_way(write)
        if not seconds:
            return await super()._write(write, do)
        sent = asyncio.create_task(self._arrives(seconds, super()._write(write, do)))
        self._world.flying.add(sent)
        sent.add_done_callback(self._world.landed)
        return await asyncio.shield(sent)

    async def _arrives(self, seconds, writing):
        await asyncio.sleep(seconds)
        return await writing

    async def watch(self, kind, *words, **named):
        async with aclosing(super().watch(kind, *words, **named)) as events:
            async for event in events:
                if late := self._world.late.get(kind):
                    await asyncio.sleep(late)
                yield event


class RoughPretended(Pretended):
    """Executors of pods that may be gone, and that do not always do what they are asked."""

    def __init__(self, world):
        super().__init__(world.leases, world.clock)
        self._world = world

    async def open(self, sandbox, lease):
        await asyncio.sleep(self._world.opening)
        namespace, _, name = sandbox.sandbox_uid.partition("/")
        if Ref(POD, namespace, name) not in self._world.cluster.objects:
            raise FleetError(Problem(Code.UNAVAILABLE, "ExecutorGone", "cannot reach the sandbox: its pod is gone"))
        if self._world.refusals:
            self._world.refusals -= 1
            self._world.refused.add(sandbox.sandbox_uid)
            raise FleetError(Problem(Code.INTERNAL, "OpenFailed", "cannot open the sandbox: it does not want to"))
        await super().open(sandbox, lease)


class RoughWorld(World):
    """A cluster with an operator, on which nothing can be relied upon."""

    pace = 0.05

    def __init__(self, clock):
        super().__init__(clock=clock)
        # What befalls the next writes: the verb, the fault, how often still.
        self.faults = []
        # The same with seconds until they arrive.
        self.delays = []
        # Seconds by which the watches of a kind are late.
        self.late = {}
        self.flying = set()
        self.opening, self.refusals, self.refused = 0, 0, set()

    def client(self):
        return RoughKube(self)

    def executors(self):
        return RoughPretended(self)

    def calm(self):
        self.faults, self.delays, self.late = [], [], {}
        self.opening, self.refusals = 0, 0

    def trouble(self, write):
        return _next(self.faults, write)

    def on_its_way(self, write):
        if write.verb == "delete" and write.ref.kind != POD:
            return None
        return _next(self.delays, write)

    def landed(self, sent):
        self.flying.discard(sent)
        if not sent.cancelled():
            # The caller may be gone.
            sent.exception()

    def _start(self, pod, number):
        """As the scheduler: not before its volume is there."""
        volumes = [one["persistentVolumeClaim"]["claimName"] for one in pod["spec"].get("volumes", ())[:1]]
        if all(Ref(PERSISTENT_VOLUME_CLAIM, TEAM, name) in self.cluster.objects for name in volumes):
            super()._start(pod, number)

    def operate(self):
        """The operator as the fleet sees it: statuses, replacements of dead pods, early ends."""
        for sandbox in self.objects():
            bound = (sandbox["metadata"].get("annotations") or {}).get(names.BOUND_POD)
            if bound and "deletionTimestamp" not in sandbox["metadata"]:
                self._look_after(sandbox, *bound.split("/"))

    def _look_after(self, sandbox, pod_name, pod_uid):
        status, name = sandbox.get("status") or {}, sandbox["metadata"]["name"]
        present = status.get("podUID") or pod_uid
        pod = next((one for one in self.pods() if one["metadata"]["uid"] == present), None)
        made = read_record(sandbox["metadata"]["annotations"].get(names.CLAIM, ""))
        if pod is not None:
            if not status.get("podUID") and (pod.get("status") or {}).get("podIP"):
                self._say(name, {"podName": pod_name, "podUID": pod_uid, "conditions": [self._is("Ready")]})
        elif status.get("podUID") or status.get("binding") or (made is not None and made.uid):
            self._replace(sandbox)
        elif not status.get("conditions"):
            self._say(name, {"conditions": [self._is("Expired")]})

    def _replace(self, sandbox):
        name = sandbox["metadata"]["name"]
        if Ref(POD, TEAM, name) in self.cluster.objects:
            return
        owner = names.owned_by("CodeSandbox", code_sandbox(sandbox).meta)
        labels = names.own_labels(**{names.SANDBOX: name, names.STATE: "claimed"})
        metadata = {"namespace": TEAM, "name": name, "labels": labels, "ownerReferences": [owner]}
        spec = {"containers": [{"name": "executor"}]}
        pod = self.kube._create(
            Ref(POD, TEAM, name), {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
        )
        restarts = (sandbox.get("status") or {}).get("restarts", 0) + 1
        told = {"podName": name, "podUID": pod["metadata"]["uid"], "restarts": restarts}
        self._say(name, {**told, "conditions": [self._is("Ready")]})

    def _say(self, name, status):
        self.cluster.edit(
            Ref(CODE_SANDBOX, TEAM, name), lambda obj: obj.update(status={**(obj.get("status") or {}), **status})
        )

    def _is(self, condition):
        told = {"status": "True", "reason": "ExecutorAnswers", "lastTransitionTime": self.cluster.time()}
        return {"type": condition, **told}


def _next(planned, write):
    """What is planned for this write, or None."""
    for plan in planned:
        verb, what, _ = plan
        if plan[2] and verb == write.verb and write.ref.kind in CLAIMING:
            plan[2] -= 1
            return what
    return None

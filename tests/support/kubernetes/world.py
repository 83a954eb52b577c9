"""The fleet on an API server in memory, with nodes that start whatever is made: executors are pretended."""

import asyncio
import itertools
from contextlib import suppress

from sandfleet_operator.api.kinds.template import sandbox_template
from sandfleet_operator.api.kube import CODE_SANDBOX, LEASE, NODE, POD, SANDBOX_POOL, SANDBOX_TEMPLATE, Ref, ref_of
from sandfleet_operator.api.settings import Settings
from sandfleet_operator.api.values import Claim, RequestKey
from sandfleet_operator.cluster.clock import wall_clock
from sandfleet_operator.cluster.reviews import REVIEW_KINDS
from sandfleet_operator.executors.tokens import Token
from sandfleet_operator.fleet.kubernetes.fleet import KubernetesFleet
from sandfleet_operator.fleet.kubernetes.serve import lead
from sandfleet_operator.plan.pods import names
from sandfleet_operator.plan.pods.networkpolicy import default_deny, template_egress
from sandfleet_operator.plan.pods.podspec import keys_config_map
from sandfleet_operator.plan.scheduler.claim_queue import Queued
from sandfleet_operator.plan.usage import NOTHING
from sandfleet_operator.plan.witness import Head
from support.fakes.kube_cluster import MemoryCluster
from support.fakes.kube_memory import MemoryKube

SYSTEM, TEAM = "sandfleet-system", "team"
LEASE_REF = Ref(LEASE, SYSTEM, "sandfleet-fleet")
SETTINGS = Settings(control_plane_namespace=SYSTEM, allowed_images=("registry/executor:*",))
RESOURCES = {"limits": {"cpu": "1", "memory": "2Gi", "ephemeral-storage": "4Gi"}}


def template_object(name="python", **spec):
    return {
        "apiVersion": SANDBOX_TEMPLATE.api_version,
        "kind": SANDBOX_TEMPLATE.kind,
        "metadata": {"namespace": TEAM, "name": name},
        "spec": {"image": "registry/executor:1", "resources": RESOURCES, "workspace": {"size": "1Gi"}, **spec},
    }


def pool_object(name="fast", size=2, template="python", **spec):
    return {
        "apiVersion": SANDBOX_POOL.api_version,
        "kind": SANDBOX_POOL.kind,
        "metadata": {"namespace": TEAM, "name": name},
        "spec": {"templateRef": {"name": template}, "replicas": size, **spec},
    }


def sandbox_object(name="mine", pool="fast", template="python", **spec):
    return {
        "apiVersion": CODE_SANDBOX.api_version,
        "kind": CODE_SANDBOX.kind,
        "metadata": {"namespace": TEAM, "name": name},
        "spec": {"templateRef": {"name": template}, "poolRef": {"name": pool}, **spec},
    }


class Pretended:
    """Executors that answer everything but those of the pods in `refuses`; `reaches` says what their networks reach.

    `leases` and `filled` are what the executors themselves know: it outlives the fleet that opened them.
    """

    def __init__(self, leases=None, clock=wall_clock, filled=None):
        # Incarnation → snapshot.
        self.filled = {} if filled is None else filled
        self.opened, self.refuses, self.probed = {}, {}, []
        # Of each journal.
        self.head = Head(0, "0" * 64)
        self.leases, self.clock = {} if leases is None else leases, clock
        self.reaches = lambda targets: [True] * len(targets)

    async def connect(self, sandbox, address):
        await asyncio.sleep(0)

    async def open(self, sandbox, lease):
        await asyncio.sleep(0)
        if error := self.refuses.get(sandbox.sandbox_uid):
            raise error
        self.opened[sandbox.sandbox_uid] = (sandbox.claim.key.request_id, lease)
        self.leases[sandbox.sandbox_uid] = self.clock() + lease

    async def lease_left(self, sandbox):
        await asyncio.sleep(0)
        if error := self.refuses.get(sandbox.sandbox_uid):
            raise error
        end = self.leases.get(sandbox.sandbox_uid)
        return None if end is None else max(0.0, end - self.clock())

    async def answers(self, sandbox):
        return True

    async def prepared(self, sandbox):
        return self.filled.get(sandbox.sandbox_uid, "")

    async def probe(self, sandbox, targets):
        self.probed.append((sandbox.sandbox_uid, tuple(map(str, targets))))
        found = self.reaches(targets)
        return await found if asyncio.iscoroutine(found) else found

    async def journal_head(self, sandbox):
        return self.head

    async def usage(self, sandbox):
        return NOTHING

    async def close(self, sandbox):
        pass

    async def forget(self, sandbox_uid):
        pass

    async def forget_all(self):
        pass

    def address(self, sandbox):
        return f"{sandbox.sandbox_uid}:50051"

    def caller_token(self, sandbox, lifetime):
        return Token("token", lifetime)


class World:
    """One cluster; `fleet()` makes a fleet process that leads with the next fencing number."""

    # Seconds between two looks of the kubelet.
    pace = 0.01
    # Of the fleets that are made from now on.
    settings = SETTINGS

    def __init__(self, nodes=1, cluster=None, clock=wall_clock):
        self.clock = clock
        self.cluster = cluster or MemoryCluster(clock)
        self.kube = MemoryKube(self.cluster, kinds=REVIEW_KINDS)
        self.nodes, self.fleets, self.numbers = nodes, [], itertools.count(1)
        self.starts = True
        # Incarnation → when its executor's lease ends.
        self.leases = {}
        # Incarnation → the snapshot that it was filled with.
        self.filled = {}
        self._kubelet = None

    def client(self):
        """What a fleet reads and writes through."""
        return MemoryKube(self.cluster, kinds=REVIEW_KINDS)

    async def __aenter__(self):
        for name in (SYSTEM, TEAM):
            await self.kube.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        lease = {"namespace": SYSTEM, "name": LEASE_REF.name}
        await self.kube.create(
            {"apiVersion": LEASE.api_version, "kind": LEASE.kind, "metadata": lease, "spec": {"holderIdentity": ""}}
        )
        for number in range(self.nodes):
            ready = {"conditions": [{"type": "Ready", "status": "True"}]}
            await self.kube.create(
                {"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"node-{number}"}, "status": ready}
            )
            await self.kube.merge(Ref(NODE, "", f"node-{number}"), {"status": ready}, "status")
        await self.isolate()
        self._kubelet = asyncio.create_task(self._start_pods())
        return self

    async def __aexit__(self, *_):
        for fleet in list(self.fleets):
            await self.kill(fleet)
        self._kubelet.cancel()
        with suppress(asyncio.CancelledError):
            await self._kubelet

    async def isolate(self, namespace=TEAM):
        """The operator's part: what has to be there before anything is started."""
        await self.kube.apply(default_deny(namespace, self.settings))
        await self.kube.apply(keys_config_map(namespace, "{}"))

    async def add(self, *objects):
        for obj in objects:
            made = await self.kube.create(obj)
            if obj["kind"] == SANDBOX_TEMPLATE.kind and (
                policy := template_egress(sandbox_template(made), self.settings)
            ):
                await self.kube.apply(policy)

    def executors(self):
        return Pretended(self.leases, self.clock, self.filled)

    async def fleet(self, kube=None, number=None, **options):
        """A fleet process that has taken over and serves."""
        fleet = self.process(kube, number, **options)
        await self.until(lambda: fleet.serving or fleet.task.done())
        assert fleet.serving, fleet.task.exception()
        return fleet

    def process(self, kube=None, number=None, listens=lambda pod: pod.ready, lease=None):
        """A fleet process. It leads with `number`, or with the next one, or with what `lease` gives it."""
        fencing = next(self.numbers) if number is None and lease is None else number
        state = {"leading": fencing}
        pretended = self.executors()
        made = KubernetesFleet(
            kube or self.client(),
            self.settings,
            lambda _: pretended,
            lease=LEASE_REF,
            leading=lambda: lease.fencing if lease else state["leading"],
            clock=self.clock,
            wall_clock=self.clock,
            listens=listens,
        )
        made.pretended, made.state = pretended, state

        async def live():
            async with asyncio.TaskGroup() as group:
                group.create_task(made.follow())
                group.create_task(lead(made, lease) if lease else made.lead(fencing))

        made.task = asyncio.create_task(live())
        self.fleets.append(made)
        return made

    async def kill(self, fleet):
        """As SIGKILL: nothing more of it happens."""
        fleet.state["leading"] = None
        self.fleets.remove(fleet)
        fleet.task.cancel()
        await asyncio.gather(fleet.task, return_exceptions=True)
        await fleet.close()

    async def claim(self, fleet, request="r1", pool="fast", within=10.0, **fields):
        watch = fleet.fleet.claim(
            Claim(key=RequestKey("alice", request, f"{TEAM}/{pool}"), pool=f"{TEAM}/{pool}", max_wait=within, **fields)
        )
        try:
            async with asyncio.timeout(within):
                while isinstance(news := await watch.next(), Queued):
                    pass
        finally:
            watch.leave()
        fleet.note_session(news)
        return news

    async def until(self, holds, within=10.0):
        async with asyncio.timeout(within):
            while not await _value(holds):
                await asyncio.sleep(0.005)

    async def recover(self, name):
        """The operator's part: another pod on the same workspace, and a status that says so."""
        sandbox = self.cluster.objects[Ref(CODE_SANDBOX, TEAM, name)]
        owner = {
            "apiVersion": CODE_SANDBOX.api_version,
            "kind": "CodeSandbox",
            "name": name,
            "uid": sandbox["metadata"]["uid"],
        }
        labels = names.own_labels(**{names.SANDBOX: name, names.STATE: "claimed"})
        metadata = {"namespace": TEAM, "name": name, "labels": labels, "ownerReferences": [owner]}
        pod = await self.kube.create(
            {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [{"name": "executor"}]}}
        )
        ready = {
            "type": "Ready",
            "status": "True",
            "reason": "ExecutorAnswers",
            "lastTransitionTime": self.cluster.time(),
        }
        status = {"podName": name, "podUID": pod["metadata"]["uid"], "restarts": 1, "conditions": [ready]}
        await self.kube.merge(Ref(CODE_SANDBOX, TEAM, name), {"status": status}, "status")

    def pods(self, state=None):
        found = [one for ref, one in list(self.cluster.objects.items()) if ref.kind == POD]
        if state is None:
            return found
        return [one for one in found if one["metadata"]["labels"].get(names.STATE) == state]

    def objects(self):
        return [one for ref, one in list(self.cluster.objects.items()) if ref.kind == CODE_SANDBOX]

    async def _start_pods(self):
        addresses = itertools.count(2)
        while True:
            for pod in self.pods() if self.starts else ():
                if not (pod.get("status") or {}).get("podIP"):
                    self._start(pod, next(addresses))
            self.cluster.kubelet()
            self.cluster.collect()
            self.operate()
            await asyncio.sleep(self.pace)

    def operate(self):
        """What an operator does beside the fleet; here nothing."""

    def _start(self, pod, number):
        status = {
            "phase": "Running",
            "podIP": f"10.0.{number // 250}.{number % 250}",
            "conditions": [{"type": "Ready", "status": "True"}],
            "containerStatuses": [{"name": "executor", "ready": True, "state": {"running": {}}}],
        }
        self.cluster.edit(ref_of(pod), lambda obj: obj.update(status=status))


async def _value(holds):
    found = holds()
    return await found if asyncio.iscoroutine(found) else found

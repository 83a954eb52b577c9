"""What counts against quotas, from the objects alone: nothing that the fleet says of itself is asked."""

from collections import Counter

from sandfleet_operator.api.kube import CODE_SANDBOX, POD, SANDBOX_QUEUE, Json, Ref
from sandfleet_operator.plan.claims.record import read_record
from sandfleet_operator.plan.pods import names
from sandfleet_operator.plan.sandbox.observed import pod_of
from support.fakes.kube_cluster import Change, MemoryCluster


def queue_of(ref: Ref, obj: Json) -> str | None:
    """The queue against whose quota the object counts, NAMESPACE/NAME; None: against none."""
    metadata, status = obj["metadata"], obj.get("status") or {}
    if ref.kind == CODE_SANDBOX:
        said = status.get("admission") or {}
        expired = any(one["type"] == "Expired" and one["status"] == "True" for one in status.get("conditions", ()))
        counts = said.get("state") in {"Admitted", "Ending"} and not (expired and not status.get("podUID"))
        return f"{ref.namespace}/{said['queue']}" if counts and not status.get("binding") else None
    # A pod that is being deleted counts until its processes have ended.
    if ref.kind != POD or metadata.get("labels", {}).get(names.STATE) != "claimed" or pod_of(obj).ended is not None:
        return None
    record = read_record(metadata.get("annotations", {}).get(names.CLAIM, ""))
    return record.queue or None if record else None


class Levels:
    """What counts at one instant after the other. A pod counts for its CodeSandbox when that is gone before it."""

    def __init__(self) -> None:
        self.objects: dict[Ref, Json] = {}
        self.level: Counter[str] = Counter()
        self._now: dict[Ref, str] = {}
        # UID of a CodeSandbox that is gone → its queue.
        self._left: dict[str, str] = {}

    def follow(self, change: Change) -> str | None:
        """The queue against which the changed object counts now, and did not before."""
        assert change.ref is not None
        ref, before = change.ref, self._drop(change.ref)
        if change.after is not None:
            self.objects[ref] = change.after
            after = self._put(ref, change.after)
            return after if after != before else None
        gone = self.objects.pop(ref, None)
        if ref.kind == CODE_SANDBOX and gone is not None and before:
            self._left[gone["metadata"]["uid"]] = before
            for pod in [one for one in self.objects if one.kind == POD and one.namespace == ref.namespace]:
                self._drop(pod)
                self._put(pod, self.objects[pod])
        return None

    def _put(self, ref: Ref, obj: Json) -> str | None:
        owners = obj["metadata"].get("ownerReferences") or () if ref.kind == POD else ()
        orphaned = (self._left[one["uid"]] for one in owners if one["uid"] in self._left)
        queue = queue_of(ref, obj) or next(orphaned, None)
        if queue:
            self._now[ref] = queue
            self.level[queue] += 1
        return queue

    def _drop(self, ref: Ref) -> str | None:
        queue = self._now.pop(ref, None)
        if queue:
            self.level[queue] -= 1
        return queue


def most_counted(cluster: MemoryCluster) -> dict[str, int]:
    """Queue → the most that have counted against it at any instant."""
    levels, most = Levels(), Counter[str]()
    for change in cluster.changes:
        if change.ref is not None and (queue := levels.follow(change)):
            most[queue] = max(most[queue], levels.level[queue])
    return dict(most)


def overdrafts(cluster: MemoryCluster) -> list[str]:
    """What broke a queue: one that counts above the nominal quota of that moment, or a pod without an admission.

    The queues of a cohort have their nominal quotas together. A sandbox that had a pod before its queue counts.
    """
    levels, found = Levels(), []
    for change in cluster.changes:
        if (ref := change.ref) is None:
            continue
        is_new, new = ref not in levels.objects, change.after
        if queue := levels.follow(change):
            peers = _peers(levels.objects, queue)
            quotas = [_quota(levels.objects, one) for one in peers]
            number = sum(levels.level[one] for one in peers)
            quota = None if None in quotas else sum(one or 0 for one in quotas)
            had_pod = ref.kind == CODE_SANDBOX and bool((new or {}).get("status", {}).get("podUID"))
            if quota is not None and number > quota and not had_pod:
                found.append(f"{ref} is number {number} of {quota} in {queue}, at {change.version}")
        if ref.kind == POD and is_new and new is not None and not _may_have_pod(levels.objects, ref, new):
            found.append(f"{ref} was made without an admission, at {change.version}")
    return found


def _peers(objects: dict[Ref, Json], queue: str) -> list[str]:
    """The queues of its cohort, or itself."""
    queues = {
        f"{ref.namespace}/{ref.name}": obj["spec"].get("cohort")
        for ref, obj in objects.items()
        if ref.kind == SANDBOX_QUEUE
    }
    cohort = queues.get(queue)
    return [name for name, own in queues.items() if own == cohort] if cohort else [queue]


def _quota(objects: dict[Ref, Json], queue: str) -> int | None:
    namespace, _, name = queue.partition("/")
    found = objects.get(Ref(SANDBOX_QUEUE, namespace, name))
    return int(found["spec"]["nominalQuota"]["sandboxes"]) if found is not None else None


def _may_have_pod(objects: dict[Ref, Json], ref: Ref, pod: Json) -> bool:
    """Whether a pod of the operator's making was admitted, where a queue concerns its sandbox."""
    owners = [one["name"] for one in pod["metadata"].get("ownerReferences") or () if one["kind"] == "CodeSandbox"]
    sandbox = objects.get(Ref(CODE_SANDBOX, ref.namespace, owners[0])) if owners else None
    if sandbox is None:
        return True
    queue = (sandbox["spec"].get("queueRef") or {}).get("name", "default")
    if Ref(SANDBOX_QUEUE, ref.namespace, queue) not in objects and "queueRef" not in sandbox["spec"]:
        return True
    status = sandbox.get("status") or {}
    said = (status.get("admission") or {}).get("state")
    # A session is admitted with its claim, until it sleeps.
    return said == "Admitted" or (said is None and bool(status.get("binding")))

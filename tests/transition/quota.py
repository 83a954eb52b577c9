"""What counts against quotas, from the objects alone: nothing that the fleet says of itself is asked."""

from collections import Counter

from sandfleet_operator.api.kube import CODE_SANDBOX, POD, SANDBOX_QUEUE, Json, Ref
from sandfleet_operator.plan.claims.record import read_record
from sandfleet_operator.plan.pods import names
from sandfleet_operator.plan.sandbox.observed import pod_of
from support.fakes.kube_cluster import MemoryCluster


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


def counted(objects: dict[Ref, Json]) -> Counter[str]:
    """Queue → how many sandboxes count against its quota."""
    found = (queue_of(ref, obj) for ref, obj in objects.items())
    return Counter(queue for queue in found if queue)


def most_counted(cluster: MemoryCluster) -> dict[str, int]:
    """Queue → the most that have counted against it at any instant."""
    now: dict[Ref, str] = {}
    level: Counter[str] = Counter()
    most: Counter[str] = Counter()
    for change in cluster.changes:
        if change.ref is None:
            continue
        if before := now.pop(change.ref, None):
            level[before] -= 1
        if change.after is not None and (queue := queue_of(change.ref, change.after)):
            now[change.ref] = queue
            level[queue] += 1
            most[queue] = max(most[queue], level[queue])
    return dict(most)


def overdrafts(cluster: MemoryCluster) -> list[str]:
    """What broke a queue: one that counts above the nominal quota of that moment, or a pod without an admission.

    Of queues without a cohort. A sandbox that had a pod before it had a queue counts without being admitted.
    """
    objects: dict[Ref, Json] = {}
    level: Counter[str] = Counter()
    found = []
    for change in cluster.changes:
        if (ref := change.ref) is None:
            continue
        old, new = objects.pop(ref, None), change.after
        before, after = (queue_of(ref, one) if one is not None else None for one in (old, new))
        if before:
            level[before] -= 1
        if new is not None:
            objects[ref] = new
        if after:
            level[after] += 1
            quota = _quota(objects, after)
            had_pod = ref.kind == CODE_SANDBOX and bool((new or {}).get("status", {}).get("podUID"))
            if after != before and quota is not None and level[after] > quota and not had_pod:
                found.append(f"{ref} is number {level[after]} of {quota} in {after}, at {change.version}")
        if ref.kind == POD and old is None and new is not None and not _may_have_pod(objects, ref, new):
            found.append(f"{ref} was made without an admission, at {change.version}")
    return found


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
    return bool(status.get("binding")) or (status.get("admission") or {}).get("state") == "Admitted"

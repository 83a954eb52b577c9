"""What counts against quotas, from the objects alone: nothing that the fleet says of itself is asked."""

from collections import Counter

from sandfleet_operator.api.kube import CODE_SANDBOX, POD, Json, Ref
from sandfleet_operator.plan.claims.record import read_record
from sandfleet_operator.plan.pods import names
from support.fakes.kube_cluster import MemoryCluster


def queue_of(ref: Ref, obj: Json) -> str | None:
    """The queue against whose quota the object counts, NAMESPACE/NAME; None: against none."""
    metadata, status = obj["metadata"], obj.get("status") or {}
    if ref.kind == CODE_SANDBOX:
        said = status.get("admission") or {}
        expired = any(one["type"] == "Expired" and one["status"] == "True" for one in status.get("conditions", ()))
        counts = said.get("state") in {"Admitted", "Ending"} and not (expired and not status.get("podUID"))
        return f"{ref.namespace}/{said['queue']}" if counts and not status.get("binding") else None
    if ref.kind != POD or metadata.get("labels", {}).get(names.STATE) != "claimed" or "deletionTimestamp" in metadata:
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

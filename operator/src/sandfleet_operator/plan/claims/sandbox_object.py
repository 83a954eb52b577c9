"""The CodeSandbox of a claim, which the fleet writes after it has replied to the caller."""

import math
from dataclasses import replace

from sandfleet_operator.api.egress import parse
from sandfleet_operator.api.kinds import mounts
from sandfleet_operator.api.kinds.meta import API_VERSION
from sandfleet_operator.api.kinds.sandbox import RecoveryFrom
from sandfleet_operator.api.kinds.template import Retention
from sandfleet_operator.api.kube import Json
from sandfleet_operator.api.limits import BOUNDS, Limits
from sandfleet_operator.api.quantities import bytes_text, cores_text
from sandfleet_operator.api.table import in_bytes, table
from sandfleet_operator.api.validate import trace_parent
from sandfleet_operator.plan.claims.record import Record, record_text, retention
from sandfleet_operator.plan.egress.lists import written
from sandfleet_operator.plan.pods import names
from sandfleet_operator.plan.pods.merge import MIN_USER_MEMORY


def bound_annotations(pod: str, pod_uid: str, record: Record) -> dict[str, str]:
    """Of the CodeSandbox of a claim."""
    annotations = {names.BOUND_POD: f"{pod}/{pod_uid}", names.CLAIM: record_text(record)}
    if trace := trace_parent(record.traceparent):
        annotations[names.TRACEPARENT] = trace
    return annotations


def code_sandbox(
    namespace: str, pod: str, pod_uid: str, record: Record, *, template: str, pool: str, memory_reserve: int
) -> Json:
    """The CodeSandbox of a claim, which is written behind the reply. `pool` empty: a cold start without one.

    `memory_reserve` is what the executor needs for itself, in bytes.
    """
    # Capitalized: the custom resources write enums as Kubernetes does.
    spec: Json = {"templateRef": {"name": template}, "contract": record.contract.capitalize()}
    if pool:
        spec["poolRef"] = {"name": pool}
    if record.image:
        spec["image"] = record.image
    spec |= _queue(record)
    if record.envs:
        spec["env"] = [{"name": name, "value": value} for name, value in sorted(record.envs.items())]
    if record.mounts:
        spec["mounts"] = mounts.listing(record.mounts)
    if not record.egress:
        spec["egress"] = {"names": written(map(parse, record.egress_names))} if record.egress_names else {}
    if workspace := _workspace(record):
        spec["workspace"] = workspace
    if limits := _limits(record.limits):
        spec["executionLimits"] = limits
    if resources := _resources(record.limits, memory_reserve):
        spec["resources"] = {"limits": resources}
    spec |= _unattended(record)
    labels = {**record.labels, names.MANAGED_BY: names.PRODUCT}
    if pool:
        labels[names.POOL] = names.bounded(pool)
    metadata = {
        "namespace": namespace,
        "name": record.object,
        "labels": labels,
        "annotations": bound_annotations(pod, pod_uid, record),
    }
    return {"apiVersion": API_VERSION, "kind": "CodeSandbox", "metadata": metadata, "spec": spec}


def _resources(limits: Limits, memory_reserve: int) -> Json:
    """Memory and processors are said once, of the container: what the executor leaves of its memory is the user's."""
    said: Json = {}
    if limits.memory_bytes:
        said["memory"] = bytes_text(memory_reserve + max(limits.memory_bytes, MIN_USER_MEMORY))
    if limits.cpus:
        said["cpu"] = cores_text(limits.cpus)
    return said


def _unattended(record: Record) -> Json:
    """What happens to it without a caller."""
    said: Json = {} if record.idle is None else {"idleTimeoutSeconds": math.ceil(record.idle)}
    if record.on_idle != "end":
        said["onIdle"] = record.on_idle.capitalize()
    if record.snapshots is not None:
        said |= {"recovery": RecoveryFrom.SNAPSHOT.value, "snapshotPeriodSeconds": math.ceil(record.snapshots)}
    return said


def _queue(record: Record) -> Json:
    queue = {"queueRef": {"name": record.queue.rpartition("/")[2]}} if record.queue else {}
    return {**queue, **({"priorityClass": record.priority} if record.priority else {})}


def _workspace(record: Record) -> Json:
    if not record.workspace:
        return {"retention": Retention.RETAIN.value} if record.keep else {}
    return {"claimName": record.workspace, "retention": retention(record).value}


def _limits(limits: Limits) -> Json:
    """In the schema's words and whole numbers, rounded up; the default timeout follows the longest, as in the executor.

    A claim may ask for less than the schema takes: its executor keeps to that, and the object says the least.
    """
    if limits.max_timeout and limits.default_timeout:
        limits = replace(limits, default_timeout=min(limits.max_timeout, limits.default_timeout))
    said: Json = {}
    for column in table(Limits):
        if value := getattr(limits, column.name):
            whole = math.ceil(max(BOUNDS[column.name].least, value))
            said[column.at.word] = bytes_text(whole) if column.at.read is in_bytes else whole
    return said

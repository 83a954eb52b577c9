"""Young sessions for lists and watches: each as its CodeSandbox will show it, read from its pod.

A standby shows the same as the leader, since both see the same pods.
"""

from collections.abc import Callable, Iterator

from sandfleet_operator.api.conditions import ConditionType, Reason
from sandfleet_operator.api.kept import Kept
from sandfleet_operator.api.kube import Json
from sandfleet_operator.api.settings import Settings
from sandfleet_operator.api.times import time_text
from sandfleet_operator.plan.claims.record import Record, read_record
from sandfleet_operator.plan.claims.sandbox_object import code_sandbox
from sandfleet_operator.plan.claims.young import is_only_pod
from sandfleet_operator.plan.pods import names
from sandfleet_operator.plan.sandbox.observed import Pod, pod_of


class YoungSessions:
    """By the name of the CodeSandbox that is to come, NAMESPACE/NAME.

    `is_served` says whether the leader goes on with a session: its pod may be deleted by another writer.
    """

    def __init__(self, settings: Settings, is_served: Callable[[str], bool]) -> None:
        self._settings = settings
        self._is_served = is_served
        # The pod, and what is shown of it.
        self._known: dict[str, tuple[Pod, Json]] = {}

    def get(self, name: str) -> Json | None:
        known = self._known.get(name)
        return known[1] if known else None

    def all(self, namespace: str | None) -> Iterator[Json]:
        for _, shown in list(self._known.values()):
            if namespace is None or shown["metadata"]["namespace"] == namespace:
                yield shown

    def saw(self, obj: Json, *, gone: bool) -> tuple[str, Json, bool] | None:
        """A pod is new, has changed or is gone. Returns the name, what is shown, and whether that is over.

        None: nothing is new for those who look at sessions.
        """
        if names.CLAIM not in (obj["metadata"].get("annotations") or {}):
            return None
        pod = pod_of(obj)
        record = read_record(pod.annotations[names.CLAIM])
        if record is None:
            return None
        name = f"{obj['metadata']['namespace']}/{record.object}"
        known = self._known.get(name)
        if known is not None and known[0].uid != pod.uid and known[0].created > pod.created:
            return None
        if pod.owner and not gone:
            # Its CodeSandbox says more, once a watch shows it.
            return None
        ends = gone or (pod.deleting and not self._is_served(name))
        if ends or not is_only_pod(pod, record):
            shown = self.drop(name) if known is not None and known[0].uid == pod.uid else None
            return (name, shown, True) if shown is not None else None
        if known is not None and _looks_same(known[0], pod):
            return None
        shown = _shown(obj, pod, record, self._settings)
        self._known[name] = pod, shown
        return name, shown, False

    def drop(self, name: str) -> Json | None:
        """Its CodeSandbox tells of it from now on, or it is over. Returns what was shown."""
        known = self._known.pop(name, None)
        return known[1] if known else None


def _looks_same(before: Pod, now: Pod) -> bool:
    return (before.uid, _is_over(before), before.address) == (now.uid, _is_over(now), now.address)


def _is_over(pod: Pod) -> bool:
    return pod.deleting or pod.ended is not None


def _shown(obj: Json, pod: Pod, record: Record, settings: Settings) -> Json:
    """The CodeSandbox as the operator would have it: Ready, or to be replaced."""
    namespace, made_at = obj["metadata"]["namespace"], time_text(record.at)
    template, pool = (pod.labels.get(label, "") for label in (names.TEMPLATE, names.POOL))
    made = code_sandbox(namespace, pod.name, pod.uid, record, template=template, pool=pool, memory_reserve=0)
    over = _is_over(pod)
    ready = {
        "type": ConditionType.READY.value,
        "status": "False" if over else "True",
        "reason": (Reason.EXECUTOR_CRASHED if over else Reason.EXECUTOR_ANSWERS).value,
        "lastTransitionTime": made_at,
    }
    status: Json = {
        "podName": pod.name,
        "podUID": pod.uid,
        "runtime": "gvisor" if pod.runtime_class in settings.gvisor_classes else "linux",
        "restarts": int(over),
        "conditions": [ready],
    }
    del made["metadata"]["annotations"]
    made["metadata"] |= {"creationTimestamp": made_at, "resourceVersion": pod.version}
    return Kept({**made, "status": status})

"""The chart's ValidatingAdmissionPolicy in memory. tests/cluster/test_admission.py compares it with the real one."""

from collections.abc import Callable, Collection, Mapping

from sandfleet_operator.api.kube import CODE_SANDBOX, PERSISTENT_VOLUME_CLAIM, POD, Forbidden, Json, Kind, Ref
from sandfleet_operator.plan.pods import names

GUARDED = (CODE_SANDBOX, POD, PERSISTENT_VOLUME_CLAIM)
LABELS = names.CONTROL_LABELS - {names.COMPONENT}
# The client that writes, what it writes, the object before (None: it is new) and after. Raises KubeError.
Admit = Callable[[str, Ref, Json | None, Json], None]


def written(kind: Kind, old: Json | None, new: Json) -> set[str]:
    """The keys of control that a write adds, changes or removes, and that only the control plane may."""
    if kind not in GUARDED:
        return set()
    was, now = ({field: _of(obj, field) for field in ("labels", "annotations")} for obj in (old or {}, new))
    found = {
        key
        for field, keys in (("labels", LABELS), ("annotations", names.CONTROL_ANNOTATIONS))
        for key in keys
        if now[field].get(key) != was[field].get(key) and (key in now[field] or kind != CODE_SANDBOX)
    }
    components = {one["labels"].get(names.COMPONENT) for one in (was, now)}
    more = {names.COMPONENT} if len(components) > 1 and names.SANDBOX_COMPONENT in components else set()
    return found | more


def control_only(accounts: Collection[str]) -> Admit:
    def admit(client: str, ref: Ref, old: Json | None, new: Json) -> None:
        if client not in accounts and (keys := written(ref.kind, old, new)):
            said = f"cannot write {', '.join(sorted(keys))}: only Sandfleet's control plane does"
            raise Forbidden(403, "Forbidden", said)

    return admit


def _of(obj: Json, field: str) -> Mapping[str, str]:
    found: Mapping[str, str] = (obj.get("metadata") or {}).get(field) or {}
    return found

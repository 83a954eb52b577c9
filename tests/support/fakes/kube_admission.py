"""The chart's ValidatingAdmissionPolicy in memory. tests/cluster/test_admission.py compares it with the real one."""

from collections.abc import Callable, Collection, Mapping

from sandfleet_operator.api.kube import CODE_SANDBOX, PERSISTENT_VOLUME_CLAIM, POD, Forbidden, Json, Kind, Ref, failure
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


def denies(status: int, why: str, concerned: Callable[[Ref, Json | None, Json], bool]) -> Admit:
    """An admission policy or webhook of the cluster, which denies what is `concerned` with a status of its choice.

    A ValidatingAdmissionPolicy that names no reason answers 422 with Invalid, as a failed test of a JSON patch does.
    """

    def admit(_client: str, ref: Ref, old: Json | None, new: Json) -> None:
        if concerned(ref, old, new):
            doing = f"{'create' if old is None else 'patch'} {ref}"
            said = f"{ref.kind.plural} \"{ref.name}\" is forbidden: ValidatingAdmissionPolicy 'house' denied request: {why}"
            raise failure(doing, status, {"message": said})

    return admit


def only_sandboxes(accounts: Collection[str], runtimes: Collection[str], home: str = "") -> Admit:
    """The chart's policy on the pods that the control plane itself writes; deletions are not seen here.

    `home` is the control plane's own namespace.
    """

    def admit(client: str, ref: Ref, old: Json | None, new: Json) -> None:
        if client not in accounts or ref.kind != POD:
            return
        is_own = old is not None and ref.namespace == home
        is_closed = ref.namespace.startswith("kube-") and not is_own
        why = "a namespace of Kubernetes itself" if is_closed else _improper(old, new, runtimes)
        if why:
            raise Forbidden(403, "Forbidden", f"cannot write {ref}: the control plane's pods: {why}")

    return admit


def _improper(old: Json | None, new: Json, runtimes: Collection[str]) -> str:
    spec = new["spec"]
    if old is not None:
        return "" if spec == old["spec"] else "another spec"
    volumes, containers = spec.get("volumes", ()), [*spec["containers"], *spec.get("initContainers", ())]
    sources = [source for one in volumes for source in one.get("projected", {}).get("sources", ())]
    said = {
        "no sandbox": _of(new, "labels").get(names.COMPONENT) != names.SANDBOX_COMPONENT,
        "another RuntimeClass": spec.get("runtimeClassName", "") not in runtimes,
        "something of its node": any(spec.get(name) for name in ("hostNetwork", "hostPID", "hostIPC"))
        or any("hostPath" in one for one in volumes)
        or any((one.get("securityContext") or {}).get("privileged") for one in containers),
        "a token": spec.get("automountServiceAccountToken", True)
        or any("serviceAccountToken" in source for source in sources),
    }
    return ", ".join(what for what, is_so in said.items() if is_so)


def both(*admits: Admit) -> Admit:
    def admit(client: str, ref: Ref, old: Json | None, new: Json) -> None:
        for one in admits:
            one(client, ref, old, new)

    return admit


def control_only(accounts: Collection[str]) -> Admit:
    def admit(client: str, ref: Ref, old: Json | None, new: Json) -> None:
        if client not in accounts and (keys := written(ref.kind, old, new)):
            said = f"cannot write {', '.join(sorted(keys))}: only Sandfleet's control plane does"
            raise Forbidden(403, "Forbidden", said)

    return admit


def _of(obj: Json, field: str) -> Mapping[str, str]:
    found: Mapping[str, str] = (obj.get("metadata") or {}).get(field) or {}
    return found

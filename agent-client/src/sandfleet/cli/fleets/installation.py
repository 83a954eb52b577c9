"""`sandfleet doctor --platform`: whether a cluster's installation is whole, by kubectl alone, and what mends it."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any

from sandfleet import __version__
from sandfleet._fleets import cluster
from sandfleet.cli import OK, PLATFORM
from sandfleet.cli.checks import Check, show
from sandfleet.errors import SandfleetError

# The chart needs it, too.
_LEAST_KUBERNETES = (1, 32)
_KINDS = ("codesandboxes", "sandboxtemplates", "sandboxpools", "sandboxqueues", "sandboxsnapshots")
_OURS = ("-l", "app.kubernetes.io/part-of=sandfleet")
_SANDBOXES = ("-l", "sandfleet.io/component=sandbox")
_EVERYWHERE = "--all-namespaces"
# Name → the words of `kubectl get` that read it. SYSTEM stands for the namespace of the control plane.
_READ: Mapping[str, tuple[str, ...]] = {
    "kinds": ("customresourcedefinitions",),
    "deployments": ("deployments", "-n", "SYSTEM", *_OURS),
    "leases": ("leases", "-n", "SYSTEM"),
    "settings": ("configmaps", "-n", "SYSTEM", *_OURS),
    "policies": ("validatingadmissionpolicybindings", *_OURS),
    "runtimes": ("runtimeclasses",),
    "nodes": ("nodes",),
    "heartbeats": ("leases", "-n", "kube-node-lease"),
    "storage": ("storageclasses",),
    "pools": ("sandboxpools", _EVERYWHERE),
    "closures": ("networkpolicies", _EVERYWHERE, "-l", "app.kubernetes.io/managed-by=sandfleet"),
    "quotas": ("resourcequotas", _EVERYWHERE),
    "pods": ("pods", _EVERYWHERE, *_SANDBOXES),
}
# Containers of a sandbox's pod that are ours.
_CONTAINERS = {"executor", "bring-executor"}
_DENY = "sandfleet-default-deny"
# A kubelet writes its Lease each ten seconds. Certificates and tokens bear a difference of two minutes.
_LATE = 120.0
_NAMED = 3

Objects = list[dict[str, Any]]


@dataclass(frozen=True)
class Seen:
    """Objects that kubectl has shown, by the names above, and why others could not be read."""

    objects: Mapping[str, Objects]
    refused: Mapping[str, str] = field(default_factory=dict)
    # Of the API server; "" if it did not say.
    version: str = ""

    def of(self, name: str) -> Objects:
        """Return the objects of this name; none if they could not be read."""
        return list(self.objects.get(name, ()))


def run(options: argparse.Namespace) -> int:
    """Run the checks and report; return 0 if all that is needed is there, else 3."""
    checks = examine(look(), time.time())
    ok = all(check.ok for check in checks if check.needed)
    if options.json:
        print(json.dumps({"ok": ok, "checks": [asdict(check) for check in checks]}))
    else:
        show(checks)
    return OK if ok else PLATFORM


def look(also: Mapping[str, tuple[str, ...]] | None = None) -> Seen:
    """Read the cluster of kubectl's context, and what `also` names. Raises UnavailableError if there is none."""
    wanted = {**_READ, **(also or {})}
    version = cluster.ask("version").get("serverVersion") or {}
    system = cluster.system_namespace()
    objects: dict[str, Objects] = {}
    refused: dict[str, str] = {}

    def read(name: str) -> None:
        words = (system if word == "SYSTEM" else word for word in wanted[name])
        try:
            objects[name] = cluster.listed(*words)
        except SandfleetError as error:
            refused[name] = error.message

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(read, wanted))
    return Seen(objects, refused, str(version.get("gitVersion") or ""))


def examine(seen: Seen, now: float) -> list[Check]:
    """Judge what was seen at `now`, in seconds of the epoch. Pure."""
    found = [
        _kubernetes(seen),
        _kinds(seen),
        *_deployments(seen),
        *_leases(seen, now),
        _policies(seen),
        *_gvisor(seen),
        _clocks(seen, now),
        _storage(seen),
        _closed(seen),
        _sidecars(seen),
        *_pools(seen),
        *_quotas(seen),
    ]
    return [*found, *(Check(f"read {name}", ok=False, detail=why) for name, why in sorted(seen.refused.items()))]


def _kubernetes(seen: Seen) -> Check:
    numbers = tuple(int(part) for part in seen.version.lstrip("v").split(".")[:2] if part.isdigit())
    least = ".".join(map(str, _LEAST_KUBERNETES))
    ok = numbers >= _LEAST_KUBERNETES
    detail = f"{seen.version} ({least} or later is needed)"
    return Check("Kubernetes", ok, detail if ok else f"{detail}: upgrade the cluster", needed=True)


def _kinds(seen: Seen) -> Check:
    there = {_name(one) for one in seen.of("kinds") if _holds(one, "Established")}
    missing = [kind for kind in _KINDS if f"{kind}.sandfleet.io" not in there]
    ok = not missing
    why = f"{_some(missing)} missing: `helm upgrade` installs them, unless crds.enabled is false"
    return Check("kinds", ok, f"all {len(_KINDS)} are established" if ok else why, needed=True)


def _deployments(seen: Seen) -> Iterator[Check]:
    found = {_labels(one).get("app.kubernetes.io/component", _name(one)): one for one in seen.of("deployments")}
    for component in sorted({"operator", "fleet", *found}):
        one = found.get(component)
        if one is None:
            yield Check(component, ok=False, detail="not installed: see docs/howto/install.md", needed=True)
            continue
        wanted = int(one["spec"].get("replicas", 1))
        ready = int(one.get("status", {}).get("readyReplicas") or 0)
        version = _labels(one).get("app.kubernetes.io/version", "?")
        said = f"{ready} of {wanted} ready, version {version}"
        if ready < wanted:
            name, namespace = _name(one), one["metadata"]["namespace"]
            said += f": `kubectl describe deployment {name} -n {namespace}` and its pods' logs say why"
        elif version != __version__:
            said += f" (this client is {__version__})"
        yield Check(component, ready >= wanted, said, needed=True)


def _leases(seen: Seen, now: float) -> Iterator[Check]:
    for one in seen.of("leases"):
        name, spec = _name(one), one.get("spec") or {}
        if not name.startswith("sandfleet-"):
            continue
        holder, age = spec.get("holderIdentity") or "", now - _time(spec.get("renewTime"))
        ok = bool(holder) and age <= 2.0 * float(spec.get("leaseDurationSeconds") or 15)
        why = f"no process leads{f' for {age:.0f} s' if holder else ''}: see the logs of its pods"
        yield Check(f"leader {name.removeprefix('sandfleet-')}", ok, holder if ok else why, needed=True)


def _policies(seen: Seen) -> Check:
    many = len(seen.of("policies"))
    why = "none is bound: who may create pods or objects with our labels is trusted (admissionPolicy.enabled)"
    return Check("admission policies", many > 0, f"{many} are bound" if many else why)


def _gvisor(seen: Seen) -> Iterator[Check]:
    """Each RuntimeClass of the settings, and whether a ready node has it."""
    classes = {_name(one): one for one in seen.of("runtimes")}
    for name in _settings(seen).get("gvisorClasses") or ["gvisor"]:
        one = classes.get(name)
        if one is None:
            why = f"no RuntimeClass {name}: install gVisor on nodes, and set runtimeClass.create=true"
            yield Check("gVisor", ok=False, detail=why, needed=True)
            continue
        wanted = (one.get("scheduling") or {}).get("nodeSelector") or {}
        nodes = [node for node in seen.of("nodes") if wanted.items() <= _labels(node).items() and _holds(node, "Ready")]
        selector = ",".join(f"{key}={value}" for key, value in wanted.items())
        why = f"no ready node has {selector or 'it'}, which RuntimeClass {name} selects: install gVisor and label one"
        yield Check("gVisor", bool(nodes), f"{name} on {len(nodes)} ready nodes" if nodes else why, needed=True)


def _clocks(seen: Seen, now: float) -> Check:
    """Name the ready nodes whose kubelets date their heartbeats far from this machine's clock."""
    ready = {_name(one) for one in seen.of("nodes") if _holds(one, "Ready")}
    times = {_name(one): _time((one.get("spec") or {}).get("renewTime")) for one in seen.of("heartbeats")}
    wrong = [
        f"{name} ({times[name] - now:+.0f} s)" for name in sorted(ready & set(times)) if abs(times[name] - now) > _LATE
    ]
    ok = not wrong
    why = f"{_some(wrong)} off this machine's clock: certificates and tokens end early or late; set up NTP"
    return Check("clocks", ok, "nodes agree with this machine" if ok else why)


def _storage(seen: Seen) -> Check:
    marked = "storageclass.kubernetes.io/is-default-class"
    named = [
        _name(one) for one in seen.of("storage") if (one["metadata"].get("annotations") or {}).get(marked) == "true"
    ]
    why = "no StorageClass is the default: templates name one (workspace.storageClassName), or are ephemeral"
    return Check("storage", bool(named), f"{_some(named)} is the default" if named else why)


def _closed(seen: Seen) -> Check:
    """Whether each namespace that has pools denies by default. That it is enforced is for `helm test` to try."""
    closed = {one["metadata"]["namespace"] for one in seen.of("closures") if _name(one) == _DENY}
    wanted = {one["metadata"]["namespace"] for one in (*seen.of("pools"), *seen.of("pods"))}
    open_ = sorted(wanted - closed)
    why = f"{_DENY} is missing in {_some(open_)}: does the operator run, and is the namespace in watchNamespaces?"
    return Check("closed namespaces", not open_, why if open_ else f"{len(wanted)} with sandboxes", needed=True)


def _sidecars(seen: Seen) -> Check:
    found = sorted({f"{name} in {one['metadata']['namespace']}" for one in seen.of("pods") for name in _foreign(one)})
    why = f"{_some(found)}: a mesh or webhook adds containers to sandboxes; exclude pods with sandfleet.io/component"
    return Check("sidecars", not found, why if found else "no sandbox has a container of others", needed=True)


def _foreign(pod: dict[str, Any]) -> Iterator[str]:
    spec = pod.get("spec") or {}
    for one in (*(spec.get("initContainers") or ()), *(spec.get("containers") or ())):
        if one.get("name") not in _CONTAINERS:
            yield str(one.get("name"))


def _pools(seen: Seen) -> Iterator[Check]:
    bad = []
    for one in seen.of("pools"):
        ready = _condition(one, "Ready")
        if ready.get("status") == "False":
            bad.append(f"{one['metadata']['namespace']}/{_name(one)}: {ready.get('reason')}")
    many = len(seen.of("pools"))
    if many:
        why = f"{_some(bad)}; `sandfleet explain REASON` and docs/howto/runbook.md say what to do"
        yield Check("pools", not bad, why if bad else f"all {many} are filled")


def _quotas(seen: Seen) -> Iterator[Check]:
    """Quotas of namespaces with pools of which nothing is left."""
    watched = {one["metadata"]["namespace"] for one in seen.of("pools")}
    full = []
    for one in seen.of("quotas"):
        status = one.get("status") or {}
        hard, used = status.get("hard") or {}, status.get("used") or {}
        spent = [key for key, value in hard.items() if used.get(key) == value]
        if spent and one["metadata"]["namespace"] in watched:
            full.append(f"{one['metadata']['namespace']}/{_name(one)} ({', '.join(sorted(spent))})")
    if full:
        yield Check("quotas", ok=False, detail=f"used up: {_some(full)}; raise them, or lower the pools")


def _settings(seen: Seen) -> dict[str, Any]:
    for one in seen.of("settings"):
        if text := (one.get("data") or {}).get("settings.json"):
            try:
                said = json.loads(text)
            except ValueError:
                continue
            return said if isinstance(said, dict) else {}
    return {}


def _name(obj: dict[str, Any]) -> str:
    return str(obj["metadata"]["name"])


def _labels(obj: dict[str, Any]) -> dict[str, str]:
    return obj["metadata"].get("labels") or {}


def _condition(obj: dict[str, Any], kind: str) -> dict[str, Any]:
    conditions = (obj.get("status") or {}).get("conditions") or ()
    return next((one for one in conditions if one.get("type") == kind), {})


def _holds(obj: dict[str, Any], kind: str) -> bool:
    return bool(_condition(obj, kind).get("status") == "True")


def _time(text: object) -> float:
    """Return seconds of the epoch; 0 for what is no time."""
    try:
        return datetime.fromisoformat(str(text)).astimezone(UTC).timestamp()
    except ValueError:
        return 0.0


def _some(names: Iterable[str]) -> str:
    """Name the first of them, and count the rest."""
    all_ = list(names)
    rest = len(all_) - _NAMED
    return ", ".join(all_[:_NAMED]) + (f" and {rest} more" if rest > 0 else "")

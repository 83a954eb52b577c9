"""Checks what a pod must not have: the Pod Security level `restricted` of Kubernetes 1.35, and a stricter list of ours.

The checks take a Linux pod: our manifest, or what the API server made of it. They do not trust the code that made it.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

Json = Mapping[str, Any]
# From a pod to its violations, in words.
Check = Callable[[Json], Iterable[str]]

CONTAINER_LISTS = ("initContainers", "containers", "ephemeralContainers")
VOLUME_TYPES = frozenset({
    "configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "image", "persistentVolumeClaim", "projected", "secret",
})  # fmt: skip
OUR_VOLUME_TYPES = frozenset({"emptyDir", "persistentVolumeClaim", "projected"})
SELINUX_TYPES = frozenset({"", "container_t", "container_init_t", "container_kvm_t", "container_engine_t"})
SYSCTLS = frozenset({
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.ping_group_range",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.tcp_wmem",
})  # fmt: skip
APPARMOR_ANNOTATION = "container.apparmor.security.beta.kubernetes.io/"
PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
RESOURCES = ("cpu", "memory", "ephemeral-storage")
# A reference that the kubelet would replace by another variable's value: `$(` with an unescaped dollar.
REFERENCE = re.compile(r"(?<!\$)(\$\$)*\$\(")


def violations(pod: Json) -> tuple[str, ...]:
    """All violations, in the order of the checks; empty for a pod that may run."""
    return restricted_violations(pod) + stricter_violations(pod)


def restricted_violations(pod: Json) -> tuple[str, ...]:
    """Violations that a namespace with `restricted` refuses."""
    return tuple(found for check in RESTRICTED for found in check(pod))


def stricter_violations(pod: Json) -> tuple[str, ...]:
    """Violations that only Sandfleet refuses."""
    return tuple(found for check in STRICTER for found in check(pod))


def _part(value: Json, *keys: str) -> Json:
    """A nested object; empty if it is missing."""
    for key in keys:
        value = value.get(key) or {}
    return value


def _containers(pod: Json) -> Iterator[tuple[str, Json]]:
    for kind in CONTAINER_LISTS:
        for container in _part(pod, "spec").get(kind) or ():
            yield f"container {container.get('name', '')!r}", container


def _contexts(pod: Json) -> Iterator[tuple[str, Json]]:
    """The pod's security context and each container's."""
    yield "the pod", _part(pod, "spec", "securityContext")
    for where, container in _containers(pod):
        yield where, _part(container, "securityContext")


def _in_user_namespace(pod: Json) -> bool:
    return _part(pod, "spec").get("hostUsers") is False


def _host_namespaces(pod: Json) -> Iterator[str]:
    for name in ("hostNetwork", "hostPID", "hostIPC"):
        if _part(pod, "spec").get(name):
            yield f"the pod sets {name}"


def _host_ports(pod: Json) -> Iterator[str]:
    for where, container in _containers(pod):
        if any(port.get("hostPort") for port in container.get("ports") or ()):
            yield f"{where} has a host port"


def _host_probes(pod: Json) -> Iterator[str]:
    for where, container in _containers(pod):
        handlers = [(name, _part(container, name)) for name in PROBES]
        handlers += [(name, _part(container, "lifecycle", name)) for name in ("postStart", "preStop")]
        for name, handler in handlers:
            if any(_part(handler, kind).get("host") for kind in ("httpGet", "tcpSocket")):
                yield f"{where} names a host in its {name}"


def _volume_types(pod: Json) -> Iterator[str]:
    for volume in _part(pod, "spec").get("volumes") or ():
        if not VOLUME_TYPES.intersection(volume):
            yield f"volume {volume.get('name', '')!r} is of no restricted type"


def _privileged(pod: Json) -> Iterator[str]:
    for where, context in _contexts(pod):
        if context.get("privileged"):
            yield f"{where} is privileged"


def _host_process(pod: Json) -> Iterator[str]:
    for where, context in _contexts(pod):
        if _part(context, "windowsOptions").get("hostProcess"):
            yield f"{where} is a host process"


def _privilege_escalation(pod: Json) -> Iterator[str]:
    for where, container in _containers(pod):
        if _part(container, "securityContext").get("allowPrivilegeEscalation") is not False:
            yield f"{where} does not set allowPrivilegeEscalation: false"


def _capabilities(pod: Json) -> Iterator[str]:
    for where, container in _containers(pod):
        capabilities = _part(container, "securityContext", "capabilities")
        if "ALL" not in (capabilities.get("drop") or ()):
            yield f"{where} does not drop ALL capabilities"
        for name in sorted(set(capabilities.get("add") or ()) - {"NET_BIND_SERVICE"}):
            yield f"{where} adds capability {name}"


def _non_root(pod: Json) -> Iterator[str]:
    if _in_user_namespace(pod):
        return
    of_pod = _part(pod, "spec", "securityContext").get("runAsNonRoot")
    if of_pod is False:
        yield "the pod sets runAsNonRoot: false"
    for where, container in _containers(pod):
        own = _part(container, "securityContext").get("runAsNonRoot")
        if own is False or (own is None and not of_pod):
            yield f"{where} may run as root"


def _root_user(pod: Json) -> Iterator[str]:
    if _in_user_namespace(pod):
        return
    for where, context in _contexts(pod):
        if context.get("runAsUser") == 0:
            yield f"{where} sets runAsUser: 0"


def _seccomp(pod: Json) -> Iterator[str]:
    good = {"RuntimeDefault", "Localhost"}
    of_pod = _part(pod, "spec", "securityContext", "seccompProfile").get("type")
    if of_pod is not None and of_pod not in good:
        yield f"the pod sets seccomp profile {of_pod}"
    for where, container in _containers(pod):
        own = _part(container, "securityContext", "seccompProfile").get("type")
        if (own or of_pod) is None:
            yield f"{where} has no seccomp profile"
        elif own is not None and own not in good:
            yield f"{where} sets seccomp profile {own}"


def _app_armor(pod: Json) -> Iterator[str]:
    for where, context in _contexts(pod):
        kind = _part(context, "appArmorProfile").get("type", "RuntimeDefault")
        if kind not in {"RuntimeDefault", "Localhost"}:
            yield f"{where} sets AppArmor profile {kind}"
    for key, value in _part(pod, "metadata", "annotations").items():
        fine = value in {"", "runtime/default"} or value.startswith("localhost/")
        if key.startswith(APPARMOR_ANNOTATION) and not fine:
            yield f"annotation {key} sets AppArmor profile {value}"


def _selinux(pod: Json) -> Iterator[str]:
    for where, context in _contexts(pod):
        options = _part(context, "seLinuxOptions")
        if options.get("type", "") not in SELINUX_TYPES:
            yield f"{where} sets SELinux type {options['type']}"
        for name in ("user", "role"):
            if options.get(name):
                yield f"{where} sets an SELinux {name}"


def _proc_mount(pod: Json) -> Iterator[str]:
    for where, container in _containers(pod):
        mount = _part(container, "securityContext").get("procMount", "Default")
        if mount != "Default":
            yield f"{where} sets procMount {mount}"


def _sysctls(pod: Json) -> Iterator[str]:
    for sysctl in _part(pod, "spec", "securityContext").get("sysctls") or ():
        if sysctl["name"] not in SYSCTLS:
            yield f"the pod sets sysctl {sysctl['name']}"


RESTRICTED: tuple[Check, ...] = (
    _host_namespaces,
    _host_ports,
    _host_probes,
    _volume_types,
    _privileged,
    _host_process,
    _privilege_escalation,
    _capabilities,
    _non_root,
    _root_user,
    _seccomp,
    _app_armor,
    _selinux,
    _proc_mount,
    _sysctls,
)


def _set_as_ours(pod: Json) -> Iterator[str]:
    spec = _part(pod, "spec")
    if not spec.get("runtimeClassName"):
        yield "the pod names no runtime class"
    for name in ("automountServiceAccountToken", "enableServiceLinks"):
        if spec.get(name) is not False:
            yield f"the pod does not set {name}: false"
    if spec.get("dnsPolicy") not in {"None", "ClusterFirst"}:
        yield "the pod has no resolver policy of its own"


def _escape_hatches(pod: Json) -> Iterator[str]:
    spec = _part(pod, "spec")
    allowed = {"serviceAccountName": "default", "serviceAccount": "default"}
    for name in ("serviceAccountName", "serviceAccount", "shareProcessNamespace", "hostAliases", "os"):
        if spec.get(name) and spec[name] != allowed.get(name):
            yield f"the pod sets {name}"
    if spec.get("hostUsers"):
        yield "the pod asks for the host's user namespace"
    for kind in ("initContainers", "ephemeralContainers"):
        if spec.get(kind):
            yield f"the pod has {kind}"


def _never_root(pod: Json) -> Iterator[str]:
    """Checked even in a user namespace, where `restricted` allows root."""
    context = _part(pod, "spec", "securityContext")
    if context.get("runAsNonRoot") is not True:
        yield "the pod does not set runAsNonRoot: true"
    for name in ("runAsUser", "runAsGroup"):
        if not context.get(name):
            yield f"the pod sets no {name} above 0"
    for where, container in _containers(pod):
        own = _part(container, "securityContext")
        if own.get("runAsNonRoot") is False or own.get("runAsUser") == 0 or own.get("runAsGroup") == 0:
            yield f"{where} runs as root"


def _container_hatches(pod: Json) -> Iterator[str]:
    for where, container in _containers(pod):
        if _part(container, "securityContext").get("readOnlyRootFilesystem") is not True:
            yield f"{where} can write to its root file system"
        if _part(container, "securityContext", "capabilities").get("add"):
            yield f"{where} adds capabilities"
        if container.get("lifecycle"):
            yield f"{where} has lifecycle hooks"
        if container.get("volumeDevices"):
            yield f"{where} has a raw device"
        if any(mount.get("mountPropagation") for mount in container.get("volumeMounts") or ()):
            yield f"{where} propagates mounts"


def _bounds(pod: Json) -> Iterator[str]:
    for where, container in _containers(pod):
        for kind in ("requests", "limits"):
            for name in RESOURCES:
                if name not in _part(container, "resources", kind):
                    yield f"{where} has no {kind} for {name}"


def _references(pod: Json) -> Iterator[str]:
    """A variable that refers to another could disclose the value of a Secret."""
    for where, container in _containers(pod):
        for variable in container.get("env") or ():
            if REFERENCE.search(variable.get("value") or ""):
                yield f"{where} refers to another variable in {variable['name']}"


def _our_volumes(pod: Json) -> Iterator[str]:
    for volume in _part(pod, "spec").get("volumes") or ():
        name = f"volume {volume.get('name', '')!r}"
        if not OUR_VOLUME_TYPES.intersection(volume):
            yield f"{name} is of none of our types"
        if "emptyDir" in volume and not _part(volume, "emptyDir").get("sizeLimit"):
            yield f"{name} has no size limit"
        for source in _part(volume, "projected").get("sources") or ():
            for kind in sorted(set(source) - {"configMap"}):
                yield f"{name} projects a {kind}"


STRICTER: tuple[Check, ...] = (
    _set_as_ours,
    _escape_hatches,
    _never_root,
    _container_hatches,
    _bounds,
    _references,
    _our_volumes,
)

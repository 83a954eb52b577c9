"""One way each of making a pod worse: what the checker has to say of it, and who else refuses it."""

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]


@dataclass(frozen=True)
class Worse:
    said: str
    change: Callable[[Json, Json], object]
    """Changes the pod and its only container in place."""
    restricted: bool
    """The Pod Security Standards refuse it too."""
    creatable: bool = True
    """The API server would look at it at all: the rest is invalid, or cannot be in a new pod."""

    def of(self, pod: Mapping[str, Any]) -> Json:
        worse = deepcopy(dict(pod))
        self.change(worse, worse["spec"]["containers"][0])
        return worse


def _put(value: Any, *path: str) -> Callable[[Json, Json], object]:
    """Set a value: `container` and `pod` are where a path begins."""

    def change(pod: Json, container: Json) -> None:
        place: Json = {"pod": pod, "spec": pod["spec"], "container": container}[path[0]]
        for key in path[1:-1]:
            place = place.setdefault(key, {})
        place[path[-1]] = value

    return change


def _drop(*path: str) -> Callable[[Json, Json], object]:
    def change(pod: Json, container: Json) -> None:
        place: Json = pod["spec"] if path[0] == "spec" else container
        for key in path[1:-1]:
            place = place[key]
        del place[path[-1]]

    return change


def _and(*changes: Callable[[Json, Json], object]) -> Callable[[Json, Json], object]:
    return lambda pod, container: [change(pod, container) for change in changes]


def _second(kind: str, **more: Any) -> Callable[[Json, Json], object]:
    """Another container beside the first, as bad as it can be forgotten about."""
    bare = {"name": "second", "image": "x", **more}
    return lambda pod, _: pod["spec"].setdefault(kind, []).append(bare)


def _volume(**source: Any) -> Callable[[Json, Json], object]:
    return lambda pod, _: pod["spec"]["volumes"].append({"name": "more", **source})


POD, OWN = ("spec", "securityContext"), ("container", "securityContext")
FIRST, SECOND = "container 'executor'", "container 'second'"

RESTRICTED = [
    ("the pod sets hostNetwork", _put(True, "spec", "hostNetwork")),
    ("the pod sets hostPID", _put(True, "spec", "hostPID")),
    ("the pod sets hostIPC", _put(True, "spec", "hostIPC")),
    (f"{FIRST} has a host port", lambda _, c: c["ports"][0].update(hostPort=80)),
    (f"{FIRST} names a host in its readinessProbe", _put("127.0.0.1", "container", "readinessProbe", "tcpSocket", "host")),
    (f"{FIRST} names a host in its preStop", _put({"path": "/", "port": 80, "host": "x"}, "container", "lifecycle", "preStop", "httpGet")),
    ("volume 'more' is of no restricted type", _volume(hostPath={"path": "/"})),
    ("volume 'more' is of no restricted type", _volume(nfs={"server": "x", "path": "/"})),
    (f"{FIRST} does not set allowPrivilegeEscalation: false", _drop(*OWN, "allowPrivilegeEscalation")),
    (f"{FIRST} does not set allowPrivilegeEscalation: false", _put(True, *OWN, "allowPrivilegeEscalation")),
    (f"{FIRST} is privileged", _and(_put(True, *OWN, "allowPrivilegeEscalation"), _put(True, *OWN, "privileged"))),
    (f"{FIRST} does not drop ALL capabilities", _put(["NET_RAW"], *OWN, "capabilities", "drop")),
    (f"{FIRST} does not drop ALL capabilities", _drop(*OWN, "capabilities")),
    (f"{FIRST} adds capability SYS_ADMIN", _put(["SYS_ADMIN"], *OWN, "capabilities", "add")),
    ("the pod sets runAsNonRoot: false", _put(False, *POD, "runAsNonRoot")),
    (f"{FIRST} may run as root", _drop(*POD, "runAsNonRoot")),
    (f"{FIRST} may run as root", _put(False, *OWN, "runAsNonRoot")),
    ("the pod sets runAsUser: 0", _put(0, *POD, "runAsUser")),
    (f"{FIRST} sets runAsUser: 0", _put(0, *OWN, "runAsUser")),
    (f"{FIRST} has no seccomp profile", _drop(*POD, "seccompProfile")),
    ("the pod sets seccomp profile Unconfined", _put({"type": "Unconfined"}, *POD, "seccompProfile")),
    (f"{FIRST} sets seccomp profile Unconfined", _put({"type": "Unconfined"}, *OWN, "seccompProfile")),
    ("the pod sets AppArmor profile Unconfined", _put({"type": "Unconfined"}, *POD, "appArmorProfile")),
    (f"{FIRST} sets AppArmor profile Unconfined", _put({"type": "Unconfined"}, *OWN, "appArmorProfile")),
    ("annotation container.apparmor.security.beta.kubernetes.io/executor sets AppArmor profile unconfined", _put("unconfined", "pod", "metadata", "annotations", "container.apparmor.security.beta.kubernetes.io/executor")),
    ("the pod sets SELinux type spc_t", _put({"type": "spc_t"}, *POD, "seLinuxOptions")),
    (f"{FIRST} sets an SELinux user", _put({"user": "system_u"}, *OWN, "seLinuxOptions")),
    (f"{FIRST} sets an SELinux role", _put({"role": "sysadm_r"}, *OWN, "seLinuxOptions")),
    (f"{FIRST} sets procMount Unmasked", _and(_put("Unmasked", *OWN, "procMount"), _put(False, "spec", "hostUsers"))),
    ("the pod sets sysctl kernel.msgmax", _put([{"name": "kernel.msgmax", "value": "1"}], *POD, "sysctls")),
    (f"{SECOND} does not drop ALL capabilities", _second("initContainers")),
    (f"{SECOND} does not set allowPrivilegeEscalation: false", _second("containers")),
]  # fmt: skip
INVALID_BUT_RESTRICTED = [
    ("the pod is a host process", _put({"hostProcess": True}, *POD, "windowsOptions")),
    (f"{FIRST} is a host process", _put({"hostProcess": True}, *OWN, "windowsOptions")),
    (f"{SECOND} does not drop ALL capabilities", _second("ephemeralContainers")),
]
ROOT_IN_A_NAMESPACE = _and(_put(False, "spec", "hostUsers"), _drop(*POD, "runAsNonRoot"))
STRICTER = [
    ("the pod names no runtime class", _drop("spec", "runtimeClassName")),
    ("the pod does not set automountServiceAccountToken: false", _drop("spec", "automountServiceAccountToken")),
    ("the pod does not set enableServiceLinks: false", _put(True, "spec", "enableServiceLinks")),
    ("the pod has no resolver policy of its own", _put("Default", "spec", "dnsPolicy")),
    ("the pod sets shareProcessNamespace", _put(True, "spec", "shareProcessNamespace")),
    ("the pod sets hostAliases", _put([{"ip": "203.0.113.1", "hostnames": ["x"]}], "spec", "hostAliases")),
    ("the pod asks for the host's user namespace", _put(True, "spec", "hostUsers")),
    ("the pod does not set runAsNonRoot: true", ROOT_IN_A_NAMESPACE),
    ("the pod sets no runAsUser above 0", _drop(*POD, "runAsUser")),
    ("the pod sets no runAsGroup above 0", _put(0, *POD, "runAsGroup")),
    (f"{FIRST} runs as root", _and(_put(False, "spec", "hostUsers"), _put(0, *OWN, "runAsUser"))),
    (f"{FIRST} can write to its root file system", _drop(*OWN, "readOnlyRootFilesystem")),
    (f"{FIRST} adds capabilities", _put(["NET_BIND_SERVICE"], *OWN, "capabilities", "add")),
    (f"{FIRST} has lifecycle hooks", _put({"command": ["true"]}, "container", "lifecycle", "preStop", "exec")),
    (f"{FIRST} propagates mounts", lambda _, c: c["volumeMounts"][0].update(mountPropagation="HostToContainer")),
    (f"{FIRST} has no limits for ephemeral-storage", lambda _, c: [c["resources"][kind].pop("ephemeral-storage") for kind in ("limits", "requests")]),
    (f"{FIRST} has no requests for cpu", lambda _, c: c["resources"]["requests"].pop("cpu")),
    (f"{FIRST} refers to another variable in X", lambda _, c: c["env"].append({"name": "X", "value": "$$$(SANDFLEET_POD_UID)"})),
    ("volume 'more' is of none of our types", _volume(secret={"secretName": "x"})),
    ("volume 'more' has no size limit", _volume(emptyDir={})),
    ("volume 'more' projects a serviceAccountToken", _volume(projected={"sources": [{"serviceAccountToken": {"path": "token"}}]})),
]  # fmt: skip
INVALID_BUT_STRICTER = [
    ("the pod sets serviceAccountName", _put("another", "spec", "serviceAccountName")),
    ("the pod sets os", _put({"name": "windows"}, "spec", "os")),
    (f"{FIRST} has a raw device", _put([{"name": "workspace", "devicePath": "/dev/x"}], "container", "volumeDevices")),
    ("the pod has ephemeralContainers", _second("ephemeralContainers")),
]
ALL = tuple(
    Worse(said, change, restricted, creatable)
    for rows, restricted, creatable in (
        (RESTRICTED, True, True),
        (INVALID_BUT_RESTRICTED, True, False),
        (STRICTER, False, True),
        (INVALID_BUT_STRICTER, False, False),
    )
    for said, change in rows
)

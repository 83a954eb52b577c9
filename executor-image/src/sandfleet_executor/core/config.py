"""The configuration that an executor gets at its start."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Self

from sandfleet_executor.core.errors import BadRequest, ConfigError
from sandfleet_executor.core.files import mounts
from sandfleet_executor.core.limits import Limits
from sandfleet_executor.core.packages import installation, preload
from sandfleet_executor.core.services import parse
from sandfleet_executor.core.session.foreign import Rootfs, of_image

ISOLATIONS = ("namespace", "none")
NETWORKS = ("none", "pod")
# Who may run code. With `brokered` code calls tools of the host, with `reviewed` a person approves each execution.
ANY_KEY = "any"
AUTONOMOUS, BROKERED, REVIEWED = "autonomous", "brokered", "reviewed"
CONTRACTS = (AUTONOMOUS, BROKERED, REVIEWED)
# In a pod the configuration comes from the environment: the object, the pod's uid, and user code's variables.
CONFIG_VARIABLE = "SANDFLEET_EXECUTOR_CONFIG"
UID_VARIABLE = "SANDFLEET_POD_UID"
# Beside the object, where executors of older images do not mind it.
AUTHORITY_VARIABLE = "SANDFLEET_KEYS_AUTHORITY"
USER_PREFIX = "SANDFLEET_USER_"
ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,255}")
REQUIRED = ("sandbox_id", "sandbox_uid", "workspace", "private_dir", "keys_file")


@dataclass(frozen=True)
class Rollback:
    """Whether contexts are copied while they are idle, so that a cell which is killed costs no variables."""

    enabled: bool = True
    # Largest interpreter that is copied, in bytes. 0: half of the sandbox's memory.
    max_memory_bytes: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.enabled, bool):
            raise ConfigError(f"cannot take rollback enabled={self.enabled!r}: it has to be true or false")
        if type(self.max_memory_bytes) is not int or self.max_memory_bytes < 0:
            raise ConfigError(
                f"cannot take rollback max_memory_bytes={self.max_memory_bytes!r}: it has to be a number from 0 on"
            )

    def most_bytes(self, limits: Limits) -> int:
        """Of an interpreter that is copied; 0 where none is."""
        half = limits.memory_bytes // 2
        return min(self.max_memory_bytes or half, half) if self.enabled else 0


@dataclass(frozen=True)
class ExecutorConfig:
    """One sandbox. Paths are the host's."""

    sandbox_id: str
    # Of this incarnation: the audience of its tokens.
    sandbox_uid: str
    workspace: str
    private_dir: str
    keys_file: str
    # Where to listen: exactly one of the two. A path of a unix socket; "HOST:PORT" for TLS.
    socket: str | None = None
    listen: str | None = None
    # The egress process takes the session's connections at this socket; None: the session has no way out by name.
    egress_socket: str | None = None
    # In a pod, the egress process is at this HOST:PORT, speaks TLS, and is told this NAMESPACE/NAME of the pod.
    egress_address: str | None = None
    egress_pod: str = ""
    # What user code can reach: nothing, or what the pod can (a pod's network namespace cannot be left under gVisor).
    network: str = "none"
    isolation: str = "namespace"
    # Host uid of user code; only root can give it one of its own.
    user_id: int | None = None
    limits: Limits = field(default_factory=Limits)
    lease: float | None = None
    idle_timeout: float | None = None
    # Whether to make cgroups, of processes and of memory.
    cgroup: bool = False
    # Where executions and saved variables are stored, so that they survive this process; None: executions are in memory
    # only, and variables cannot be saved. On the workspace's volume, but nowhere below the workspace, which is all that
    # user code sees of it.
    state_dir: str | None = None
    # Variables that every interpreter and command starts with; those of the session come over them.
    envs: Mapping[str, str] = field(default_factory=dict)
    # Started with the session; as core/services/parse.py reads them.
    services: Sequence[Any] = ()
    rollback: Rollback = Rollback()
    # Requirements (PEP 508) that are installed into the workspace with the session, and the seconds that this may take.
    packages: Sequence[str] = ()
    packages_timeout: float = 300.0
    # Path in the session → folder of the workspace that is mounted there; "" for the folder of the same path.
    mounts: Mapping[str, str] = field(default_factory=dict)
    # A root of another image that the session has; None: folders of the machine, or of the executor's own image.
    rootfs: Rootfs | None = None
    # Modules of the image that each context has in memory from its start.
    preload: Sequence[str] = ()
    # Of the session: its tokens repeat it.
    contract: str = AUTONOMOUS
    # The public key, as base64 of its DER form, that has to have signed each key in `keys_file`. ANY_KEY: each key in
    # the file counts. Without a value, too, but only on one machine, where nothing but the fleet can write the file.
    keys_authority: str | None = None

    @property
    def brokered(self) -> bool:
        return self.contract == BROKERED

    @property
    def reviewed(self) -> bool:
        return self.contract == REVIEWED

    def __post_init__(self) -> None:
        self._check_paths()
        if (self.socket is None) == (self.listen is None):
            raise ConfigError("cannot take the configuration: give either socket or listen")
        if self.listen is not None and not self.keys_authority:
            why = (
                "other accounts of a namespace may write the keys of tokens, and keys_authority does not say who signs"
            )
            raise ConfigError(f"cannot serve on a network: {why} them")
        if self.network not in NETWORKS:
            raise ConfigError(f"cannot take network={self.network!r}: it is one of {', '.join(NETWORKS)}")
        if self.isolation not in ISOLATIONS:
            raise ConfigError(f"cannot take isolation={self.isolation!r}: it is one of {', '.join(ISOLATIONS)}")
        if self.egress_socket and (self.isolation != "namespace" or self.network != "none"):
            raise ConfigError("cannot take egress_socket: without a network of its own user code has another way out")
        if self.egress_address and (self.listen is None or self.egress_socket):
            raise ConfigError("cannot take egress_address: only an executor with a certificate reaches it")
        if self.user_id is not None and self.user_id <= 0:
            raise ConfigError(f"cannot take user_id={self.user_id}: user code never runs as root")
        for name, value in self.envs.items():
            if not ENV_NAME.fullmatch(name) or not isinstance(value, str) or "\0" in value:
                raise ConfigError(f"cannot take the variable {name[:100]!r} of envs: it is no name with a text")
        self._check_contract()
        self._check_declared()

    def _check_contract(self) -> None:
        if self.rootfs and self.isolation != "namespace":
            raise ConfigError("cannot take rootfs: the session has no namespace of its own")
        if self.rootfs and self.rootfs.of_container != (self.network == "pod"):
            why = "in a pod it is the container's own root, and elsewhere never the machine's"
            raise ConfigError(f"cannot take rootfs path={self.rootfs.path!r}: {why}")
        if self.contract not in CONTRACTS:
            raise ConfigError(f"cannot take contract={self.contract!r}: it is one of {', '.join(CONTRACTS)}")
        if self.brokered and self.isolation != "namespace":
            raise ConfigError("cannot broker tools: without a session namespace code has all that the machine has")

    def _check_paths(self) -> None:
        for name in ("socket", "workspace", "private_dir", "keys_file", "state_dir", "egress_socket"):
            path = getattr(self, name)
            if path is not None and not (isinstance(path, str) and path.startswith("/")):
                raise ConfigError(f"cannot take {name}={path!r}: it has to be an absolute path")
        if self.state_dir and f"{self.state_dir}/".startswith(f"{self.workspace.rstrip('/')}/"):
            raise ConfigError(f"cannot take state_dir={self.state_dir!r}: user code would see it in the workspace")

    def _check_declared(self) -> None:
        try:
            parse.services(list(self.services), self.workspace)
            installation.check(self.packages)
            installation.check_seconds(self.packages_timeout)
            preload.check(self.preload)
            self._check_mounts()
        except BadRequest as error:
            raise ConfigError(str(error)) from error

    def _check_mounts(self) -> None:
        if not all(isinstance(text, str) for one in self.mounts.items() for text in one):
            raise ConfigError("cannot take the configuration: mounts are paths with folders")
        mounts.check(self.mounts)
        if self.mounts and self.isolation != "namespace":
            raise ConfigError("cannot mount folders: without a session namespace there is nothing to mount them in")

    @classmethod
    def parse(cls, values: Mapping[str, Any]) -> Self:
        """From a JSON object. Raises ConfigError for missing and unknown keys and wrong values."""
        known = {field.name for field in fields(cls)}
        if unknown := sorted(set(values) - known):
            raise ConfigError(f"cannot take the configuration: unknown {', '.join(unknown)}")
        if not isinstance(values.get("services", []), list):
            raise ConfigError("cannot take the configuration: services is no list")
        limits = part(values, "limits", Limits)
        rollback = part(values, "rollback", Rollback)
        for name in ("envs", "mounts"):
            if not isinstance(values.get(name, {}), Mapping):
                raise ConfigError(f"cannot take the configuration: {name} is no object")
        for name in REQUIRED:
            if not isinstance(values.get(name), str) or not values[name]:
                raise ConfigError(f"cannot take the configuration: {name} has to be a text")
        rootfs = Rootfs(**part(values, "rootfs", Rootfs)) if values.get("rootfs") is not None else None
        made = {"limits": Limits(**limits), "rollback": Rollback(**rollback), "rootfs": rootfs}
        return cls(**{**values, **made})

    @classmethod
    def from_environment(cls, environment: Mapping[str, str], user: int = 0) -> Self:
        """From what a pod's container is started with, as this user. Raises ConfigError."""
        try:
            values = json.loads(environment[CONFIG_VARIABLE])
        except KeyError:
            raise ConfigError(f"cannot take the configuration: {CONFIG_VARIABLE} is not set") from None
        except ValueError as error:
            raise ConfigError(f"cannot take {CONFIG_VARIABLE}: {error}") from None
        if not isinstance(values, dict):
            raise ConfigError(f"cannot take {CONFIG_VARIABLE}: it is no object")
        if uid := environment.get(UID_VARIABLE):
            values["sandbox_uid"] = uid
        if authority := environment.get(AUTHORITY_VARIABLE):
            values["keys_authority"] = authority
        if values.get("rootfs") is not None:
            root = part(values, "rootfs", Rootfs)
            values["rootfs"] = {**root, "user": user, "envs": of_image(environment)}
        # Of secrets: their keys need not be names of variables.
        secret = {
            name[len(USER_PREFIX) :]: value for name, value in environment.items() if name.startswith(USER_PREFIX)
        }
        given = {name: value for name, value in secret.items() if ENV_NAME.fullmatch(name)}
        return cls.parse({**values, "envs": given | dict(values.get("envs") or {})})


def part(values: Mapping[str, Any], name: str, kind: type[Limits | Rollback | Rootfs]) -> Mapping[str, Any]:
    """An object within the configuration. Raises ConfigError for what `kind` has no field for."""
    found = values.get(name, {})
    if not isinstance(found, Mapping):
        raise ConfigError(f"cannot take the configuration: {name} is no object")
    if unknown := sorted(set(found) - {field.name for field in fields(kind)}):
        raise ConfigError(f"cannot take the configuration: unknown {name} {', '.join(unknown)}")
    return found

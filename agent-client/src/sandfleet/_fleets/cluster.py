"""Find the fleet of a Kubernetes cluster and a token for it: by given names, from inside a pod, or with kubectl."""

from __future__ import annotations

import base64
import binascii
import json
import os
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from sandfleet._fleets import port_forward
from sandfleet.errors import UnavailableError

# The Services of fleet and gateway. Certificates have these names.
SERVICE, GATEWAY = "sandfleet-fleet", "sandfleet-gateway"
PORT, GATEWAY_PORT = 8443, 8444
AUDIENCE = "sandfleet"
# Values of SANDFLEET_FLEET other than HOST:PORT.
KUBERNETES, EMBEDDED = "kubernetes", "embedded"
# Values of SANDFLEET_CONNECT: how kubectl's user reaches pods. Without it, a port-forward is used where it is needed.
DIRECT, TUNNEL = "direct", "tunnel"
# A client's pod has a projected volume with CA and token here.
POD_FILES = Path("/var/run/secrets/sandfleet")
# Every pod with a service account has it.
POD_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_DEFAULT_NAMESPACE = "default"
# The environment variables that decide which fleet is found.
_VARIABLES = (
    "SANDFLEET_FLEET",
    "SANDFLEET_FLEET_CA",
    "SANDFLEET_TOKEN_FILE",
    "SANDFLEET_NAMESPACE",
    "SANDFLEET_SANDBOX_NAMESPACE",
    "SANDFLEET_SERVICE_ACCOUNT",
    "SANDFLEET_KUBECTL",
    "SANDFLEET_CONNECT",
    "KUBERNETES_SERVICE_HOST",
    "KUBECONFIG",
)
_KUBECTL_TIMEOUT = 30.0
# How long the fleet's own address may take to accept a connection, in seconds.
_DIRECT_TIMEOUT = 1.0
_FILE_LIMIT = 64 << 10
_SAID_LIMIT = 500
# A token with fewer seconds left is replaced.
_MARGIN = 60.0


class Tokens(Protocol):
    """A source of tokens. It may block: do not call it on an event loop."""

    def token(self) -> str:
        """Return a Kubernetes token for the audience `sandfleet`. Raises UnavailableError."""
        ...


@dataclass(frozen=True)
class Place:
    """A fleet: "host:port", the CA (PEM) that its certificate is signed by, and the name in it."""

    address: str
    ca: bytes = field(repr=False)
    name: str
    tokens: Tokens = field(repr=False)
    # Finds "host:port" of the gateway; it may block. None: there is no way to one.
    gateway: Callable[[], str] | None = field(default=None, repr=False, compare=False)
    # Whether the fleet's own address does not answer here; then those of executors do not either.
    forwarded: bool = field(default=False, repr=False)


def named(address: str, ca_file: str, token_file: str) -> Place:
    """Return the fleet of this address, CA file and token file. Raises UnavailableError."""
    host = address.rpartition(":")[0].strip("[]")
    if not host:
        raise _error(f"{address!r} is not HOST:PORT", "NotAnAddress")
    if not ca_file or not token_file:
        raise _error(
            f"the fleet {address} needs SANDFLEET_FLEET_CA (a file; write it with `kubectl get configmap sandfleet-ca -n"
            " sandfleet-system -o jsonpath='{.data.ca\\.crt}'`) and SANDFLEET_TOKEN_FILE"
            " (a token for the audience sandfleet)",
            "NoCredentials",
        )
    return Place(address, _read(Path(ca_file), "SANDFLEET_FLEET_CA"), host, TokenFile(Path(token_file)))


def is_chosen(*, asked: bool) -> bool:
    """Return whether new sandboxes come from a cluster; `asked`: the caller named something that only a cluster has.

    A pod without the files of a client uses an embedded fleet.
    """
    if named := os.environ.get("SANDFLEET_FLEET"):
        return named != EMBEDDED
    if asked or os.environ.get("SANDFLEET_SANDBOX_NAMESPACE") or os.environ.get("SANDFLEET_NAMESPACE"):
        return True
    return _in_pod() and all(path.exists() for path in _pod_files())


def sandbox_namespace(*, ask_kubectl: bool = True) -> str:
    """Return the default namespace of sandboxes: SANDFLEET_SANDBOX_NAMESPACE, else this pod's, else kubectl's.

    Raises UnavailableError when kubectl fails.
    """
    if named := os.environ.get("SANDFLEET_SANDBOX_NAMESPACE"):
        return named
    if _in_pod():
        return (
            _read(POD_NAMESPACE, "this pod's namespace").decode().strip()
            if POD_NAMESPACE.exists()
            else _DEFAULT_NAMESPACE
        )
    if not ask_kubectl or _named_address():
        return _DEFAULT_NAMESPACE
    said = ask("config", "view", "--minify")
    try:
        return str(said["contexts"][0]["context"].get("namespace") or _DEFAULT_NAMESPACE)
    except (KeyError, TypeError, IndexError, AttributeError):
        return _DEFAULT_NAMESPACE


def system_namespace() -> str:
    """Return the namespace of the control plane."""
    return os.environ.get("SANDFLEET_NAMESPACE") or "sandfleet-system"


def environment() -> str:
    """Return the environment variables that `find` depends on, as a key for comparison."""
    return repr([os.environ.get(name) for name in _VARIABLES])


def find(namespace: str, avoid: str = "") -> Place:
    """Return the fleet for sandboxes of a namespace: the named fleet, else that of this pod's cluster, else kubectl's.

    `avoid` is an address that did not serve: another is preferred. Raises UnavailableError, which says what to do.
    """
    ca, token = (os.environ.get(name, "") for name in ("SANDFLEET_FLEET_CA", "SANDFLEET_TOKEN_FILE"))
    if address := _named_address():
        return named(address, ca, token)
    system = system_namespace()
    if _in_pod():
        return _of_this_pod(system)
    return _with_kubectl(system, namespace, avoid)


def _named_address() -> str:
    said = os.environ.get("SANDFLEET_FLEET", "")
    return "" if said in (KUBERNETES, EMBEDDED) else said


def _in_pod() -> bool:
    return bool(os.environ.get("KUBERNETES_SERVICE_HOST"))


def _pod_files() -> tuple[Path, Path]:
    """Return the paths of a pod's CA and token, which may not exist."""
    ca, token = (os.environ.get(name, "") for name in ("SANDFLEET_FLEET_CA", "SANDFLEET_TOKEN_FILE"))
    return Path(ca or POD_FILES / "ca.crt"), Path(token or POD_FILES / "token")


def _of_this_pod(system: str) -> Place:
    ca_file, token_file = _pod_files()
    if not (ca_file.exists() and token_file.exists()):
        raise _error(
            f"this pod has no {ca_file} and {token_file}; give it a projected volume at {POD_FILES} with a"
            f" serviceAccountToken (audience {AUDIENCE}, path token) and ca.crt of the ConfigMap sandfleet-ca; or set"
            f" SANDFLEET_FLEET={EMBEDDED} to run sandboxes in this pod",
            "NoCredentials",
        )
    name = f"{SERVICE}.{system}.svc"
    return Place(f"{name}:{PORT}", _read(ca_file, "the CA"), name, TokenFile(token_file))


class TokenFile:
    """A token in a file that another program, as the kubelet, keeps fresh."""

    def __init__(self, path: Path) -> None:
        """Read nothing yet."""
        self._path = path
        self._mark: tuple[int, int, int] | None = None
        self._token = ""

    def token(self) -> str:
        """Return the token; the file is read again after a change. Raises UnavailableError."""
        try:
            status = self._path.stat()
            mark = (status.st_ino, status.st_mtime_ns, status.st_size)
            if mark != self._mark:
                self._token = _read(self._path, "the token").decode("ascii").strip()
                self._mark = mark
        except (OSError, UnicodeDecodeError) as error:
            raise _error(f"the token cannot be read: {error}", "NoCredentials") from error
        return self._token


class KubectlTokens:
    """Tokens of a service account, which kubectl creates with its user's rights."""

    def __init__(self, kubectl: str, namespace: str, account: str) -> None:
        """Ask for nothing yet."""
        self._kubectl = kubectl
        self._arguments = ("create", "token", account, "--namespace", namespace, "--audience", AUDIENCE)
        self._lock = threading.Lock()
        self._token = ""
        self._ends = 0.0

    def token(self) -> str:
        """Return a token that lives for at least a minute. Raises UnavailableError."""
        with self._lock:
            if time.time() > self._ends - _MARGIN:
                self._token = _kubectl(self._kubectl, *self._arguments).strip()
                self._ends = _end_of(self._token)
            return self._token


def _end_of(token: str) -> float:
    """Return when a JWT expires, in seconds of the epoch; 0 if it does not say."""
    try:
        payload = token.split(".")[1]
        return float(json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))["exp"])
    except (IndexError, KeyError, ValueError, TypeError, binascii.Error):
        return 0.0


def _program() -> str:
    kubectl = os.environ.get("SANDFLEET_KUBECTL") or shutil.which("kubectl")
    if kubectl is None:
        raise _error(
            "no fleet is named (SANDFLEET_FLEET), this is no pod, and kubectl is not on the path (SANDFLEET_KUBECTL)",
            "NoFleet",
        )
    return kubectl


def _with_kubectl(system: str, namespace: str, avoid: str) -> Place:
    kubectl = _program()
    try:
        said = ask("get", "configmap", "sandfleet-ca", "--namespace", system)
        ca = str(said["data"]["ca.crt"]).encode()
        service = f"kubernetes.io/service-name={SERVICE}"
        slices = ask("get", "endpointslices", "-l", service, "--namespace", system)
    except (KeyError, TypeError) as error:
        raise _error(f"ConfigMap sandfleet-ca in namespace {system} has no ca.crt", "NoFleet") from error
    account = os.environ.get("SANDFLEET_SERVICE_ACCOUNT") or "default"
    tokens = KubectlTokens(kubectl, namespace, account)
    return _reach(kubectl, system, _endpoint(slices, system, avoid), partial(Place, ca=ca, name=SERVICE, tokens=tokens))


def _reach(kubectl: str, system: str, endpoint: _Endpoint, place: Callable[..., Place]) -> Place:
    """Return the place of the fleet: at its pod's own address where that answers, else by a port-forward."""
    way = os.environ.get("SANDFLEET_CONNECT", "")
    if way not in {"", DIRECT, TUNNEL}:
        raise _error(f"SANDFLEET_CONNECT is {DIRECT} or {TUNNEL}, not {way!r}", "NotAWay")
    if way == DIRECT or not endpoint.pod:
        return place(endpoint.address)

    forward = partial(port_forward.address, kubectl, system)
    gateway = partial(forward, f"service/{GATEWAY}", GATEWAY_PORT)
    if way != TUNNEL and _answers(endpoint.address):
        return place(endpoint.address, gateway=gateway)
    # A pod, not the Service: only one of them leads.
    return place(forward(f"pod/{endpoint.pod}", endpoint.port), gateway=gateway, forwarded=True)


def _answers(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), _DIRECT_TIMEOUT).close()
    except ConnectionRefusedError:
        # The way is there, and the fleet may come back.
        return True
    except OSError:
        return False
    return True


@dataclass(frozen=True)
class _Endpoint:
    """A pod of the fleet; nodes can reach pods, but possibly not the Service."""

    host: str
    port: int
    # Its name; empty if the fleet runs outside the cluster.
    pod: str

    @property
    def address(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def _endpoint(slices: dict[str, Any], system: str, avoid: str) -> _Endpoint:
    """Return a pod of the fleet, if possible another one than serves the address `avoid`."""
    ready = [
        _Endpoint(
            endpoint["addresses"][0],
            next((entry.get("port") for entry in one.get("ports") or ()), None) or PORT,
            str((endpoint.get("targetRef") or {}).get("name") or ""),
        )
        for one in slices.get("items") or ()
        for endpoint in one.get("endpoints") or ()
        if (endpoint.get("conditions") or {}).get("ready") is not False and endpoint.get("addresses")
    ]
    if ready:
        target = port_forward.target_of(avoid)
        others = (one for one in ready if one.address != avoid and target != f"pod/{one.pod}")
        return next(others, ready[0])
    raise _error(
        f"Service {SERVICE} in namespace {system} has no ready pod; see `kubectl get pods -n {system}`, or name another"
        " namespace with SANDFLEET_NAMESPACE",
        "NoFleet",
    )


def ask(*words: str) -> dict[str, Any]:
    """Return what kubectl answers to a question, as JSON. Raises UnavailableError."""
    return _object(_kubectl(_program(), *words, "--output", "json"))


def listed(*words: str) -> list[dict[str, Any]]:
    """Return the objects that `kubectl get` lists. Raises UnavailableError."""
    return list(ask("get", *words).get("items") or ())


def log(pod: str, namespace: str, lines: int, *more: str) -> str:
    """Return the last lines of a pod's log. Raises UnavailableError."""
    words = ("logs", pod, "--namespace", namespace, "--all-containers", f"--tail={lines}", *more)
    return _kubectl(_program(), *words)


def _object(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise _error("kubectl did not answer with an object", "KubectlFailed")
    return found


def _kubectl(program: str, *arguments: str) -> str:
    """Run kubectl with the KUBECONFIG that it finds by itself; return its output."""
    try:
        done = subprocess.run(
            [program, *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=_KUBECTL_TIMEOUT,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _error(f"kubectl cannot be asked: {error}", "KubectlFailed") from error
    if done.returncode:
        # The lines before the last one are its attempts.
        said = done.stderr.strip().rpartition("\n")[2][:_SAID_LIMIT]
        if "current-context" in said or "localhost:8080" in said:
            why = "set KUBECONFIG, or choose a context with `kubectl config use-context`"
            raise _error(f"no fleet is named, and kubectl knows no cluster: {why}", "KubectlFailed")
        raise _error(f"`kubectl {' '.join(arguments)}` failed: {said}{_advice(said)}", "KubectlFailed")
    return done.stdout


def _advice(said: str) -> str:
    """Say what to do where kubectl's own words do not."""
    if '"sandfleet-ca" not found' in said:
        return "; Sandfleet is not installed there, or in another namespace: name it with SANDFLEET_NAMESPACE"
    return ""


def _read(path: Path, what: str) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(_FILE_LIMIT)
    except OSError as error:
        raise _error(f"{what} cannot be read: {error}", "NoCredentials") from error


def _error(why: str, reason: str) -> UnavailableError:
    return UnavailableError(f"cannot connect: {why}", reason=reason)

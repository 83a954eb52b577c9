"""The part of the Kubernetes API that setting up and testing a cluster need: objects in, objects out."""

from __future__ import annotations

import base64
import http.client
import json
import ssl
import tempfile
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from .layout import ClusterError

Json = dict[str, Any]
POLL_SECONDS = 0.1

# Kinds to their API group and plural, for the paths.
PLURALS: Mapping[str, tuple[str, str]] = {
    "Namespace": ("api/v1", "namespaces"),
    "Node": ("api/v1", "nodes"),
    "Pod": ("api/v1", "pods"),
    "Service": ("api/v1", "services"),
    "ServiceAccount": ("api/v1", "serviceaccounts"),
    "ConfigMap": ("api/v1", "configmaps"),
    "PersistentVolumeClaim": ("api/v1", "persistentvolumeclaims"),
    "Secret": ("api/v1", "secrets"),
    "Event": ("api/v1", "events"),
    "ResourceQuota": ("api/v1", "resourcequotas"),
    "Lease": ("apis/coordination.k8s.io/v1", "leases"),
    "Deployment": ("apis/apps/v1", "deployments"),
    "NetworkPolicy": ("apis/networking.k8s.io/v1", "networkpolicies"),
    "StorageClass": ("apis/storage.k8s.io/v1", "storageclasses"),
    "RuntimeClass": ("apis/node.k8s.io/v1", "runtimeclasses"),
    "ClusterRole": ("apis/rbac.authorization.k8s.io/v1", "clusterroles"),
    "ClusterRoleBinding": ("apis/rbac.authorization.k8s.io/v1", "clusterrolebindings"),
    "CustomResourceDefinition": ("apis/apiextensions.k8s.io/v1", "customresourcedefinitions"),
    "MutatingAdmissionPolicy": ("apis/admissionregistration.k8s.io/v1beta1", "mutatingadmissionpolicies"),
    "MutatingAdmissionPolicyBinding": (
        "apis/admissionregistration.k8s.io/v1beta1",
        "mutatingadmissionpolicybindings",
    ),
    "CodeSandbox": ("apis/sandfleet.io/v1alpha1", "codesandboxes"),
    "SandboxTemplate": ("apis/sandfleet.io/v1alpha1", "sandboxtemplates"),
    "SandboxPool": ("apis/sandfleet.io/v1alpha1", "sandboxpools"),
    "SandboxQueue": ("apis/sandfleet.io/v1alpha1", "sandboxqueues"),
    "SandboxSnapshot": ("apis/sandfleet.io/v1alpha1", "sandboxsnapshots"),
}


class ApiError(ClusterError):
    """The API server refused; `status` is the HTTP status, 0 when it could not be reached."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def path_of(kind: str, namespace: str = "", name: str = "") -> str:
    group, plural = PLURALS[kind]
    return "/".join(part for part in (group, namespace and f"namespaces/{namespace}", plural, name) if part)


def _credentials(config: Json) -> tuple[str, ssl.SSLContext, dict[str, str]]:
    """The server, the TLS context and the headers of a kubeconfig's current context."""

    def named(kind: str, name: str) -> Json:
        found: Json = next(entry[kind] for entry in config[f"{kind}s"] if entry["name"] == name)
        return found

    current = named("context", config["current-context"])
    cluster, user = named("cluster", current["cluster"]), named("user", current["user"])
    authority = base64.b64decode(cluster.get("certificate-authority-data", "")).decode()
    context = ssl.create_default_context(cadata=authority or None)
    headers = {}
    if token := user.get("token"):
        headers["Authorization"] = f"Bearer {token}"
    elif "client-certificate-data" in user:
        # Python's ssl reads a certificate from files only.
        with tempfile.TemporaryDirectory() as folder:
            files = []
            for name in ("client-certificate-data", "client-key-data"):
                files.append(Path(folder, name))
                files[-1].touch(mode=0o600)
                files[-1].write_bytes(base64.b64decode(user[name]))
            context.load_cert_chain(files[0], str(files[1]))
    else:
        raise ClusterError("cannot use the kubeconfig: neither a token nor a client certificate is in it")
    return cluster["server"], context, headers


class Api:
    """Blocking; every call has a limit of 10 s. Each thread keeps a connection: TLS costs more than a call."""

    def __init__(self, config: Json) -> None:
        server, self._context, self._headers = _credentials(config)
        self._url = urllib.parse.urlsplit(server)
        self._kept = threading.local()

    def _connection(self, *, fresh: bool) -> http.client.HTTPSConnection:
        kept: http.client.HTTPSConnection | None = getattr(self._kept, "connection", None)
        if kept is not None and not fresh:
            return kept
        if kept is not None:
            kept.close()
        host, port = self._url.hostname or "", self._url.port or 443
        self._kept.connection = http.client.HTTPSConnection(host, port, context=self._context, timeout=10)
        connection: http.client.HTTPSConnection = self._kept.connection
        return connection

    def _exchange(self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]) -> tuple[int, bytes]:
        """A kept connection may have been closed by the server: then once more, on a new one."""
        for fresh in (False, True):
            connection = self._connection(fresh=fresh)
            try:
                connection.request(method, f"{self._url.path}/{path}", body, dict(headers))
                reply = connection.getresponse()
                return reply.status, reply.read()
            except (http.client.RemoteDisconnected, ConnectionError, ssl.SSLEOFError, http.client.CannotSendRequest):
                if fresh:
                    raise
        raise AssertionError("the loop returns or raises")

    def call(self, method: str, path: str, body: Json | None = None, content: str = "application/json") -> Json:
        """Raises ApiError with the server's own message."""
        data = None if body is None else json.dumps(body).encode()
        headers = {**self._headers, "Content-Type": content, "Accept": "application/json"}
        try:
            status, text = self._exchange(method, path, data, headers)
        except (OSError, http.client.HTTPException) as error:
            self._connection(fresh=True)
            raise ApiError(0, f"cannot reach the API server: {error}") from None
        try:
            answer: Json = json.loads(text)
        except ValueError:
            answer = {"message": text.decode(errors="replace")}
        if status >= 300:
            raise ApiError(status, f"cannot {method} {path}: {answer.get('message', status)}")
        return answer

    def get(self, kind: str, name: str, namespace: str = "") -> Json:
        return self.call("GET", path_of(kind, namespace, name))

    def list(self, kind: str, namespace: str = "") -> list[Json]:
        items: list[Json] = self.call("GET", path_of(kind, namespace))["items"]
        return items

    def create(self, value: Json) -> Json:
        return self.call("POST", path_of(value["kind"], value["metadata"].get("namespace", "")), value)

    def apply(self, value: Json) -> Json:
        """Make it so, whether or not it is there (server-side apply)."""
        metadata = value["metadata"]
        path = path_of(value["kind"], metadata.get("namespace", ""), metadata["name"])
        return self.call("PATCH", f"{path}?fieldManager=sandfleet&force=true", value, "application/apply-patch+yaml")

    def delete(self, kind: str, name: str, namespace: str = "", grace: int | None = None) -> None:
        """It may already be gone."""
        options = {} if grace is None else {"gracePeriodSeconds": grace}
        try:
            self.call("DELETE", path_of(kind, namespace, name), options)
        except ApiError as error:
            if error.status != 404:
                raise

    def wait(self, what: str, happened: Callable[[], bool], seconds: float = 60) -> None:
        """Poll until it has happened, through failures of the API server; raises ClusterError with the last of them."""
        deadline = time.monotonic() + seconds
        trouble = "it has not happened"
        while True:
            try:
                if happened():
                    return
            except ApiError as error:
                trouble = str(error)
            if time.monotonic() > deadline:
                raise ClusterError(f"cannot wait for {what} any longer ({seconds:.0f} s): {trouble}")
            time.sleep(POLL_SECONDS)

    def apply_all(self, values: Iterable[Json]) -> None:
        for value in values:
            self.apply(value)


def has_condition(value: Json, kind: str) -> bool:
    conditions = value.get("status", {}).get("conditions") or ()
    return any(condition["type"] == kind and condition["status"] == "True" for condition in conditions)

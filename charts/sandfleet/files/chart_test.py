"""The test that `helm test` runs in a pod.

It creates a sandbox with the API server, then claims one from a pool and runs a cell in it. While an object is not
ready it prints the reason. At the end it deletes all objects that it has created.
"""

import json
import os
import secrets
import signal
import ssl
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.duration_pb2 import Duration
from sandfleet_api.executor.v1 import common_pb2, interpreter_pb2
from sandfleet_api.executor.v1.interpreter_pb2_grpc import InterpreterServiceStub
from sandfleet_api.fleet.v1 import fleet_pb2
from sandfleet_api.fleet.v1.fleet_pb2_grpc import FleetServiceStub

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
FLEET_TOKEN = Path("/var/run/secrets/sandfleet/token")
FLEET_PORT = 8443
OWN = "apis/sandfleet.io/v1alpha1"
CORE = "api/v1"
GONE_SECONDS = 60
CELL_SECONDS = 60
PAUSE = 1.0
UNSEEN = {"status": "Unknown", "reason": "NotSeen"}

Json = dict[str, Any]


class Api:
    """Objects of one namespace."""

    def __init__(self, server: str, namespace: str, account: Path = ACCOUNT) -> None:
        self._server = server
        self.namespace = namespace
        self._token = account / "token"
        authority = account / "ca.crt"
        self._context = ssl.create_default_context(cafile=str(authority)) if authority.exists() else None

    def call(
        self, method: str, path: str, body: Json | None = None, *, group: str = OWN, namespace: str = ""
    ) -> Json | None:
        """The answer; None where there is no such object. Any other refusal raises HTTPError."""
        data = json.dumps(body).encode() if body else None
        headers = {"Authorization": f"Bearer {self._token.read_text().strip()}", "Content-Type": "application/json"}
        url = f"{self._server}/{group}/namespaces/{namespace or self.namespace}{path}"
        request = urllib.request.Request(url, data, headers, method=method)  # noqa: S310 - the API server
        try:
            with urllib.request.urlopen(request, context=self._context, timeout=20) as reply:  # noqa: S310
                answer: Json = json.load(reply)
                return answer
        except urllib.error.HTTPError as error:
            if error.code == 404 and method != "POST":
                return None
            raise


@dataclass(frozen=True)
class Made:
    """What a sandbox of the test is made of."""

    name: str
    image: str
    runtime_class: str

    def template(self) -> Json:
        resources = {
            "requests": {"cpu": "50m", "memory": "256Mi", "ephemeral-storage": "128Mi"},
            "limits": {"cpu": "1", "memory": "512Mi", "ephemeral-storage": "256Mi"},
        }
        spec = {
            "image": self.image,
            "runtimeClassName": self.runtime_class,
            "resources": resources,
            "executionLimits": {"tmp": "64Mi"},
            "workspace": {"size": "64Mi", "retention": "Delete"},
        }
        return _object("SandboxTemplate", self.name, spec)

    def sandbox(self) -> Json:
        return _object("CodeSandbox", self.name, {"templateRef": {"name": self.name}, "lifetimeSeconds": 3600})

    def pool(self) -> Json:
        return _object("SandboxPool", self.name, {"templateRef": {"name": self.name}, "replicas": 1})


def _object(kind: str, name: str, spec: Json) -> Json:
    return {"apiVersion": "sandfleet.io/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}


def readiness(found: Json | None, watcher: str) -> Json:
    """The condition Ready, or what stands for it while there is none."""
    if found is None:
        return {"status": "False", "reason": "Deleted", "message": "it was deleted during the test"}
    conditions = found.get("status", {}).get("conditions", [])
    unseen = {**UNSEEN, "message": f"no {watcher} has looked at it yet"}
    return next((one for one in conditions if one["type"] == "Ready"), unseen)


def wait_ready(api: Api, path: str, watcher: str, seconds: float) -> bool:
    """Prints each change of the reason."""
    end, said = time.monotonic() + seconds, ""
    while True:
        ready = readiness(api.call("GET", path), watcher)
        words = f"Ready={ready['status']} {ready.get('reason', '')}: {ready.get('message', '')}"
        if words != said:
            print(words)
            said = words
        if ready["status"] == "True":
            return True
        if time.monotonic() > end:
            print(f"cannot test {path.strip('/')}: it is not Ready after {seconds:.0f} s")
            return False
        time.sleep(PAUSE)


def wait_gone(what: str, present: Callable[[], bool], seconds: float) -> bool:
    end = time.monotonic() + seconds
    while present():
        if time.monotonic() > end:
            print(f"cannot delete {what}: it is still there after {seconds:.0f} s")
            return False
        time.sleep(PAUSE)
    return True


def remove(api: Api, path: str, seconds: float = GONE_SECONDS) -> bool:
    """What is made of the template first, and the template when that is gone."""
    api.call("DELETE", path)
    gone = wait_gone(path.strip("/"), lambda: api.call("GET", path) is not None, seconds)
    api.call("DELETE", f"/sandboxtemplates/{path.rpartition('/')[2]}")
    return gone


def left_by(api: Api, name: str) -> list[str]:
    """Pods and volumes of the test that are still there."""
    found = []
    for plural in ("pods", "persistentvolumeclaims"):
        listed = (api.call("GET", f"/{plural}", group=CORE) or {}).get("items", [])
        names = [one["metadata"]["name"] for one in listed]
        found += [f"{plural}/{one}" for one in names if one.removeprefix("workspace-").startswith(name)]
    return found


def run(api: Api, made: Made, seconds: float) -> bool:
    """A sandbox as kubectl makes it."""
    path = f"/codesandboxes/{made.name}"
    print("a CodeSandbox:")
    return _with(api, made, path, made.sandbox(), lambda: wait_ready(api, path, "operator", seconds))


def run_claim(api: Api, fleet: "Fleet", made: Made, seconds: float) -> bool:
    """A pool of one, a claim from it, a cell, and nothing left at the end."""
    path = f"/sandboxpools/{made.name}"
    print("a claim from a SandboxPool:")

    def use() -> bool:
        return wait_ready(api, path, "fleet", seconds) and claim(api, fleet, made.name)

    done = _with(api, made, path, made.pool(), use)
    left = wait_gone(f"what {made.name} has left", lambda: bool(left_by(api, made.name)), GONE_SECONDS)
    if not left:
        print(f"left: {', '.join(left_by(api, made.name))}")
    return done and left


def _with(api: Api, made: Made, path: str, one: Json, use: Callable[[], bool]) -> bool:
    """Whether the use went well and all is gone after it."""
    done = False
    try:
        api.call("POST", "/sandboxtemplates", made.template())
        api.call("POST", path.rpartition("/")[0], one)
        done = use()
    except urllib.error.HTTPError as error:
        print(f"cannot test: {error}: {error.read().decode(errors='replace')}")
    finally:
        gone = remove(api, path)
    return done and gone


@dataclass(frozen=True)
class Fleet:
    """`address` is HOST:PORT, `authority` the PEM that its certificate is signed by."""

    address: str
    authority: bytes
    token: str

    def channel(self) -> grpc.Channel:
        return grpc.secure_channel(self.address, grpc.ssl_channel_credentials(self.authority))

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        return (("authorization", f"Bearer {self.token}"),)


def claim(api: Api, fleet: Fleet, pool: str) -> bool:
    """Claims from the pool, runs a cell over the executor's own port, and releases."""
    with fleet.channel() as channel:
        stub = FleetServiceStub(channel)
        try:
            bound = _bound(
                stub,
                fleet,
                fleet_pb2.ClaimRequest(
                    request_id=f"{pool}-{secrets.token_hex(4)}",
                    namespace=api.namespace,
                    pool=pool,
                    lease=Duration(seconds=300),
                    max_wait=Duration(seconds=CELL_SECONDS),
                ),
            )
            sandbox = bound.sandbox.sandbox_id
            print(f"bound to {sandbox}, {'warm' if bound.warm else 'cold'}, at {bound.access.address}")
            try:
                ran = _cell_runs(bound)
            finally:
                stub.Release(
                    fleet_pb2.ReleaseRequest(sandbox_id=sandbox), metadata=fleet.metadata, timeout=CELL_SECONDS
                )
                print("released")
            path = f"/codesandboxes/{sandbox.rpartition('/')[2]}"
            return wait_gone(sandbox, lambda: api.call("GET", path) is not None, GONE_SECONDS) and ran
        except grpc.RpcError as error:
            print(f"cannot claim and run: {error.code().name}: {error.details()}")
            return False


def _bound(stub: FleetServiceStub, fleet: Fleet, request: fleet_pb2.ClaimRequest) -> fleet_pb2.Bound:
    for answer in stub.Claim(request, metadata=fleet.metadata, timeout=2 * CELL_SECONDS, wait_for_ready=True):
        if answer.WhichOneof("event") == "bound":
            return answer.bound
        print(f"queued: {answer.queued.reason}")
    raise AssertionError("cannot claim: the fleet ended the stream without a word")


def _cell_runs(bound: fleet_pb2.Bound) -> bool:
    access = bound.access
    # The certificate is of the sandbox, not of its address.
    options = [("grpc.ssl_target_name_override", bound.sandbox.sandbox_uid)]
    credentials = grpc.ssl_channel_credentials(access.ca_pem)
    request = interpreter_pb2.ExecuteRequest(
        execution_id=secrets.token_hex(8), code="6 * 7", timeout=Duration(seconds=CELL_SECONDS // 2)
    )
    metadata = (("authorization", f"Bearer {access.token}"),)
    with grpc.secure_channel(access.address, credentials, options) as channel:
        answers = InterpreterServiceStub(channel).Execute(request, metadata=metadata, timeout=CELL_SECONDS)
        events = [event for answer in answers for event in answer.events]
    parts = [part for event in events for part in event.result.parts]
    texts = [part.data.decode(errors="replace") for part in parts if part.mime_type == "text/plain"]
    finished = events[-1].finished
    print(f"6 * 7 = {''.join(texts)}, {common_pb2.Outcome.Name(finished.outcome)} {finished.message}".rstrip())
    return finished.outcome == common_pb2.OUTCOME_OK and texts == ["42"]


def fleet_of(api: Api, namespace: str) -> Fleet | None:
    """The fleet of the release; None (and a word) where its certificate is not published yet."""
    found = api.call("GET", "/configmaps/sandfleet-ca", group=CORE, namespace=namespace) or {}
    authority = found.get("data", {}).get("ca.crt", "")
    if not authority:
        print("cannot claim: the ConfigMap sandfleet-ca is empty; does the fleet run?")
        return None
    return Fleet(f"sandfleet-fleet.{namespace}.svc:{FLEET_PORT}", authority.encode(), FLEET_TOKEN.read_text().strip())


def main() -> int:
    # What was made is also deleted when the pod is ended before its time.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"]
    server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    api = Api(server, os.environ["SANDBOX_NAMESPACE"])
    made = (os.environ["SANDBOX_IMAGE"], os.environ["SANDBOX_RUNTIME_CLASS"])
    name, seconds = f"helm-test-{secrets.token_hex(4)}", float(os.environ["SANDBOX_TIMEOUT"])
    if not run(api, Made(name, *made), seconds):
        return 1
    # Empty: the release has no fleet.
    if home := os.environ["FLEET_NAMESPACE"]:
        fleet = fleet_of(api, home)
        return 0 if fleet and run_claim(api, fleet, Made(f"{name}-pool", *made), seconds) else 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

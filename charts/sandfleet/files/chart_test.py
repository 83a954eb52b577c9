"""What `helm test` runs in a pod: makes a sandbox, waits until it is Ready, says why while it is not, and deletes it again."""

import json
import os
import secrets
import signal
import ssl
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
GONE_SECONDS = 60
PAUSE = 1.0

Json = dict[str, Any]


class Api:
    """Objects of Sandfleet in one namespace."""

    def __init__(self, server: str, namespace: str, account: Path = ACCOUNT) -> None:
        self._base = f"{server}/apis/sandfleet.io/v1alpha1/namespaces/{namespace}"
        self._token = account / "token"
        authority = account / "ca.crt"
        self._context = ssl.create_default_context(cafile=str(authority)) if authority.exists() else None

    def call(self, method: str, path: str, body: Json | None = None) -> Json | None:
        """The answer; None where there is no such object. Any other refusal raises HTTPError."""
        data = json.dumps(body).encode() if body else None
        headers = {"Authorization": f"Bearer {self._token.read_text().strip()}", "Content-Type": "application/json"}
        request = urllib.request.Request(self._base + path, data, headers, method=method)  # noqa: S310 - the API server
        try:
            with urllib.request.urlopen(request, context=self._context, timeout=20) as reply:  # noqa: S310
                answer: Json = json.load(reply)
                return answer
        except urllib.error.HTTPError as error:
            if error.code == 404 and method != "POST":
                return None
            raise


def objects(name: str, image: str, runtime_class: str) -> tuple[Json, Json]:
    """A template and a sandbox of it, small ones."""
    resources = {
        "requests": {"cpu": "50m", "memory": "256Mi", "ephemeralStorage": "128Mi"},
        "limits": {"cpu": "1", "memory": "512Mi", "ephemeralStorage": "256Mi"},
    }
    template = {
        "image": image,
        "runtimeClassName": runtime_class,
        "resources": resources,
        "limits": {"tmp": "64Mi"},
        "workspace": {"size": "64Mi", "retention": "Delete"},
    }
    return _object("SandboxTemplate", name, template), _object(
        "CodeSandbox", name, {"template": name, "lifetimeSeconds": 3600}
    )


def _object(kind: str, name: str, spec: Json) -> Json:
    return {"apiVersion": "sandfleet.io/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}


def readiness(sandbox: Json | None) -> Json:
    """The condition Ready, or what stands for it while there is none."""
    if sandbox is None:
        return {"status": "False", "reason": "Deleted", "message": "somebody deleted the sandbox"}
    conditions = sandbox.get("status", {}).get("conditions", [])
    unseen = {"status": "Unknown", "reason": "NotSeen", "message": "no operator has looked at it yet"}
    return next((one for one in conditions if one["type"] == "Ready"), unseen)


def wait_ready(api: Api, name: str, seconds: float) -> bool:
    """Prints each change of the reason."""
    end, said = time.monotonic() + seconds, ""
    while True:
        ready = readiness(api.call("GET", f"/codesandboxes/{name}"))
        words = f"Ready={ready['status']} {ready.get('reason', '')}: {ready.get('message', '')}"
        if words != said:
            print(words)
            said = words
        if ready["status"] == "True":
            return True
        if time.monotonic() > end:
            print(f"cannot make a sandbox: it is not Ready after {seconds:.0f} s")
            return False
        time.sleep(PAUSE)


def remove(api: Api, name: str, seconds: float = GONE_SECONDS) -> bool:
    """The sandbox first, and the template when it is gone."""
    end = time.monotonic() + seconds
    api.call("DELETE", f"/codesandboxes/{name}")
    gone = False
    while not gone and time.monotonic() < end:
        gone = api.call("GET", f"/codesandboxes/{name}") is None
        if not gone:
            time.sleep(PAUSE)
    api.call("DELETE", f"/sandboxtemplates/{name}")
    if not gone:
        print(f"cannot delete the sandbox: {name} is still there after {seconds:.0f} s")
    return gone


def run(api: Api, name: str, image: str, runtime_class: str, seconds: float) -> bool:
    template, sandbox = objects(name, image, runtime_class)
    ready = False
    try:
        api.call("POST", "/sandboxtemplates", template)
        api.call("POST", "/codesandboxes", sandbox)
        ready = wait_ready(api, name, seconds)
    except urllib.error.HTTPError as error:
        print(f"cannot test: {error}: {error.read().decode(errors='replace')}")
    finally:
        gone = remove(api, name)
    return ready and gone


def main() -> int:
    # What was made is also deleted when the pod is ended before its time.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"]
    server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    api = Api(server, os.environ["SANDBOX_NAMESPACE"])
    name = f"helm-test-{secrets.token_hex(4)}"
    done = run(
        api,
        name,
        os.environ["SANDBOX_IMAGE"],
        os.environ["SANDBOX_RUNTIME_CLASS"],
        float(os.environ["SANDBOX_TIMEOUT"]),
    )
    return 0 if done else 1


if __name__ == "__main__":
    sys.exit(main())

"""The fleet's service on Kubernetes over an API server in memory that answers reviews as it is told."""

import asyncio
import time

import pytest
from sandfleet._fleets.cluster import Place
from sandfleet._fleets.fleet import AsyncFleet
from sandfleet._wire.channel import open_channel
from sandfleet_operator.api.kube import CODE_SANDBOX, POD, Ref, ServerError
from sandfleet_operator.cluster.reviews import REVIEW_KINDS
from sandfleet_operator.executors.signing import Signing
from sandfleet_operator.plan.pods.names import CONTRACT, SANDBOX, own_labels
from support.fakes.kube_cluster import MemoryCluster
from support.fakes.kube_memory import MemoryKube

# More turns of the loop than a watch needs for one event.
TURNS = 40
SYSTEM = "sandfleet-system"
POD_UID = "6f1c2a52-7f6b-4a56-9d0c-0d4dbd2f7c11"


class Kube(MemoryKube):
    """Answers reviews as it is told: tokens to their status, and who may do what."""

    def __init__(self):
        super().__init__(MemoryCluster(time.time), kinds=REVIEW_KINDS)
        self.tokens = {}
        self.allowed = set()
        self.reviews = []
        self.broken = False

    async def create(self, obj):
        if obj["kind"] not in {"TokenReview", "SubjectAccessReview"}:
            return await super().create(obj)
        if self.broken:
            raise ServerError(500, "InternalError", "cannot create it: etcd is away; the token was secret")
        self.reviews.append(obj)
        return {**obj, "status": self._status(obj["kind"], obj["spec"])}

    def _status(self, kind, spec):
        if kind == "TokenReview":
            assert spec["audiences"] == ["sandfleet"]
            return self.tokens.get(spec["token"], {"authenticated": False, "error": "invalid bearer token"})
        asked = spec["resourceAttributes"]
        assert asked["group"] == "sandfleet.io"
        assert asked["resource"] in {"codesandboxes", "sandboxqueues"}
        kind = "queue " if asked["resource"] == "sandboxqueues" else ""
        what = kind + "/".join(part for part in (asked["verb"], asked.get("subresource")) if part)
        who = (spec["user"], what, asked.get("namespace", ""), asked.get("name", ""))
        return {"allowed": who in self.allowed}

    def knows(self, token, username, audiences=("sandfleet",), authenticated=True):
        user = {"username": username, "uid": "u", "groups": ["g"], "extra": {"k": ["v"]}}
        self.tokens[token] = {"authenticated": authenticated, "user": user, "audiences": list(audiences)}


class Known:
    """What a client says that it is."""

    def __init__(self, text):
        self.text = text

    def token(self):
        return self.text


class World:
    def __init__(self, kube, signing, port):
        self.kube, self.signing, self.port = kube, signing, port
        self.fleets, self.channels = [], []

    def fleet(self, token="alice", ca=None):
        address = f"127.0.0.1:{self.port}"
        made = AsyncFleet(address, Place(address, ca or self.signing.authority.pem, "127.0.0.1", Known(token)))
        self.fleets.append(made)
        return made

    def channel(self):
        """The bare one: what is said over it is the test's."""
        made = open_channel(f"127.0.0.1:{self.port}", ca=self.signing.authority.pem, name="127.0.0.1")
        self.channels.append(made)
        return made

    async def add(self, name="one", namespace="team", labels=None, spec=None, status=True):
        made = {"templateRef": {"name": "python"}, **(spec or {})}
        await self.kube.create(
            {
                "apiVersion": CODE_SANDBOX.api_version,
                "kind": CODE_SANDBOX.kind,
                "metadata": {"namespace": namespace, "name": name, "labels": labels or {}},
                "spec": made,
            }
        )
        if status:
            await self.say(name, namespace)

    async def say(self, name="one", namespace="team", conditions=(("Ready", "True", "ExecutorAnswers", ""),), **status):
        full = {
            "podName": name,
            "podUID": POD_UID,
            "address": "10.0.0.7:50051",
            "runtime": "gvisor",
            "restarts": 1,
            "restartHistory": [{"reason": "PodDeleted", "time": "2026-01-01T00:00:00Z"}],
            "workspaceClaimName": f"workspace-{name}",
            **status,
        }
        full["conditions"] = [
            dict(
                zip(("type", "status", "reason", "message"), one, strict=True),
                lastTransitionTime="2026-01-01T00:00:00Z",
            )
            for one in conditions
        ]
        found = await self.kube.get(Ref(CODE_SANDBOX, namespace, name))
        if full["podUID"] and full["address"]:
            self.run(found, full)
            # The fleet's watch sees the pod.
            for _ in range(TURNS):
                await asyncio.sleep(0)
        await self.kube.merge(Ref(CODE_SANDBOX, namespace, name), {"status": full}, "status")

    def run(self, sandbox, status, **changes):
        """The pod that the status names, as operator and kubelet have left it; `changes` are of its metadata."""
        namespace, name = sandbox["metadata"]["namespace"], sandbox["metadata"]["name"]
        contract = sandbox["spec"].get("contract", "Autonomous").lower()
        metadata = {
            "namespace": namespace,
            "name": status["podName"],
            "uid": status["podUID"],
            "labels": own_labels(**{SANDBOX: name, CONTRACT: contract}),
            "ownerReferences": [{"kind": "CodeSandbox", "name": name, "uid": sandbox["metadata"]["uid"]}],
            **changes,
        }
        state = {"phase": "Running", "podIP": status["address"].rpartition(":")[0]}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": []}, "status": state}
        self.kube.cluster.commit(Ref(POD, metadata["namespace"], metadata["name"]), pod)

    async def refusal(self, kind, token="alice", sandbox="team/one", **options):
        with pytest.raises(kind) as caught:
            await self.fleet(token, **options).access(sandbox, wait=10)
        return caught.value


async def new_signing(kube=None):
    """A control plane of its own where no API server is given."""
    if kube is None:
        kube = Kube()
        await kube.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM}})
    made = Signing(kube, SYSTEM, time.time)
    await made.load()
    return made

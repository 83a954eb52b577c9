"""The executors of all pods of a cluster in memory: sessions with leases, and the files that their users leave."""

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from sandfleet_api.executor.v1 import session_pb2
from sandfleet_operator.api.kinds.sandbox import ServiceStatus
from sandfleet_operator.api.kube import PERSISTENT_VOLUME_CLAIM, POD, Json, Ref
from sandfleet_operator.api.reasons import SuspendReason
from sandfleet_operator.api.values import ExitCode, Isolation
from sandfleet_operator.executors.contact import (
    RUNTIMES,
    Executor,
    ExecutorDescription,
    IdentityInvalid,
    Silent,
    Unreachable,
)
from sandfleet_operator.executors.tokens import MAX_LIFETIME, KeyRing, Token, TokenKey
from sandfleet_operator.plan.pods.egress_probe import Target
from support.fakes.kube_cluster import MemoryCluster, deleting
from transition.nodes import claim_of, ended

# Seconds; also of one that takes a connection and says nothing, until it is given up.
ANSWER, SILENCE = 0.02, 20.0


@dataclass
class Session:
    """What the executor of one pod knows."""

    session_id: str
    # Of the loop's time; None: without end.
    lease_ends: float | None = None
    # What its users have in memory.
    variables: set[str] = field(default_factory=set)
    resumption: session_pb2.Resumption | None = None
    # Something in it works.
    busy: bool = False
    # Of the loop's time.
    used: float = 0.0
    # Nothing is done in it before that, of the loop's time.
    held_until: float = 0.0

    def back(self, variables: set[str]) -> None:
        """It has these variables from an earlier pod."""
        self.variables, self.resumption = set(variables), session_pb2.Resumption(contexts=_contexts(variables))


@dataclass
class Executors:
    """Stands in for executors.contact.Contacts and for the holders of tokens."""

    cluster: MemoryCluster
    clock: Callable[[], float]
    # By the pod's uid.
    sessions: dict[str, Session] = field(default_factory=dict)
    # By the uid of the volume claim: the users that have left a file there, and how often.
    files: dict[str, dict[str, int]] = field(default_factory=dict)
    # By the uid of the volume claim: what suspended sessions have left there.
    kept: dict[str, set[str]] = field(default_factory=dict)
    # The sessions that were kept for the owners of their quota, in this order.
    preempted: list[str] = field(default_factory=list)
    # By the pod's uid: the first user with a token for it.
    holders: dict[str, str] = field(default_factory=dict)

    # Namespaces whose executors are silent, and how many first contacts of the others are.
    silent: set[str] = field(default_factory=set)
    silences: int = 0

    # What operator and fleet ask: executors.contact.Contacts.

    async def contact(self, executor: Executor, *, isolation: Isolation, first: bool) -> ExecutorDescription:
        if executor.session_id.partition(".")[0] in self.silent or (first and self.silences > 0):
            self.silences -= 1
            await asyncio.sleep(SILENCE)
            raise Silent(f"cannot reach {executor.pod_uid}: no answer")
        await asyncio.sleep(ANSWER)
        self._pod(executor)
        return self._description(executor, isolation)

    async def open(self, executor: Executor, *, lease: float | None = None, **_rest: object) -> ExecutorDescription:
        await asyncio.sleep(ANSWER)
        pod = self._pod(executor)
        known = self.sessions.get(executor.pod_uid)
        if known is not None and known.session_id != executor.session_id:
            raise IdentityInvalid(f"cannot open {executor.session_id}: it serves session {known.session_id}")
        loop = asyncio.get_running_loop()
        ends = None if lease is None else loop.time() + lease
        if known is None:
            known = self.sessions[executor.pod_uid] = self._begun(executor, pod)
        known.lease_ends = ends
        if ends is not None:
            loop.call_at(ends, self._end, executor.pod_uid, ends)
        return self._description(executor, Isolation.GVISOR)

    async def probe(self, executor: Executor, targets: Sequence[Target]) -> tuple[bool, ...]:
        await asyncio.sleep(ANSWER)
        self._pod(executor)
        return tuple(True for _ in targets)

    async def suspend(self, executor: Executor, *, force: bool, unused: bool = False) -> session_pb2.Suspension:
        await asyncio.sleep(ANSWER)
        pod = self._pod(executor)
        known = self.sessions.get(executor.pod_uid)
        if known is None:
            raise Unreachable(f"cannot suspend {executor.pod_uid}: no session has begun")
        if known.busy and not force:
            raise SuspendReason.EXECUTION_RUNNING.error(f"cannot suspend {executor.pod_uid}: it is in use")
        self.preempted += [known.session_id] if unused else []
        self.kept[self._volume(pod)] = set(known.variables)
        return session_pb2.Suspension(contexts=_contexts(known.variables))

    async def resume(self, executor: Executor) -> session_pb2.Resumption | None:
        await asyncio.sleep(ANSWER)
        self._pod(executor)
        known = self.sessions.get(executor.pod_uid)
        return known.resumption if known else None

    async def services(self, executor: Executor) -> tuple[ServiceStatus, ...]:
        await asyncio.sleep(ANSWER)
        self._pod(executor)
        return ()

    def _begun(self, executor: Executor, pod: Json) -> Session:
        kept = self.kept.pop(self._volume(pod), None)
        if kept is None:
            return Session(executor.session_id)
        begun = Session(executor.session_id)
        begun.back(kept)
        return begun

    def _volume(self, pod: Json) -> str:
        """The uid of its volume claim, or its own where its workspace is a directory of the pod."""
        ref = Ref(PERSISTENT_VOLUME_CLAIM, pod["metadata"]["namespace"], claim_of(pod))
        return str(self.cluster.objects.get(ref, pod)["metadata"]["uid"])

    def _description(self, executor: Executor, isolation: Isolation) -> ExecutorDescription:
        known = self.sessions.get(executor.pod_uid)
        return ExecutorDescription(
            runtime=RUNTIMES[isolation],
            isolation=isolation,
            kernel="",
            session_id=known.session_id if known else "",
            executor_version="1",
            lease_left=self._lease_left(known),
            idle=None if known is None or known.busy else asyncio.get_running_loop().time() - known.used,
        )

    def _lease_left(self, known: Session | None) -> float | None:
        return known.lease_ends - asyncio.get_running_loop().time() if known and known.lease_ends else None

    def _pod(self, executor: Executor) -> Json:
        """The pod at this address. Raises ContactError."""
        address = executor.address.rpartition(":")[0]
        for ref, pod in self.cluster.objects.items():
            status = pod.get("status") or {}
            if ref.kind == POD and status.get("podIP") == address and status.get("phase") == "Running":
                if pod["metadata"]["uid"] != executor.pod_uid:
                    raise IdentityInvalid(f"cannot reach {executor.pod_uid}: another executor answers")
                return pod
        raise Unreachable(f"cannot reach the executor at {executor.address}: nothing listens")

    def _end(self, uid: str, ends: float) -> None:
        """The executor ends with its lease, unless that was renewed."""
        pod, session = self.by_uid(uid), self.sessions.get(uid)
        if pod is None or session is None or session.lease_ends != ends or pod[1]["status"]["phase"] != "Running":
            return
        self.cluster.edit(pod[0], lambda obj: ended(obj, int(ExitCode.LEASE)))

    def by_uid(self, uid: str) -> tuple[Ref, Json] | None:
        pods = ((ref, pod) for ref, pod in self.cluster.objects.items() if ref.kind == POD)
        return next((found for found in pods if found[1]["metadata"]["uid"] == uid), None)

    def alive(self, uid: str) -> Json | None:
        """The pod of this uid, as long as its executor answers."""
        found = self.by_uid(uid)
        runs = found is not None and not deleting(found[1]) and found[1]["status"].get("phase") == "Running"
        return found[1] if found is not None and runs else None

    def volume_of(self, uid: str) -> str:
        """The uid of the volume claim of a pod that is there."""
        found = self.by_uid(uid)
        return self._volume(found[1]) if found is not None else ""

    def occupy(self, pod: Ref) -> None:
        """Something runs there from now on."""
        self.sessions[self.cluster.objects[pod]["metadata"]["uid"]].busy = True

    def memory(self, pod: Ref) -> set[str]:
        """What the pod's users have in memory."""
        return set(self.sessions[self.cluster.objects[pod]["metadata"]["uid"]].variables)

    # What the holder of a token does.

    def run(self, user: str, token: str) -> tuple[dict[str, int], str] | None:
        """Runs code that leaves the user's file; None if no executor takes the token now.

        Returns the users whose files were there before, with how often each has run, and the uid of the volume claim.
        """
        uid, now = json.loads(token)["pod"], asyncio.get_running_loop().time()
        pod, known = self.alive(uid), self.sessions.get(uid)
        if pod is None or (known is not None and now < known.held_until):
            return None
        if known is not None:
            known.variables.add(user)
            known.used = now
        volume = self.cluster.objects.get(Ref(PERSISTENT_VOLUME_CLAIM, pod["metadata"]["namespace"], claim_of(pod)))
        if volume is None:
            return {}, ""
        files = self.files.setdefault(volume["metadata"]["uid"], {})
        before = dict(files)
        files[user] = files.get(user, 0) + 1
        return before, volume["metadata"]["uid"]


def _contexts(users: set[str]) -> list[session_pb2.KeptContext]:
    return [session_pb2.KeptContext(context_id=user, variables=1) for user in sorted(users)]


@dataclass(frozen=True)
class Signer:
    """Stands in for executors.tokens.Signer: a token that says whom it is for."""

    clock: Callable[[], float]
    # Those of all replicas of the fleet.
    keys: KeyRing = field(default_factory=lambda: KeyRing((TokenKey.new(0.0),)))

    def issue(self, *, sandbox_id: str, sandbox_uid: str, holder: str, lifetime: float, **_rest: object) -> Token:
        text = json.dumps({"pod": sandbox_uid, "session": sandbox_id, "holder": holder})
        return Token(text, self.clock() + min(lifetime, MAX_LIFETIME))


@dataclass(frozen=True)
class _Authority:
    pem: bytes = b""


@dataclass(frozen=True)
class Credentials:
    signer: Signer
    authority: _Authority = _Authority()

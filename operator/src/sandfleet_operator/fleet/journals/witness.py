"""Reads the heads of sessions' journals from their executors, and signs them.

At a Renew that is done behind the answer, and only once enough records have passed; at a Release before the session
ends, and shortly before the end of a lease. No execution waits for it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Protocol

from sandfleet_api.fleet.v1 import fleet_pb2

from sandfleet_operator.api.errors import FleetError
from sandfleet_operator.api.reasons import ClaimReason
from sandfleet_operator.api.values import ASLEEP, Sandbox
from sandfleet_operator.cluster.tasks import BackgroundTasks
from sandfleet_operator.executors.tokens import Signer, base64url, public_bytes, vouched_by
from sandfleet_operator.fleet.leases.ends import LeaseEnds, keep_looking
from sandfleet_operator.plan.audit import Decision, Record, Verdict
from sandfleet_operator.plan.scheduler.recent import Recent
from sandfleet_operator.plan.witness import (
    MAX_KEPT,
    Head,
    Signed,
    contradicts,
    idle_pause,
    is_due,
    is_well_formed,
    statement,
)

# Sessions whose signed heads are kept.
REMEMBERED = 50_000
# Records between two signatures that a Renew asks for; 0: only callers ask. Read from the environment.
RECORDS, DEFAULT_RECORDS = "SANDFLEET_JOURNAL_RECORDS", 100
# Seconds that a Release waits for an executor that does not answer.
RELEASE_PATIENCE = 2.0

Named = tuple[str, str]


class Memory(Protocol):
    """Where the newest signed head of a session outlives this process."""

    def recall(self, sandbox: Sandbox) -> Signed | None:
        """What was kept of the sandbox's present pod."""

    async def keep(self, sandbox: Sandbox, signed: Signed) -> None:
        """Keeps it; where that fails, the next leader knows an older one."""


class WitnessError(RuntimeError):
    """The environment asks for what cannot be. The message is "cannot X: why"."""


class Witness:
    """`read` asks an executor, `named` gives a session's public id and the uid of its pod, `write` audits.

    `vouch` signs the fleet's own keys; None on one machine, where `memory` is None, too: sandboxes end with their fleet
    there. `clock` gives seconds since the epoch.
    """

    def __init__(
        self,
        read: Callable[[Sandbox], Awaitable[Head]],
        named: Callable[[Sandbox], Named],
        signer: Callable[[], Signer],
        write: Callable[[Record], None],
        clock: Callable[[], float],
        *,
        vouch: Callable[[bytes], bytes] | None = None,
        memory: Memory | None = None,
        records: int = DEFAULT_RECORDS,
    ) -> None:
        self._read, self._named, self._signer, self._write, self._clock = read, named, signer, write, clock
        self._vouch, self._memory, self._records = vouch, memory, records
        self._signed: Recent[str, tuple[Signed, ...]] = Recent(REMEMBERED)
        self._busy: set[str] = set()
        self._ends = LeaseEnds()
        # When a sandbox that may end idle was seen first, or read last.
        self._idle: Recent[str, float] = Recent(REMEMBERED)
        self._background = BackgroundTasks()

    def heads(self, sandbox: Sandbox) -> Sequence[Signed]:
        """What was signed of the session, the newest last."""
        session = self._named(sandbox)[0]
        if self._memory is not None and self._signed.get(session) is None:
            # An earlier leader may have signed.
            found = self._memory.recall(sandbox)
            self._signed.put(session, (found,) if found else ())
        return self._signed.get(session) or ()

    def renewed(self, sandbox: Sandbox) -> Sequence[Signed]:
        """What was signed so far; the executor is asked behind the answer."""
        if self._records and sandbox.sandbox_id not in self._busy:
            self._busy.add(sandbox.sandbox_id)
            self._background.begin(self._renew(sandbox, self._records), f"sign the journal of {sandbox.sandbox_id}")
        return self.heads(sandbox)[-1:]

    async def released(self, sandbox: Sandbox | None) -> Sequence[Signed]:
        """Signs the last head of a session that is to end, if its executor answers soon."""
        if sandbox is None or not self._records or not sandbox.bound or sandbox.state in ASLEEP:
            return ()
        try:
            async with asyncio.timeout(RELEASE_PATIENCE):
                await self._sign(sandbox, 1, keeps=False)
        except (FleetError, TimeoutError):
            # It ends whatever its executor says. Where the journal was changed, the audit has it.
            pass
        return self.heads(sandbox)[-1:]

    async def countersign(self, sandbox: Sandbox) -> Sequence[Signed]:
        """Signs the newest head. Raises FleetError."""
        await self._sign(sandbox, 1)
        return self.heads(sandbox)

    def watch(self, sandboxes: Callable[[], Iterable[Sandbox]], clock: Callable[[], float]) -> None:
        """From now on signs the last heads of sessions that end by lease or idleness. `clock` is that of leases."""
        if self._records:
            self._background.begin(keep_looking(self.look, sandboxes, clock), "sign the last heads of journals")

    def look(self, sandboxes: Iterable[Sandbox], now: float) -> None:
        """Asks the executors of sessions that are about to end: once for each lease, once in each idle timeout."""
        for sandbox in sandboxes:
            if not sandbox.bound or sandbox.sandbox_id in self._busy:
                continue
            ends = self._ends.is_due(sandbox.sandbox_id, sandbox.lease_expires, now)
            if ends or self._may_end_idle(sandbox, now):
                self._busy.add(sandbox.sandbox_id)
                # Only the executor knows how idle it is: most such readings are not the last one, and are not kept.
                work = self._renew(sandbox, 1, keeps=ends)
                self._background.begin(work, f"sign the last head of {sandbox.sandbox_id}")

    def _may_end_idle(self, sandbox: Sandbox, now: float) -> bool:
        timeout = sandbox.claim.idle_timeout if sandbox.claim else None
        if not timeout:
            return False
        before = self._idle.get(sandbox.sandbox_id)
        if before is not None and now - before < idle_pause(timeout):
            return False
        self._idle.put(sandbox.sandbox_id, now)
        return before is not None

    def close(self) -> None:
        self._background.close()

    async def _renew(self, sandbox: Sandbox, records: int, *, keeps: bool = True) -> None:
        try:
            await self._sign(sandbox, records, keeps=keeps)
        except FleetError as error:
            if error.problem.reason == ClaimReason.JOURNAL_CHANGED.value:
                raise
        finally:
            self._busy.discard(sandbox.sandbox_id)

    async def _sign(self, sandbox: Sandbox, records: int, *, keeps: bool = True) -> None:
        """`keeps` for the next leader. Raises FleetError."""
        session, pod_uid = self._named(sandbox)
        head = await self._read(sandbox)
        kept = self.heads(sandbox)
        last = kept[-1] if kept else None
        if not is_well_formed(head):
            why = "its executor has sent no head"
            raise ClaimReason.EXECUTOR_UNREACHABLE.error(f"cannot sign the journal of {session}: {why}", session)
        if contradicts(head, last, pod_uid):
            self._audit(Verdict.REFUSED, session, {"sandbox_uid": pod_uid, "number": head.number, "hash": head.hash})
            assert last is not None
            why = f"record {last.head.number} was signed before, and its executor does not have it any more"
            raise ClaimReason.JOURNAL_CHANGED.error(f"cannot sign the journal of {session}: {why}", session)
        if is_due(head, last, pod_uid, records):
            signed = self._made(session, pod_uid, head)
            # Another call may have signed meanwhile.
            kept = self._signed.get(session) or ()
            self._signed.put(session, tuple(sorted((*kept, signed), key=lambda one: one.time))[-MAX_KEPT:])
            self._audit(Verdict.ALLOWED, session, _details(signed))
            if self._memory is not None and keeps:
                self._background.begin(self._memory.keep(sandbox, signed), f"keep the signed head of {session}")

    def _made(self, session: str, pod_uid: str, head: Head) -> Signed:
        time = int(self._clock() * 1000)
        key = self._signer().key()
        return Signed(
            session=session,
            pod_uid=pod_uid,
            head=head,
            time=time,
            key_id=key.kid,
            signature=key.private.sign(statement(session, pod_uid, head, time)),
            public_key=public_bytes(key),
            key_signature=vouched_by(key, self._vouch) if self._vouch else b"",
        )

    def _audit(self, verdict: Verdict, session: str, details: Mapping[str, str | int]) -> None:
        namespace, separator, name = session.partition("/")
        self._write(
            Record(
                decision=Decision.JOURNAL,
                verdict=verdict,
                reason="" if verdict is Verdict.ALLOWED else ClaimReason.JOURNAL_CHANGED.value,
                namespace=namespace if separator else "",
                sandbox=name if separator else session,
                details=details,
            )
        )


def _details(signed: Signed) -> dict[str, str | int]:
    return {
        "sandbox_uid": signed.pod_uid,
        "number": signed.head.number,
        "hash": signed.head.hash,
        "time": signed.time,
        "key_id": signed.key_id,
        "public_key": base64url(signed.public_key),
        "signature": base64url(signed.signature),
        "key_signature": base64url(signed.key_signature),
    }


def unwitnessed() -> Witness:
    """Of a fleet that signs nothing."""

    async def refused(sandbox: Sandbox) -> Head:
        why = "this fleet signs no journals"
        raise ClaimReason.UNIMPLEMENTED.error(f"cannot sign the journal of {sandbox.sandbox_id}: {why}")

    def signer() -> Signer:
        raise NotImplementedError

    return Witness(
        refused, lambda one: (one.sandbox_id, one.sandbox_uid), signer, lambda _: None, lambda: 0.0, records=0
    )


def records_between(environment: Mapping[str, str]) -> int:
    """Raises WitnessError."""
    said = environment.get(RECORDS, "")
    if not said:
        return DEFAULT_RECORDS
    if not (said.isascii() and said.isdecimal() and len(said) < 10):
        raise WitnessError(f"cannot read {RECORDS}: {said[:40]!r} is no number of records")
    return int(said)


def message(signed: Signed) -> fleet_pb2.JournalHead:
    return fleet_pb2.JournalHead(
        session=signed.session,
        pod_uid=signed.pod_uid,
        number=signed.head.number,
        hash=signed.head.hash,
        time_ms=signed.time,
        key_id=signed.key_id,
        signature=signed.signature,
        public_key=signed.public_key,
        key_signature=signed.key_signature,
    )

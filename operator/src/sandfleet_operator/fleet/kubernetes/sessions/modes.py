"""The operating mode of a session's CodeSandbox: the operator ends the pod of a suspended one, and starts it again.

A session of a queue gives its quota back while it sleeps, by `status.admission`. The order of the writes keeps the
quota at each moment, also where a user sets the mode or a process ends in between:

    asleep     the mode, then, once the operator has ended the pod, Pending; then its quota is another one's
    resumed    its quota is its own again, then Admitted, then the mode

The operator makes no pod for a Pending one, so a mode that a user sets to Running is no way round the quota.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from weakref import WeakValueDictionary

from sandfleet_operator.api.kinds.meta import Meta
from sandfleet_operator.api.kinds.sandbox import AdmissionStatus, CodeSandbox, SuspendTo, readable
from sandfleet_operator.api.kube import CODE_SANDBOX, Json, Ref
from sandfleet_operator.api.values import Claim, Sandbox
from sandfleet_operator.cluster.lease import NotLeadingError
from sandfleet_operator.cluster.store import Store
from sandfleet_operator.fleet.kubernetes.writer import Writer
from sandfleet_operator.plan.claims.record import object_of
from sandfleet_operator.plan.claims.suspension import resume_patch, suspend_patch
from sandfleet_operator.plan.sandbox.admission import admitted_again, given_back, kept_out
from sandfleet_operator.plan.sandbox.binding import told
from sandfleet_operator.plan.scheduler.claim_queue import WhyNot

# The present object, its session's claim and the time → what is to be written; None for nothing.
Admission = Callable[[CodeSandbox, Claim, float], AdmissionStatus | None]

# Raises NotLeadingError.
Give = Callable[[Sandbox], Awaitable[None]]

_LOG = logging.getLogger(__name__)


class Modes:
    """The writes for one session are done one after the other, and of several decisions only the last.

    `written` is called with each CodeSandbox that this fleet has written, once the store shows it. `wall_clock` gives
    seconds since the epoch.
    """

    def __init__(
        self, store: Store, writer: Writer, written: Callable[[Ref], None], wall_clock: Callable[[], float]
    ) -> None:
        self._store = store
        self._writer = writer
        self._written = written
        self._clock = wall_clock
        # Gives a session that comes out of its snapshot a warm pod, before it is to run.
        self.give: Give | None = None
        # The last decision on each session, until it is written.
        self._decided: dict[Ref, Sandbox] = {}
        self._turns: WeakValueDictionary[Ref, asyncio.Lock] = WeakValueDictionary()

    def decided(self, sandbox: Sandbox) -> None:
        """The session is to sleep or to go on: `suspend` or `resume` of the same value writes it."""
        self._decided[_ref(sandbox)] = sandbox

    def is_writing(self, sandbox: Sandbox) -> bool:
        """Whether what the store shows of the mode may be out of date, because this fleet is about to write it."""
        return _ref(sandbox) in self._decided

    async def suspend(self, sandbox: Sandbox) -> None:
        arrived = sandbox.created if sandbox.arrived is None else sandbox.arrived
        since = None if sandbox.preempted is None else (sandbox.preempted, arrived)
        to = SuspendTo.SNAPSHOT if sandbox.parked else SuspendTo.VOLUME
        await self._carry_out(sandbox, lambda meta: suspend_patch(meta.uid, sandbox.suspended_until, since, to))

    async def resume(self, sandbox: Sandbox) -> None:
        await self._carry_out(sandbox, lambda meta: resume_patch(meta.uid), admitted_again, self.give)

    async def give_back(self, sandbox: Sandbox) -> None:
        """The quota of a session that sleeps, unless it is to go on by now."""
        await self._admit_in_turn(sandbox, given_back)

    async def say(self, sandbox: Sandbox, why: WhyNot) -> None:
        """Why a session that has given its quota back is not admitted."""
        await self._admit_in_turn(sandbox, lambda found, _claim, _now: kept_out(found, why.reason, why.message))

    async def _admit_in_turn(self, sandbox: Sandbox, admission: Admission) -> None:
        ref = _ref(sandbox)
        if ref in self._turns:
            # Who writes now looks again after that.
            return
        async with self._turn(ref):
            if ref in self._decided:
                return
            try:
                found = await self._admit(ref, sandbox, admission)
            except NotLeadingError as error:
                _LOG.info("the admission of %s is left to who leads now: %s", ref, error)
                return
        if found is not None:
            self._written(ref)

    async def _carry_out(
        self,
        sandbox: Sandbox,
        patch: Callable[[Meta], list[Json]],
        admission: Admission | None = None,
        give: Give | None = None,
    ) -> None:
        ref = _ref(sandbox)
        async with self._turn(ref):
            if self._decided.get(ref) is not sandbox:
                # It was decided otherwise meanwhile.
                return
            is_over = True
            try:
                await self._write(ref, sandbox, patch, admission, give)
            except NotLeadingError as error:
                _LOG.info("the mode of %s is left to who leads now: %s", ref, error)
            except asyncio.CancelledError:
                # This fleet ends. What the store shows of the mode is out of date until then.
                is_over = False
                raise
            finally:
                if is_over and self._decided.get(ref) is sandbox:
                    del self._decided[ref]
        self._written(ref)

    async def _write(
        self,
        ref: Ref,
        sandbox: Sandbox,
        patch: Callable[[Meta], list[Json]],
        admission: Admission | None,
        give: Give | None,
    ) -> None:
        meta = await self._object(ref, sandbox)
        if meta is None:
            return
        if admission is not None:
            await self._admit(ref, sandbox, admission)
        if give is not None:
            await give(sandbox)
        if await self._writer.patch(ref, patch(meta)):
            self._keep(await self._writer.look(ref))

    async def _admit(self, ref: Ref, sandbox: Sandbox, admission: Admission) -> Json | None:
        """The object as it is with what was written; None where nothing was to be written."""
        claim, meta = sandbox.claim, await self._object(ref, sandbox)
        if claim is None or not claim.queue or meta is None:
            return None
        made = await self._writer.admit(ref, meta.uid, lambda found: admission(found, claim, self._clock()))
        self._keep(made)
        return made

    def _keep(self, found: Json | None) -> None:
        """From now on the store takes no older version, which would show the mode before."""
        if found is not None:
            self._store.put(CODE_SANDBOX, found)

    def _turn(self, ref: Ref) -> asyncio.Lock:
        return self._turns.setdefault(ref, asyncio.Lock())

    async def _object(self, ref: Ref, sandbox: Sandbox) -> Meta | None:
        """The CodeSandbox of this very session. Raises NotLeadingError."""
        found = self._store.get(ref) or await self._writer.look(ref)
        made = readable(found) if found else None
        if made is None or made.meta.deleting:
            return None
        if sandbox.claim is not None and sandbox.claim.object_uid:
            return made.meta if made.meta.uid == sandbox.claim.object_uid else None
        binding = told(made)
        of_session = binding is not None and binding.pod == sandbox.sandbox_id.partition("/")[2]
        return made.meta if of_session else None


def _ref(sandbox: Sandbox) -> Ref:
    assert sandbox.claim is not None
    return Ref(CODE_SANDBOX, sandbox.sandbox_id.partition("/")[0], object_of(sandbox.claim))

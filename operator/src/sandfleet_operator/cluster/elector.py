"""Leadership by a Lease: acquire, hold, release. `cluster.lease.Lease` runs an elector in a thread of its own."""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from sandfleet_operator.api.kube import Conflict, Json, KubeError, NotFound, Ref, Unreachable
from sandfleet_operator.cluster.clock import wall_clock
from sandfleet_operator.cluster.kube_api import KubeApi
from sandfleet_operator.plan.leadership import (
    Decision,
    Leading,
    Record,
    Terms,
    View,
    decide,
    holds,
    left,
    next_number,
    observe,
    pause,
    renewed,
)

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def steady() -> float:
    """Seconds, including those that the machine slept: a leader that wakes up has to know that its time is over."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


async def _nothing() -> Iterable[int]:
    return ()


class Elector:
    """One contender, under an identity that no other process has or had.

    A leader renews with one write over the version that it knows. It reads the Lease only after a lost reply or a write
    by another process. `vouch` says whether leadership is still wanted; `seen` gives the fencing numbers that earlier
    leaders have left on objects, for a Lease that was deleted.
    """

    def __init__(
        self,
        api: KubeApi,
        ref: Ref,
        identity: str,
        terms: Terms | None = None,
        *,
        vouch: Callable[[], bool] = lambda: True,
        seen: Callable[[], Awaitable[Iterable[int]]] = _nothing,
        clock: Callable[[], float] = steady,
        wall: Callable[[], float] = wall_clock,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._api = api
        self._ref = ref
        self._terms = terms or Terms()
        self._vouch = vouch
        self._seen = seen
        self._clock = clock
        self._wall = wall
        self._sleep = sleep
        self._view = View(identity)
        # The resourceVersion last seen; empty if it may have changed since.
        self._version = ""
        # renewTime → when this renewal was sent, for renewals that may or may not have been written.
        self._sent: dict[str, float] = {}
        self.trouble: KubeError | None = None
        """Why the last read or write failed, for logs."""

    @property
    def fencing(self) -> int | None:
        """The number of this leadership, higher than all before; None as soon as it may be over. For any thread."""
        view = self._view
        return view.leading.fencing if view.leading and holds(view, self._clock(), self._terms) else None

    @property
    def holder(self) -> str:
        """The identity of the leader, as last seen; empty if there is none."""
        record = self._view.record
        return record.holder if record else ""

    async def acquire(self) -> int:
        """Waits until this contender leads; the fencing number. No error of the API server ends the wait."""
        while True:
            await self.step()
            if (number := self.fencing) is not None:
                return number
            await self._sleep(pause(self._view, self._clock(), self._terms))

    async def hold(self, lost: Callable[[], None]) -> None:
        """Renews until leadership is lost, then calls `lost` and returns. The process has to end its work at once."""
        tried = -math.inf
        while True:
            await self._sleep(pause(self._view, self._clock(), self._terms, tried))
            tried = self._clock()
            if await self.step() is Decision.LOST:
                lost()
                return

    async def release(self) -> None:
        """Lets the next leader start at once. Call it when all work and `hold` have ended. A failure is harmless."""
        leading = self._view.leading
        try:
            if leading and not self._version:
                await self._look()
            record, self._view = self._view.record, replace(self._view, leading=None)
            ours = leading and record and (record.holder, record.transitions) == (self._view.identity, leading.fencing)
            if ours:
                await self._write({"holderIdentity": "", "renewTime": self._stamp()})
        except KubeError as error:
            self.trouble = error
        finally:
            self._view = replace(self._view, leading=None)

    async def step(self) -> Decision:
        """Reads the Lease if needed, decides, and acts."""
        self.trouble = None
        try:
            if self._view.leading is None or not self._version:
                await self._look()
            decision = self._decided()
            if decision is Decision.ACQUIRE:
                await self._acquire()
            elif decision is Decision.RENEW and self._vouch():
                await self._renew_or_look()
        except KubeError as error:
            self.trouble = error
        decision = self._decided()
        if decision is Decision.LOST:
            self._view = replace(self._view, leading=None)
        return decision

    def _decided(self) -> Decision:
        return decide(self._view, self._clock(), self._terms)

    async def _look(self) -> None:
        try:
            found = await self._answer(self._api.get(self._ref))
        except NotFound:
            self._view = observe(self._view, None, self._clock())
            return
        self._saw(found)

    async def _acquire(self) -> None:
        seen = await self._seen()
        record, sent, now = self._view.record, self._clock(), self._stamp()
        spec: Json = {
            "holderIdentity": self._view.identity,
            "leaseDurationSeconds": math.ceil(self._terms.duration),
            "acquireTime": now,
            "renewTime": now,
            "leaseTransitions": next_number(record.transitions if record else 0, seen),
        }
        if record:
            await self._write(spec)
        else:
            metadata = {"namespace": self._ref.namespace, "name": self._ref.name}
            kind = self._ref.kind
            lease = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, "spec": spec}
            self._saw(await self._answer(self._api.create(lease)))
        self._sent.clear()
        self._view = replace(self._view, leading=Leading(spec["leaseTransitions"], sent))

    async def _renew_or_look(self) -> None:
        try:
            await self._renew()
        except (Conflict, NotFound):
            # Another process wrote, or our own late write arrived: read at once who holds the Lease now.
            await self._look()
            if self._decided() is Decision.RENEW:
                await self._renew()

    async def _renew(self) -> None:
        sent, now = self._clock(), self._stamp()
        self._sent[now] = sent
        await self._write({"renewTime": now})

    async def _write(self, spec: Json) -> None:
        """Writes over the version last seen: of two that take over at once, one gets a Conflict."""
        version, self._version = self._version, ""
        patch = {"metadata": {"resourceVersion": version}, "spec": spec}
        try:
            lease = await self._answer(self._api.merge(self._ref, patch))
        except KubeError as error:
            if not error.unsettled and not isinstance(error, Conflict | NotFound):
                # The write was not done, so the known version is still current.
                self._version = version
            raise
        self._saw(lease)

    async def _answer(self, asked: Awaitable[Json]) -> Json:
        """The answer, within the time that is left of the leadership. Raises KubeError."""
        most = self._terms.request_timeout
        if self._view.leading:
            most = min(most, left(self._view, self._clock(), self._terms))
        try:
            async with asyncio.timeout(most):
                return await asked
        except TimeoutError:
            raise Unreachable(0, "Timeout", f"cannot use {self._ref}: no answer within {most:.3g} s") from None

    def _saw(self, lease: Json) -> None:
        self._version = lease["metadata"]["resourceVersion"]
        record = _record(lease)
        self._view = observe(self._view, record, self._clock())
        leading, sent = self._view.leading, self._sent.get(record.renewed)
        if leading is None or sent is None:
            return
        # A renewal of ours was written, even if its reply was lost. Earlier ones can no longer be written.
        if (record.holder, record.transitions) == (self._view.identity, leading.fencing):
            self._view = renewed(self._view, sent)
            self._sent = {text: at for text, at in self._sent.items() if at > sent}

    def _stamp(self) -> str:
        """A renewTime that differs from all others that may be seen, so that each write can be recognised."""
        moment = EPOCH + timedelta(microseconds=round(self._wall() * 1e6))
        known = {*self._sent, self._view.record.renewed if self._view.record else ""}
        while (text := moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")) in known:
            moment += timedelta(microseconds=1)
        return text


def _record(lease: Json) -> Record:
    spec = lease.get("spec") or {}
    return Record(
        holder=spec.get("holderIdentity") or "",
        transitions=spec.get("leaseTransitions") or 0,
        renewed=spec.get("renewTime") or "",
        duration=float(spec.get("leaseDurationSeconds") or 0),
    )

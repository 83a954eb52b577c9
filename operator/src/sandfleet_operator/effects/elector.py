"""Leadership by a Lease of our own: acquire, hold, release. `Lease` runs one of these where nothing else runs."""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from sandfleet_operator.api.kube import Conflict, Json, KubeError, NotFound, Ref, Unreachable
from sandfleet_operator.effects.clock import wall_clock
from sandfleet_operator.effects.kubeapi import KubeApi
from sandfleet_operator.plan.leadership import (
    Decision,
    Leading,
    Record,
    Terms,
    View,
    decide,
    holds,
    left,
    observe,
    pause,
    renewed,
)

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def steady() -> float:
    """Seconds, those that the machine slept included: a leader that wakes up has to know that its time is over."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Elector:
    """One contender, under a name that no other process has, now or before.

    A leader renews with one write over the version that it knows. It reads only where it cannot know: after a reply
    that was lost, and when somebody else wrote. `vouch` says whether leadership is still wanted.
    """

    def __init__(
        self,
        api: KubeApi,
        ref: Ref,
        identity: str,
        terms: Terms | None = None,
        *,
        vouch: Callable[[], bool] = lambda: True,
        clock: Callable[[], float] = steady,
        wall: Callable[[], float] = wall_clock,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._api = api
        self._ref = ref
        self._terms = terms or Terms()
        self._vouch = vouch
        self._clock = clock
        self._wall = wall
        self._sleep = sleep
        self._view = View(identity)
        # Of the Lease as last seen; empty where it may be another one by now.
        self._version = ""
        # When the renewals were sent of which it is not known whether they were done, by their renewTime.
        self._sent: dict[str, float] = {}
        self.trouble: KubeError | None = None
        """Why the last look or write failed, for people."""

    @property
    def fencing(self) -> int | None:
        """The number of this leadership, higher than every one before; None as soon as it may be over. For any thread."""
        view = self._view
        return view.leading.fencing if view.leading and holds(view, self._clock(), self._terms) else None

    @property
    def holder(self) -> str:
        """Who leads, as last seen; "" for nobody."""
        record = self._view.record
        return record.holder if record else ""

    async def acquire(self) -> int:
        """Waits until it leads; the fencing number. Nothing that the API server answers ends the wait."""
        while True:
            await self.step()
            if (number := self.fencing) is not None:
                return number
            await self._sleep(pause(self._view, self._clock(), self._terms))

    async def hold(self, lost: Callable[[], None]) -> None:
        """Renews until leadership is lost, calls `lost` then, once, and returns. The process has to end its work at once."""
        tried = -math.inf
        while True:
            await self._sleep(pause(self._view, self._clock(), self._terms, tried))
            tried = self._clock()
            if await self.step() is Decision.LOST:
                lost()
                return

    async def release(self) -> None:
        """Lets the next one begin at once. Call it when all work has ended, and `hold` too; failing is harmless."""
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
        """Look where it is needed, decide, act."""
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
        record, sent, now = self._view.record, self._clock(), self._stamp()
        spec: Json = {
            "holderIdentity": self._view.identity,
            "leaseDurationSeconds": math.ceil(self._terms.duration),
            "acquireTime": now,
            "renewTime": now,
            "leaseTransitions": record.transitions + 1 if record else 1,
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
            # Another hand, or a write of ours that came late: whose it is now is to be known at once.
            await self._look()
            if self._decided() is Decision.RENEW:
                await self._renew()

    async def _renew(self) -> None:
        sent, now = self._clock(), self._stamp()
        self._sent[now] = sent
        await self._write({"renewTime": now})

    async def _write(self, spec: Json) -> None:
        """Only over what was seen: of two that take over at once, one meets a Conflict."""
        version, self._version = self._version, ""
        patch = {"metadata": {"resourceVersion": version}, "spec": spec}
        try:
            lease = await self._answer(self._api.merge(self._ref, patch))
        except KubeError as error:
            if not error.unsettled and not isinstance(error, Conflict | NotFound):
                # It was not done: what was known still is.
                self._version = version
            raise
        self._saw(lease)

    async def _answer(self, asked: Awaitable[Json]) -> Json:
        """A leader that waits for it does not outlast its time. Raises KubeError."""
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
        # A renewal of ours was done, also where its reply was lost. Those before it no longer can be.
        if (record.holder, record.transitions) == (self._view.identity, leading.fencing):
            self._view = renewed(self._view, sent)
            self._sent = {text: at for text, at in self._sent.items() if at > sent}

    def _stamp(self) -> str:
        """A time that no write has that may be seen: by its change it is known."""
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

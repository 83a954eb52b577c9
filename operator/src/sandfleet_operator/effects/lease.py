"""Leadership by a Lease of our own: acquire, hold, release."""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime

from sandfleet_operator.api.kube import Json, KubeError, NotFound, Ref
from sandfleet_operator.effects.clock import wall_clock
from sandfleet_operator.effects.kubeapi import KubeApi
from sandfleet_operator.plan.leadership import Decision, Leading, Record, Terms, View, decide, holds, observe, pause


def steady() -> float:
    """Seconds, those that the machine slept included: a leader that wakes up has to know that its time is over."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Lease:
    """One contender, under a name that no other process has, now or before."""

    def __init__(
        self,
        api: KubeApi,
        ref: Ref,
        identity: str,
        terms: Terms | None = None,
        *,
        clock: Callable[[], float] = steady,
        wall: Callable[[], float] = wall_clock,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._api = api
        self._ref = ref
        self._terms = terms or Terms()
        self._clock = clock
        self._wall = wall
        self._sleep = sleep
        self._view = View(identity)
        self._version = ""
        self.trouble: KubeError | None = None
        """Why the last look or write failed, for people."""

    @property
    def ref(self) -> Ref:
        return self._ref

    @property
    def fencing(self) -> int | None:
        """The number of this leadership, higher than every one before; None as soon as it may be over."""
        view = self._view
        return view.leading.fencing if view.leading and holds(view, self._clock(), self._terms) else None

    @property
    def holder(self) -> str:
        """Who leads, as last seen; "" for nobody."""
        return self._view.record.holder if self._view.record else ""

    async def acquire(self) -> int:
        """Waits until it leads; the fencing number. Nothing that the API server answers ends the wait."""
        while True:
            await self.step()
            if (number := self.fencing) is not None:
                return number
            await self._sleep(pause(self._view, self._clock(), self._terms))

    async def hold(self, lost: Callable[[], None]) -> None:
        """Renews until leadership is lost, calls `lost` then, once, and returns. The process has to end its work at once."""
        while True:
            await self._sleep(pause(self._view, self._clock(), self._terms))
            if await self.step() is Decision.LOST:
                lost()
                return

    async def release(self) -> None:
        """Lets the next one begin at once. Call it when all work has ended, and `hold` too; failing is harmless."""
        leading, self._view = self._view.leading, replace(self._view, leading=None)
        if leading is None:
            return
        try:
            await self._write({"holderIdentity": "", "renewTime": self._now()})
        except KubeError as error:
            self.trouble = error

    async def step(self) -> Decision:
        """Look, decide, act."""
        self.trouble = None
        began = self._clock()
        try:
            # A leader that waits for an answer does not outlast its time.
            async with asyncio.timeout(self._left(began)):
                await self._look()
                decision = decide(self._view, self._clock(), self._terms)
                if decision is Decision.ACQUIRE:
                    await self._acquire()
                elif decision is Decision.RENEW:
                    await self._renew()
        except TimeoutError:
            pass
        except KubeError as error:
            self.trouble = error
        decision = decide(self._view, self._clock(), self._terms)
        if decision is Decision.LOST:
            self._view = replace(self._view, leading=None)
        return decision

    def _left(self, now: float) -> float | None:
        leading = self._view.leading
        return None if leading is None else max(0.0, leading.since + self._terms.renew_deadline - now)

    async def _look(self) -> None:
        try:
            found = await self._api.get(self._ref)
        except NotFound:
            self._view = observe(self._view, None, self._clock())
            return
        self._version = found["metadata"]["resourceVersion"]
        self._view = observe(self._view, _record(found), self._clock())

    async def _acquire(self) -> None:
        record, sent = self._view.record, self._clock()
        spec: Json = {
            "holderIdentity": self._view.identity,
            "leaseDurationSeconds": math.ceil(self._terms.duration),
            "acquireTime": self._now(),
            "renewTime": self._now(),
            "leaseTransitions": record.transitions + 1 if record else 1,
        }
        if record:
            await self._write(spec)
        else:
            metadata = {"namespace": self._ref.namespace, "name": self._ref.name}
            kind = self._ref.kind
            self._saw(
                await self._api.create(
                    {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, "spec": spec}
                )
            )
        self._view = replace(self._view, leading=Leading(spec["leaseTransitions"], sent))

    async def _renew(self) -> None:
        sent, leading = self._clock(), self._view.leading
        await self._write({"renewTime": self._now()})
        self._view = replace(self._view, leading=replace(leading, since=sent) if leading else None)

    async def _write(self, spec: Json) -> None:
        """Only over what was seen: of two that take over at once, one meets a Conflict."""
        self._saw(await self._api.merge(self._ref, {"metadata": {"resourceVersion": self._version}, "spec": spec}))

    def _saw(self, lease: Json) -> None:
        self._version = lease["metadata"]["resourceVersion"]
        self._view = observe(self._view, _record(lease), self._clock())

    def _now(self) -> str:
        return datetime.fromtimestamp(self._wall(), UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _record(lease: Json) -> Record:
    spec = lease.get("spec") or {}
    return Record(
        holder=spec.get("holderIdentity") or "",
        transitions=spec.get("leaseTransitions") or 0,
        renewed=spec.get("renewTime") or "",
        duration=float(spec.get("leaseDurationSeconds") or 0),
    )

"""Clients of two teams: thousands of claims at once over gRPC, each used for a moment and released."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
from cluster.access_bed import FleetBed
from cluster.harness.layout import ClusterError
from sandfleet_api.fleet.v1 import fleet_pb2
from sandfleet_api.fleet.v1.fleet_pb2_grpc import FleetServiceStub

# A connection carries at most 5,000 calls at once.
CALLS_PER_CHANNEL = 2500
PATIENCE = 3600.0
# Claims that are sent before the fleet has said that it has them.
UNHEARD = 100
# Seconds until a call that the fleet could not serve is made again.
PAUSE = (0.5, 2.0)
TO_BE_RETRIED = {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED, grpc.StatusCode.INTERNAL}


@dataclass
class Claim:
    """Times are monotonic seconds. `had` is when the fleet first said that it has the claim."""

    number: str
    sent: float
    had: float = 0.0
    bound: float = 0.0
    ticket: bytes = b""
    # It waited at more than one leader.
    tries: int = 0

    @property
    def wait(self) -> float:
        """0: it waits."""
        return self.bound - self.sent if self.bound else 0.0


@dataclass
class Team:
    """One caller of one queue. `session` is the seconds for which it uses a sandbox."""

    clients: Clients
    account: str
    queue: str
    session: float
    token: str
    claims: list[Claim] = field(default_factory=list)
    tasks: set[asyncio.Task[None]] = field(default_factory=set)
    # Sandboxes.
    used: set[str] = field(default_factory=set)

    def ask(self, many: int) -> list[Claim]:
        """So many claims from now on; they are sent at once, or as fast as the fleet takes note of them."""
        new = [Claim(f"{self.account}-{next(self.clients.numbers)}", 0.0) for _ in range(many)]
        self.claims += new
        unheard = asyncio.Semaphore(UNHEARD)
        self._begin(self._send(new, unheard))
        return new

    async def _send(self, claims: list[Claim], unheard: asyncio.Semaphore) -> None:
        for claim in claims:
            await unheard.acquire()
            claim.sent = time.monotonic()
            self._begin(self._use(claim, unheard))

    async def _use(self, claim: Claim, unheard: asyncio.Semaphore) -> None:
        name = await self.clients.claimed(self, claim, unheard)
        self.used.add(name)
        await asyncio.sleep(self.session)
        await self.clients.release(self, name)
        self.used.discard(name)

    def _begin(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self.tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.clients.trouble.append(error)

    @property
    def waiting(self) -> int:
        return sum(1 for one in self.claims if not one.bound)

    async def leave(self) -> None:
        """What still waits is asked for no more, and what is used is released."""
        tasks = list(self.tasks)
        for one in tasks:
            one.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.gather(*(self.clients.release(self, one) for one in self.used))


class Clients:
    def __init__(self, bed: FleetBed, channels: list[grpc.aio.Channel]) -> None:
        self._bed = bed
        self._stubs = [FleetServiceStub(one) for one in channels]  # type: ignore[no-untyped-call]
        self._chance = random.Random(1)
        self.numbers: Iterator[int] = iter(range(10**9))
        self.trouble: list[BaseException] = []
        self.tickets = 0

    def team(self, account: str, queue: str, session: float) -> Team:
        token = self._bed.token(self._bed.namespaces[0], account, "--duration", "3h")
        return Team(self, account, queue, session, token)

    def check(self) -> None:
        """Raises what no client can retry."""
        if self.trouble:
            raise self.trouble[0]

    async def claimed(self, team: Team, claim: Claim, unheard: asyncio.Semaphore) -> str:
        """The sandbox, when the claim was served; through changes of leader."""
        request = fleet_pb2.ClaimRequest(
            request_id=claim.number, namespace=self._bed.namespaces[0], pool="fast", queue=team.queue
        )
        request.lease.FromSeconds(600)
        request.max_wait.FromSeconds(round(PATIENCE))
        while True:
            try:
                return await self._stream(team, claim, request, unheard)
            except grpc.aio.AioRpcError as error:
                if error.code() not in TO_BE_RETRIED:
                    raise
                claim.tries += 1
            await asyncio.sleep(self._chance.uniform(*PAUSE))

    async def _stream(
        self, team: Team, claim: Claim, request: fleet_pb2.ClaimRequest, unheard: asyncio.Semaphore
    ) -> str:
        stub = self._stubs[int(claim.number.rpartition("-")[2]) % len(self._stubs)]
        async for answer in stub.Claim(request, metadata=_metadata(team), timeout=PATIENCE):
            if not claim.had:
                claim.had = time.monotonic()
                unheard.release()
            if answer.HasField("bound"):
                claim.bound = time.monotonic()
                return str(answer.bound.sandbox.sandbox_id)
            if answer.queued.ticket:
                self.tickets += not request.ticket
                request.ticket = answer.queued.ticket
        raise ClusterError(f"claim {claim.number} ended without a sandbox")

    async def release(self, team: Team, name: str) -> None:
        request = fleet_pb2.ReleaseRequest(sandbox_id=name)
        while True:
            try:
                await self._stubs[0].Release(request, metadata=_metadata(team), timeout=60)
            except grpc.aio.AioRpcError as error:
                if error.code() not in {*TO_BE_RETRIED, grpc.StatusCode.DEADLINE_EXCEEDED}:
                    raise
                await asyncio.sleep(self._chance.uniform(*PAUSE))
            else:
                return


@asynccontextmanager
async def clients(bed: FleetBed, most: int) -> AsyncIterator[Clients]:
    """Of `bed`'s fleet, for so many claims at once."""
    ca = bed.cluster.api.get("ConfigMap", "sandfleet-ca", bed.namespace)["data"]["ca.crt"].encode()
    options = [
        ("grpc.ssl_target_name_override", "127.0.0.1"),
        # Each channel has a connection of its own.
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.initial_reconnect_backoff_ms", 200),
        ("grpc.max_reconnect_backoff_ms", 1000),
    ]
    credentials = grpc.ssl_channel_credentials(ca)
    channels = [
        grpc.aio.secure_channel(f"127.0.0.1:{bed.port}", credentials, options=options)
        for _ in range(most // CALLS_PER_CHANNEL + 1)
    ]
    made = Clients(bed, channels)
    try:
        yield made
    finally:
        for one in channels:
            await one.close()


def _metadata(team: Team) -> tuple[tuple[str, str], ...]:
    return (("authorization", f"Bearer {team.token}"),)

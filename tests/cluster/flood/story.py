"""The story of a flood: a team alone, beside another that floods, through changes, and first come, first served."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cluster.access_bed import AGENT_RULES, FleetBed, a_grant, an_object, fleet_bed
from cluster.flood import audit, checks
from cluster.flood.control_plane import audit_log, control_plane
from cluster.flood.teams import Claim, Clients, Team, clients
from cluster.harness import fake_nodes
from cluster.harness.layout import ClusterError
from cluster.harness.testing import Cluster
from cluster.operators import OperatorProcess, install_kinds, template

Json = dict[str, Any]
API = "sandfleet.io/v1alpha1"
# Accounts: the team that floods, and its neighbour.
FLOODER, NEIGHBOUR = "flooder", "neighbour"
FLOODERS, NEIGHBOURS, SHARED = "flooders", "neighbours", "shared"
MAY_CLAIM = {"apiGroups": ["sandfleet.io"], "resources": ["sandboxqueues"], "verbs": ["claim"]}
TINY = {
    "limits": {"cpu": "1", "memory": "512Mi", "ephemeral-storage": "512Mi"},
    "requests": {"cpu": "1m", "memory": "1Mi", "ephemeral-storage": "1Mi"},
}
PROGRESS_SECONDS = 5.0
# Phases.
ALONE, FLOODED, CHANGED, IN_ONE_LINE = "alone", "beside a flood", "through changes", "first come, first served"
# After so many seconds the rest of a flood leaves, and who comes last in one line has waited long enough.
FLOOD_SECONDS, LINE_SECONDS = 60.0, 120.0


@dataclass(frozen=True)
class Size:
    """Of a flood of so many claims. The neighbour asks for three times its quota at once, again and again."""

    claims: int
    # Nominal quotas in sandboxes.
    flooders: int
    neighbours: int
    # Seconds for which a sandbox is used.
    session: float
    bursts: int

    @property
    def quota(self) -> int:
        return self.flooders + self.neighbours

    @property
    def burst(self) -> int:
        return 3 * self.neighbours

    @property
    def nodes(self) -> int:
        return 2 * self.quota // 200 + 2


def size_of(claims: int) -> Size:
    """Quotas, and not the machine's two cores, are what both teams wait for: at most 18 claims are served a second.

    Most of a large flood only waits, and leaves in the end.
    """
    if claims < 2000:
        return Size(claims, flooders=12, neighbours=6, session=1.0, bursts=3)
    return Size(claims, flooders=24, neighbours=12, session=3.0, bursts=5)


@contextmanager
def fleet(cluster: Cluster, folder: Path, size: Size) -> Iterator[FleetBed]:
    """Fleet and operator, a pool, and two accounts that may claim; no queue yet."""
    install_kinds(cluster.api)
    work = f"flood-{secrets.token_hex(4)}"
    cluster.api.create(an_object("v1", "Namespace", work))
    settings = {"maxWaitingPerNamespace": 20_000}
    with contextlib.ExitStack() as stack:
        stack.callback(cluster.api.delete, "Namespace", work)
        bed = stack.enter_context(fleet_bed(cluster, folder, (work,), fakes=True, settings=settings))
        for account in (FLOODER, NEIGHBOUR):
            rules = [*AGENT_RULES, MAY_CLAIM]
            bed.apply(
                an_object("v1", "ServiceAccount", account, work), *a_grant("", account, rules, (work, account), work)
            )
        operator = OperatorProcess(cluster, folder, bed.namespace, (work,), fakes=True).start()
        stack.callback(operator.end)
        workspace = {"size": "64Mi", "ephemeral": True}
        cluster.api.create(template(work, resources=TINY, workspace=workspace, **fake_nodes.PLACEMENT))
        spec = {"templateRef": {"name": "python"}, "replicas": size.quota}
        cluster.api.create(an_object(API, "SandboxPool", "fast", work, spec=spec))
        filled(bed, size)
        yield bed


def filled(bed: FleetBed, size: Size) -> None:
    def warm() -> bool:
        found = bed.cluster.api.get("SandboxPool", "fast", bed.namespaces[0])
        return bool(found.get("status", {}).get("warm", 0) >= size.quota)

    bed.cluster.api.wait(f"a pool of {size.quota}", warm, 180)


@dataclass(frozen=True)
class Flood:
    """What was seen of one flood, and what the audit log says of it."""

    story: Story
    log: audit.Log
    verdict: checks.Verdict
    # Claims that were told a ticket.
    tickets: int

    def p99(self, phase: str) -> float:
        """Seconds that the neighbour waited in a phase."""
        return at(next(one for one in self.story.phases if one.name == phase).waits[NEIGHBOUR], 0.99)

    def beside(self, phase: str) -> list[int]:
        """Of each burst of the neighbour: how many claims of others were admitted before all of it was."""
        return [checks.beside(self.log.events, claims, since) for since, claims in self.story.bursts[phase]]


async def play(folder: Path, size: Size, say: Callable[[str], None]) -> Flood:
    """The whole story, on a control plane of its own in this folder."""
    with control_plane(folder, size.nodes) as cluster:
        (folder / "fleet").mkdir()
        with fleet(cluster, folder / "fleet", size) as bed:
            async with clients(bed, size.claims + 10 * size.burst) as made:
                story = Story(bed, made, size, say)
                await story.of_two_queues()
                await story.of_one_queue()
        log = audit.read(audit_log(cluster))
    return Flood(story, log, checks.Replay().play(log.events), made.tickets)


def at(samples: list[float], share: float) -> float:
    """A quantile."""
    return statistics.quantiles(samples, n=100, method="inclusive")[round(share * 100) - 1]


@dataclass
class Phase:
    """What the claims of one phase waited; `load` is the machine's at its end."""

    name: str
    waits: dict[str, list[float]]
    seconds: float
    load: float


@dataclass
class Story:
    bed: FleetBed
    clients: Clients
    size: Size
    say: Callable[[str], None]
    phases: list[Phase] = field(default_factory=list)
    asked: dict[tuple[str, str], tuple[float, float]] = field(default_factory=dict)
    # Phase → when each burst of the neighbour was sent, in seconds since the epoch, and its claims.
    bursts: dict[str, list[tuple[float, set[tuple[str, str]]]]] = field(default_factory=dict)
    # The claims that never waited at a second leader.
    steady: set[tuple[str, str]] = field(default_factory=set)

    # Queues.

    async def put(self, name: str, sandboxes: int, **spec: Any) -> None:
        where = self.bed.namespaces[0]
        made = an_object(API, "SandboxQueue", name, where, spec={"nominalQuota": {"sandboxes": sandboxes}, **spec})
        await asyncio.to_thread(self.bed.cluster.api.create, made)

    async def edit(self, name: str, **spec: Any) -> None:
        path = f"apis/{API}/namespaces/{self.bed.namespaces[0]}/sandboxqueues/{name}"
        self.say(f"queue {name} is edited: {spec}")
        merge = "application/merge-patch+json"
        await asyncio.to_thread(self.bed.cluster.api.call, "PATCH", path, {"spec": spec}, merge)

    async def drop(self, *queues: str) -> None:
        for name in queues:
            await asyncio.to_thread(self.bed.cluster.api.delete, "SandboxQueue", name, self.bed.namespaces[0])

    # Phases.

    async def of_two_queues(self) -> None:
        """The neighbour alone, beside the flood, and through changes."""
        size = self.size
        await self.put(FLOODERS, size.flooders, cohort="all")
        # It lends all of its quota and borrows none: what it has alone is what it has beside the flood.
        await self.put(NEIGHBOURS, size.neighbours, cohort="all", borrowingLimit={"sandboxes": 0})
        neighbour = self.clients.team(NEIGHBOUR, NEIGHBOURS, size.session)
        flooder = self.clients.team(FLOODER, FLOODERS, size.session)
        await self._bursts(ALONE, neighbour, size.bursts)
        await self._flooded(FLOODED, flooder, neighbour)
        if flooder.waiting < size.claims // 3:
            await self._heard(flooder, size.claims)
        await self._changes(flooder, neighbour)
        await self._end(flooder, neighbour)
        await self.drop(FLOODERS, NEIGHBOURS)

    async def of_one_queue(self) -> None:
        """Both teams in one queue and under one name are served in the order of their arrival."""
        size = self.size
        await self.put(SHARED, size.quota)
        flooder = self.clients.team(FLOODER, SHARED, size.session)
        neighbour = self.clients.team(FLOODER, SHARED, size.session)
        await self._heard(flooder, size.claims)
        began, claims = time.monotonic(), self._burst(IN_ONE_LINE, neighbour)
        while any(not one.bound for one in claims) and time.monotonic() - began < LINE_SECONDS:
            self._progress(IN_ONE_LINE, flooder, neighbour)
            await asyncio.sleep(0.05)
        self._phase(
            "first come, first served",
            began,
            {NEIGHBOUR: claims, FLOODER: [one for one in flooder.claims if one.bound]},
        )
        await self._end(flooder, neighbour)

    async def _flooded(self, name: str, flooder: Team, neighbour: Team) -> None:
        await self._heard(flooder, self.size.claims)
        await self._bursts(name, neighbour, self.size.bursts, flooder)

    async def _heard(self, team: Team, many: int) -> None:
        """So many claims more wait."""
        claims = team.ask(many)
        while missing := sum(1 for one in claims if not one.had):
            self._progress(f"flood: {missing} of {many} claims are still to be heard", team)
            await asyncio.sleep(0.2)

    async def _bursts(self, name: str, team: Team, many: int, *others: Team) -> None:
        """The team asks for three times its quota at once, waits until it was served, and rests for a session."""
        began, asked = time.monotonic(), list[Claim]()
        before = {one.account: len(one.claims) for one in others}
        for number in range(many):
            claims = self._burst(name, team)
            asked += claims
            await self._until_bound(claims, f"{name}: burst {number + 1} of {many}", team, *others)
            await asyncio.sleep(2 * self.size.session)
        waits = {team.account: asked}
        for one in others:
            waits[one.account] = [claim for claim in one.claims[: before[one.account]] if claim.bound]
        self._phase(name, began, waits)

    def _burst(self, phase: str, team: Team) -> list[Claim]:
        since, claims = time.time(), team.ask(self.size.burst)
        self.bursts.setdefault(phase, []).append((since, {self._key(team, one) for one in claims}))
        return claims

    def _key(self, team: Team, claim: Claim) -> tuple[str, str]:
        """Holder and request id, as the fleet knows the claim."""
        return f"system:serviceaccount:{self.bed.namespaces[0]}:{team.account}", claim.number

    async def _until_bound(self, claims: list[Claim], what: str, *teams: Team) -> None:
        deadline = time.monotonic() + 1800
        while missing := sum(1 for one in claims if not one.bound):
            if time.monotonic() > deadline:
                raise ClusterError(f"{what}: {missing} of {len(claims)} claims are still not served")
            self._progress(f"{what}, {missing} claims of it wait", *teams)
            await asyncio.sleep(0.05)

    async def _changes(self, flooder: Team, neighbour: Team) -> None:
        """Everything that can go wrong, while both teams wait; in between bursts of the neighbour."""
        size, began = self.size, time.monotonic()
        first = len(neighbour.claims)
        for change in (
            self._kill,
            lambda: self.edit(FLOODERS, nominalQuota={"sandboxes": size.flooders // 2}),
            self._replace,
            lambda: self.edit(FLOODERS, nominalQuota={"sandboxes": size.flooders}),
            lambda: self.edit(NEIGHBOURS, nominalQuota={"sandboxes": size.neighbours // 2}),
            lambda: self.edit(NEIGHBOURS, nominalQuota={"sandboxes": size.neighbours}),
            self._delete_cohort,
        ):
            claims = neighbour.ask(size.burst)
            await asyncio.sleep(size.session)
            await change()
            await self._until_bound(claims, "changes", flooder, neighbour)
        self._phase(CHANGED, began, {NEIGHBOUR: neighbour.claims[first:]})

    async def _kill(self) -> None:
        self.say("the fleet is killed")
        await asyncio.to_thread(self._process.kill)
        await asyncio.to_thread(self._process.start)

    async def _replace(self) -> None:
        """As a rolling update does."""
        self.say("the leader is asked to go, and another one comes")
        await asyncio.to_thread(self._process.end)
        await asyncio.to_thread(self._process.start)

    async def _delete_cohort(self) -> None:
        for name in (FLOODERS, NEIGHBOURS):
            await self.edit(name, cohort=None, borrowingLimit=None)

    async def _end(self, *teams: Team) -> None:
        """The rest is served, or leaves."""
        began = time.monotonic()
        while any(one.tasks for one in teams) and time.monotonic() - began < FLOOD_SECONDS:
            self._progress("the rest is served", *teams)
            await asyncio.sleep(0.2)
        for team in teams:
            await team.leave()
            for one in [one for one in team.claims if one.bound]:
                key = self._key(team, one)
                self.asked[key] = one.sent, one.had
                if not one.tries:
                    self.steady.add(key)

    # What is seen.

    @property
    def _process(self) -> Any:
        assert self.bed.fleet is not None
        return self.bed.fleet

    def _phase(self, name: str, began: float, claims: dict[str, list[Claim]]) -> None:
        now = time.monotonic()
        # Of a claim that waits, the wait until now.
        waits = {account: [one.wait or now - one.sent for one in found] for account, found in claims.items()}
        self.phases.append(Phase(name, waits, time.monotonic() - began, os.getloadavg()[0]))

    _told = 0.0

    def _progress(self, what: str, *teams: Team) -> None:
        self.clients.check()
        if time.monotonic() - self._told < PROGRESS_SECONDS:
            return
        self._told = time.monotonic()
        counts = (f"{one.account} {len(one.claims) - one.waiting} of {len(one.claims)} served" for one in teams)
        self.say(f"{what}; {', '.join(counts)}")

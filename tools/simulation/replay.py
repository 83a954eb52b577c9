"""Plays the sessions of a load to the real scheduler: its actions take simulated time and come back as events."""

import heapq
import itertools
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from sandfleet_operator.api.errors import FleetError, Problem
from sandfleet_operator.api.values import Amount, Claim, Exit, RequestKey, Sandbox, Template
from sandfleet_operator.plan.scheduler.actions import Action, Answer, Bind, Start, Stop
from sandfleet_operator.plan.scheduler.limits import FleetLimits
from sandfleet_operator.plan.scheduler.queues.fair_queue import Policy
from sandfleet_operator.plan.scheduler.refill import Pool
from sandfleet_operator.plan.scheduler.scheduler import Scheduler

from simulation.load import Load, Session, Team

POOL = "python"
# Seconds from a binding to its answer.
BIND_SECONDS = 0.01
# How often deadlines are looked at, in seconds.
TICK = 10.0
CLOSED = Exit(code=0)


@dataclass(slots=True)
class TeamRecord:
    """What a team has seen. Each list is in order of time; times are seconds from the beginning."""

    weight: float
    waits: list[float] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    # How long those have waited that wait at the end.
    unserved: list[float] = field(default_factory=list)
    # When it got or gave back a sandbox, and how many it had then.
    held: list[tuple[float, int]] = field(default_factory=lambda: [(0.0, 0)])
    # The same of its claims that waited.
    waiting: list[tuple[float, int]] = field(default_factory=lambda: [(0.0, 0)])


@dataclass(frozen=True, slots=True)
class Played:
    """Of one load under one policy."""

    seconds: float
    teams: dict[str, TeamRecord]
    # Calls of the scheduler.
    events: int
    # The most sandboxes that served claims at one time.
    peak: int


def replay(load: Load, sessions: Sequence[Session], policy: Policy) -> Played:
    """Ends when the load's time is over."""
    return _Replay(load, policy).run(sessions)


class _Replay:
    def __init__(self, load: Load, policy: Policy) -> None:
        size = load.fleet
        self._load = load
        self._teams: dict[str, Team] = {team.name: team for team in load.teams}
        self._chance = random.Random(load.seed)  # noqa: S311 - the same load twice is the same
        self._numbers = itertools.count(1)
        # Time, number and what happens then: the number keeps the order of what happens at the same time.
        self._ahead: list[tuple[float, int, Callable[[float], list[Action]]]] = []
        self._asked: dict[RequestKey, Session] = {}
        self._records = {team.name: TeamRecord(_weight(load, team)) for team in load.teams}
        self._events = 0
        self._peak = self._serving = 0
        pool = Pool(name=POOL, template=Template(amount=Amount(sandboxes=1)), target_warm=size.warm)
        limits = FleetLimits(
            max_sandboxes=size.sandboxes,
            max_starting=size.starting,
            max_waiting=1 << 30,
            start_timeout=max(60.0, size.start_seconds * 10),
        )
        self._scheduler = Scheduler([pool], limits, new_id=lambda _: f"s{next(self._numbers)}", policy=policy)

    def run(self, sessions: Sequence[Session]) -> Played:
        for name, spec in self._load.queues.items():
            self._do(self._scheduler.queues.put(name, spec, 0.0), 0.0)
        self._at(0.0, self._tick)
        coming = iter(sessions)
        following = next(coming, None)
        # The pool fills before the first claim.
        begin = self._load.fleet.start_seconds * 2 * math.ceil(self._load.fleet.warm / self._load.fleet.starting)
        while True:
            arrival = math.inf if following is None else following.arrival + begin
            when = min(arrival, self._ahead[0][0])
            if when >= self._load.seconds + begin:
                break
            self._events += 1
            if following is not None and when == arrival:
                self._do(self._ask(following, when), when)
                following = next(coming, None)
            else:
                self._do(heapq.heappop(self._ahead)[2](when), when)
        end = self._load.seconds + begin
        for session in self._asked.values():
            self._records[session.team].unserved.append(end - session.arrival)
        return Played(end, self._records, self._events, self._peak)

    def _at(self, when: float, what: Callable[[float], list[Action]]) -> None:
        heapq.heappush(self._ahead, (when, next(self._numbers), what))

    def _tick(self, now: float) -> list[Action]:
        self._at(now + TICK, self._tick)
        return self._scheduler.tick(now)

    def _ask(self, session: Session, now: float) -> list[Action]:
        team = self._teams[session.team]
        key = RequestKey(session.holder, f"r{next(self._numbers)}", POOL)
        claim = Claim(
            key=key, pool=POOL, queue=team.queue, priority=team.priority, max_wait=team.max_wait, lease=math.inf,
            object_uid="simulated",
        )  # fmt: skip
        record = self._records[session.team]
        self._asked[key] = Session(now, session.team, session.holder, session.lasts)
        _count(record.waiting, now, 1)
        try:
            return self._scheduler.ask(claim, now)
        except FleetError as error:
            return [Answer(key, error.problem)]

    def _do(self, actions: list[Action], now: float) -> None:
        scheduler = self._scheduler
        for action in actions:
            match action:
                case Start(sandbox):
                    takes = self._load.fleet.start_seconds * self._chance.uniform(0.5, 2.0)
                    self._at(now + takes, lambda when, uid=sandbox.sandbox_uid: scheduler.ready(uid, when))  # type: ignore[misc]
                case Bind(sandbox):
                    self._at(now + BIND_SECONDS, lambda when, uid=sandbox.sandbox_uid: scheduler.bound(uid, when))  # type: ignore[misc]
                case Stop(sandbox):
                    self._at(
                        now + self._load.fleet.stop_seconds,
                        lambda when, uid=sandbox.sandbox_uid: scheduler.exited(uid, CLOSED, when),  # type: ignore[misc]
                    )
                case Answer(key, result):
                    self._answered(key, result, now)

    def _answered(self, key: RequestKey, result: Sandbox | Problem, now: float) -> None:
        session = self._asked.pop(key)
        record = self._records[session.team]
        _count(record.waiting, now, -1)
        if isinstance(result, Problem):
            record.refused.append(result.reason)
            return
        record.waits.append(now - session.arrival)
        self._hold(record, now, 1)
        self._at(now + session.lasts, lambda when: self._release(record, result.sandbox_id, when))

    def _release(self, record: TeamRecord, sandbox_id: str, now: float) -> list[Action]:
        self._hold(record, now, -1)
        return self._scheduler.release(sandbox_id, now)

    def _hold(self, record: TeamRecord, now: float, more: int) -> None:
        _count(record.held, now, more)
        self._serving += more
        self._peak = max(self._peak, self._serving)


def _count(series: list[tuple[float, int]], now: float, more: int) -> None:
    series.append((now, series[-1][1] + more))


def _weight(load: Load, team: Team) -> float:
    return load.queues[team.queue].weight if team.queue else 1.0

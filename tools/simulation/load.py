"""Loads: which teams ask for how many sandboxes, when, and for how long. Read from YAML, drawn with a seed.

    fleet: {sandboxes: 100, warm: 20, starting: 10, startSeconds: 4}
    hours: 8
    queues:
      search: {cohort: all, nominalQuota: {sandboxes: 40}}
    teams:
      - name: search
        queue: search
        holders: 5
        session: {steps: 12, runSeconds: 2, thinkSeconds: 18}
        arrivals: [{perHour: 300, shape: office}, {at: 3600, claims: 200, withinSeconds: 60}]

Runs and thinking times are exponential with these means, starts are between half and twice `startSeconds`.
"""

import math
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Annotated

from sandfleet_operator.api.errors import FleetError, invalid
from sandfleet_operator.api.kinds.queue import QueueSpec, queue_spec
from sandfleet_operator.api.table import as_type, at, decode, number

HOUR = 3600.0
# The largest load that is drawn: its sessions are kept in memory.
MOST_CLAIMS = 2_000_000
# Of a working day, from its first hour on: how busy each hour is, beside the busiest.
OFFICE = (0.3, 0.7, 1.0, 0.9, 0.5, 0.9, 1.0, 0.8, 0.5, 0.2)


class Shape(Enum):
    """How the rate of arrivals changes with time."""

    STEADY = "steady"
    # A working day that begins with the load, and the night after it.
    OFFICE = "office"


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetSize:
    """The one pool of the simulated fleet."""

    sandboxes: Annotated[int, at("sandboxes", required=True)]
    warm: Annotated[int, at("warm")] = 0
    starting: Annotated[int, at("starting")] = 10
    start_seconds: Annotated[float, at("startSeconds", number)] = 4.0
    # From the end of a session until its place is free.
    stop_seconds: Annotated[float, at("stopSeconds", number)] = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionShape:
    """A session runs code and waits for its model in turn. Durations are means, in seconds."""

    steps: Annotated[int, at("steps")] = 10
    run: Annotated[float, at("runSeconds", number)] = 2.0
    think: Annotated[float, at("thinkSeconds", number)] = 8.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrivals:
    """Either a rate with a shape, or one burst of claims."""

    per_hour: Annotated[float, at("perHour", number)] = 0.0
    shape: Annotated[Shape, at("shape")] = Shape.STEADY
    # Of the burst, in seconds from the beginning.
    begin: Annotated[float, at("at", number)] = 0.0
    claims: Annotated[int, at("claims")] = 0
    within: Annotated[float, at("withinSeconds", number)] = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Team:
    name: Annotated[str, at("name", required=True)]
    # Empty: without a queue, and so without a quota.
    queue: Annotated[str, at("queue")] = ""
    priority: Annotated[str, at("priorityClass")] = ""
    # Users of the team; claims go round among them.
    holders: Annotated[int, at("holders")] = 1
    max_wait: Annotated[float, at("maxWaitSeconds", number)] = HOUR
    session: Annotated[SessionShape, at("session")] = field(default_factory=SessionShape)
    arrivals: Annotated[tuple[Arrivals, ...], at("arrivals")] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    fleet: Annotated[FleetSize, at("fleet", required=True)]
    hours: Annotated[float, at("hours", number)] = 1.0
    seed: Annotated[int, at("seed")] = 1
    teams: Annotated[tuple[Team, ...], at("teams", required=True)] = ()
    queues: Mapping[str, QueueSpec] = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        return self.hours * HOUR


@dataclass(frozen=True, slots=True, order=True)
class Session:
    """One claim: when it arrives, and how long it keeps its sandbox. Seconds."""

    arrival: float
    team: str
    holder: str
    lasts: float


def read_load(value: object) -> Load:
    """Raises FleetError: "cannot read PATH: why"."""
    given = as_type(value, dict, "load")
    load = decode(Load, given, "")
    specs = {name: queue_spec(spec, f"queues.{name}") for name, spec in (given.get("queues") or {}).items()}
    load = Load(fleet=load.fleet, hours=load.hours, seed=load.seed, teams=load.teams, queues=specs)
    _check(load)
    return load


def _check(load: Load) -> None:
    missing = [team.queue for team in load.teams if team.queue and team.queue not in load.queues]
    if missing:
        raise _unusable(f"there is no queue {missing[0]!r}")
    if len({team.name for team in load.teams}) < len(load.teams):
        raise _unusable("two teams have one name")
    if load.fleet.sandboxes < 1 or load.fleet.starting < 1 or load.seconds <= 0:
        raise _unusable("it needs at least one sandbox, one start at a time and some time")
    expected = sum(one.per_hour * load.hours + one.claims for team in load.teams for one in team.arrivals)
    if not expected <= MOST_CLAIMS:
        raise _unusable(f"{expected:.0f} claims are more than {MOST_CLAIMS}")


def sessions(load: Load) -> list[Session]:
    """All sessions by arrival: of one seed always the same, and those of a team do not depend on other teams."""
    found: list[Session] = []
    for team in load.teams:
        chance = random.Random(f"{load.seed}/{team.name}")  # noqa: S311 - the same load twice is the same
        arrivals = sorted(when for one in team.arrivals for when in _arrivals(one, load.seconds, chance))
        for number_, when in enumerate(arrivals):
            holder = f"{team.name}-{number_ % max(1, team.holders)}"
            found.append(Session(when, team.name, holder, _lasts(team.session, chance)))
    return sorted(found)


def _arrivals(arrivals: Arrivals, seconds: float, chance: random.Random) -> Iterator[float]:
    for _ in range(arrivals.claims):
        when = arrivals.begin + chance.uniform(0.0, arrivals.within)
        if when < seconds:
            yield when
    if arrivals.per_hour <= 0:
        return
    # Thinning (Lewis and Shedler 1979): a Poisson process of the highest rate, of which each arrival is kept by chance.
    when = 0.0
    while (when := when + chance.expovariate(arrivals.per_hour / HOUR)) < seconds:
        if chance.random() < _busy(arrivals.shape, when):
            yield when


def _busy(shape: Shape, when: float) -> float:
    if shape is Shape.STEADY:
        return 1.0
    hour = math.floor(when / HOUR) % 24
    return OFFICE[hour] if hour < len(OFFICE) else 0.05


def _lasts(shape: SessionShape, chance: random.Random) -> float:
    """A sum of exponential times is a gamma time."""
    steps = max(1, shape.steps)
    run = chance.gammavariate(steps, shape.run) if shape.run > 0 else 0.0
    return run + (chance.gammavariate(steps, shape.think) if shape.think > 0 else 0.0)


def _unusable(why: str) -> FleetError:
    return invalid("InvalidLoad", f"cannot use the load: {why}", "load")

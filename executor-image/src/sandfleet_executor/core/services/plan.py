"""What happens next to all services together: who is started, who is stopped, what a new set changes."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from sandfleet_executor.core.services import machine
from sandfleet_executor.core.services.machine import ALIVE, RESTING, Action, Life, State
from sandfleet_executor.core.services.spec import MAX_SERVICES, ServiceSpec, check_set


class TakenError(ValueError):
    """The name is the template's."""


class TooManyError(ValueError):
    """There would be more services than there may be."""


@dataclass(frozen=True)
class Service:
    spec: ServiceSpec
    life: Life = field(default_factory=Life)
    from_template: bool = False
    # To be forgotten when it has stopped.
    removed: bool = False

    @property
    def name(self) -> str:
        return self.spec.name


Services = Mapping[str, Service]


class Step(Enum):
    BEGIN = "begin"
    HALT = "halt"
    FORGET = "forget"


@dataclass(frozen=True)
class Change:
    """What a new set of declarations does, by name."""

    services: dict[str, Service]
    # To be done to those that are restarted.
    actions: Mapping[str, Action] = field(default_factory=dict)
    started: tuple[str, ...] = ()
    restarted: tuple[str, ...] = ()
    stopped: tuple[str, ...] = ()
    unchanged: tuple[str, ...] = ()


def declare(services: Services, specs: Iterable[ServiceSpec], *, keep_others: bool, now: float) -> Change:
    """The services with this set as the session's.

    Raises BadRequest, UnknownServiceError, CycleError, TakenError and TooManyError; nothing has changed then.
    """
    given = list(specs)
    wanted = {spec.name: spec for spec in given}
    stay = [one.spec for one in services.values() if one.from_template or (keep_others and not one.removed)]
    if taken := [name for name in wanted if name in services and services[name].from_template]:
        raise TakenError(f"cannot declare {taken[0]}: a service of the template has that name")
    together = check_set([*(spec for spec in stay if spec.name not in wanted), *given])
    if len(together) > MAX_SERVICES:
        raise TooManyError(f"cannot declare {len(together)} services: the most is {MAX_SERVICES}")
    actions: dict[str, Action] = {}
    found: dict[str, Service] = {}
    for name, spec in together.items():
        old = services.get(name)
        if old is None:
            found[name] = Service(spec)
        elif name in wanted:
            found[name], actions[name] = _declared_again(old, spec, now)
        else:
            found[name] = old
    gone = {name: _dropped(one) for name, one in services.items() if name not in together}
    before = {name for name, one in services.items() if not one.removed}
    changed = tuple(name for name in wanted if name in before and services[name].spec != wanted[name])
    return Change(
        services=found | gone,
        actions=actions,
        started=tuple(name for name in wanted if name not in before),
        restarted=changed,
        stopped=tuple(name for name in gone if name in before),
        unchanged=tuple(name for name in wanted if name in before and name not in changed),
    )


def _declared_again(old: Service, spec: ServiceSpec, now: float) -> tuple[Service, Action]:
    """One that is there, perhaps on its way out."""
    if old.spec != spec:
        life, action = machine.again(old.life, old.spec, now)
        return replace(old, spec=spec, life=life, removed=False), action
    life = machine.go(old.life)[0] if old.removed else old.life
    return replace(old, life=life, removed=False), Action.NONE


def _dropped(old: Service) -> Service:
    return replace(old, life=machine.rest(old.life)[0], removed=True)


def steps(services: Services) -> list[tuple[str, Step]]:
    """What can be done now, in order; asked again after it is done."""
    found: list[tuple[str, Step]] = []
    for name, one in services.items():
        if one.removed and one.life.state in RESTING:
            found.append((name, Step.FORGET))
        elif one.life.wanted and one.life.state is State.WAITING and not missing(services, one):
            found.append((name, Step.BEGIN))
        elif may_halt(services, one):
            found.append((name, Step.HALT))
    return found


def missing(services: Services, one: Service) -> list[str]:
    """What it comes after and that is not there."""
    return [name for name in one.spec.after if name not in services or not is_there(services[name].life)]


def is_there(life: Life) -> bool:
    """Whether others may start behind it. What has done its work is there, too."""
    return life.state in {State.READY, State.COMPLETED}


def may_halt(services: Services, one: Service) -> bool:
    """Whether it is to stop, and nothing that comes after it still has to stop before."""
    if one.life.wanted or one.life.state not in ALIVE or one.life.state is State.STOPPING:
        return False
    behind = (other for other in services.values() if one.name in other.spec.after)
    return not any(not other.life.wanted and other.life.state in ALIVE for other in behind)


def with_needed(services: Services, names: Iterable[str]) -> list[str]:
    """The names and everything that they come after."""
    found: dict[str, None] = {}
    todo = list(names)
    while todo:
        if (name := todo.pop()) not in found and name in services:
            found[name] = None
            todo += services[name].spec.after
    return list(found)


def why_not(services: Services, name: str) -> str:
    """What a service waits for, that waits; empty for any other."""
    one = services[name]
    if one.life.state is not State.WAITING:
        return ""
    said = [f"{other} ({services[other].life.state.value})" for other in missing(services, one) if other in services]
    return f"it waits for {', '.join(said)}" if said else ""


def hopeless(services: Services) -> set[str]:
    """Those that will not become ready unless somebody does something."""
    found = {name for name, one in services.items() if one.life.state in RESTING or not one.life.wanted}
    while True:
        more = {
            name
            for name, one in services.items()
            if name not in found
            and one.life.state is State.WAITING
            and any(other in found for other in missing(services, one))
        }
        if not more:
            return found
        found |= more


def next_due(services: Services) -> float | None:
    """When something has to be looked at again."""
    return min((one.life.due for one in services.values() if one.life.due is not None), default=None)

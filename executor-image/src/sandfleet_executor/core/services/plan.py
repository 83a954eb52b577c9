"""Decides for all services together: which start, which stop, and what a new set of declarations changes."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from sandfleet_executor.core.errors import RpcError
from sandfleet_executor.core.services import machine
from sandfleet_executor.core.services.machine import ALIVE, RESTING, Action, ServiceRuntime, State
from sandfleet_executor.core.services.spec import MAX_SERVICES, ServiceSpec, check_set


class TakenError(RpcError, ValueError, code="ALREADY_EXISTS", reason="TemplateService"):
    """The name belongs to a service of the template."""


class TooManyError(RpcError, ValueError, code="RESOURCE_EXHAUSTED", reason="TooManyServices"):
    """There would be more services than there may be."""


@dataclass(frozen=True)
class Service:
    spec: ServiceSpec
    runtime: ServiceRuntime = field(default_factory=ServiceRuntime)
    from_template: bool = False
    # Forgotten when it has stopped.
    removed: bool = False

    @property
    def name(self) -> str:
        return self.spec.name


Services = Mapping[str, Service]


class Step(Enum):
    START = "start"
    STOP = "stop"
    FORGET = "forget"


@dataclass(frozen=True)
class Change:
    """What a new set of declarations does, by name."""

    services: dict[str, Service]
    # For the services that are restarted.
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


def of_template(specs: Iterable[ServiceSpec]) -> dict[str, Service]:
    """The services that the template declares."""
    return {spec.name: Service(spec, from_template=True) for spec in specs}


def resumed(
    template: Iterable[ServiceSpec], specs: Iterable[ServiceSpec], stopped: Iterable[str], now: float
) -> dict[str, Service]:
    """The services of a suspended session: its own beside the template's; `stopped` are not to run.

    Raises BadRequest, UnknownServiceError, CycleError, TakenError and TooManyError.
    """
    found = dict(declare(of_template(template), specs, keep_others=True, now=now).services)
    for name in stopped:
        if name in found:
            found[name] = replace(found[name], runtime=machine.want_stopped(found[name].runtime)[0])
    return found


def _declared_again(old: Service, spec: ServiceSpec, now: float) -> tuple[Service, Action]:
    """Declares a known service again, which may be stopping."""
    if old.spec != spec:
        runtime, action = machine.restart(old.runtime, old.spec, now)
        return replace(old, spec=spec, runtime=runtime, removed=False), action
    runtime = machine.want_running(old.runtime)[0] if old.removed else old.runtime
    return replace(old, runtime=runtime, removed=False), Action.NONE


def _dropped(old: Service) -> Service:
    return replace(old, runtime=machine.want_stopped(old.runtime)[0], removed=True)


def steps(services: Services) -> list[tuple[str, Step]]:
    """The steps that are possible now, in order. Ask again after they are done."""
    found: list[tuple[str, Step]] = []
    for name, one in services.items():
        if one.removed and one.runtime.state in RESTING:
            found.append((name, Step.FORGET))
        elif one.runtime.wanted and one.runtime.state is State.WAITING and not missing(services, one):
            found.append((name, Step.START))
        elif may_stop(services, one):
            found.append((name, Step.STOP))
    return found


def missing(services: Services, one: Service) -> list[str]:
    """The services that it comes after and that are not there yet."""
    return [name for name in one.spec.after if name not in services or not is_there(services[name].runtime)]


def is_there(runtime: ServiceRuntime) -> bool:
    """Whether services behind it may start: it is ready, or it has completed its work."""
    return runtime.state in {State.READY, State.COMPLETED}


def may_stop(services: Services, one: Service) -> bool:
    """Whether it is unwanted, and every unwanted service that comes after it has stopped."""
    if one.runtime.wanted or one.runtime.state not in ALIVE or one.runtime.state is State.STOPPING:
        return False
    behind = (other for other in services.values() if one.name in other.spec.after)
    return not any(not other.runtime.wanted and other.runtime.state in ALIVE for other in behind)


def with_needed(services: Services, names: Iterable[str]) -> list[str]:
    """The names, and all services that they come after, directly or not."""
    found: dict[str, None] = {}
    todo = list(names)
    while todo:
        if (name := todo.pop()) not in found and name in services:
            found[name] = None
            todo += services[name].spec.after
    return list(found)


def why_not(services: Services, name: str) -> str:
    """What a waiting service waits for; empty for any other."""
    one = services[name]
    if one.runtime.state is not State.WAITING:
        return ""
    said = [f"{other} ({services[other].runtime.state.value})" for other in missing(services, one) if other in services]
    return f"it waits for {', '.join(said)}" if said else ""


def explained(services: Services, name: str, *, held: bool) -> Service:
    """The service; one that waits says for what. `held`: services wait for the packages of the template."""
    one = services[name]
    waits = why_not(services, name)
    if held and one.runtime.state is State.WAITING and one.runtime.wanted:
        waits = waits or "the packages of the template are being installed"
    return replace(one, runtime=replace(one.runtime, reason="WaitsFor", message=waits)) if waits else one


def hopeless(services: Services) -> set[str]:
    """The services that will not become ready unless a caller acts."""
    found = {name for name, one in services.items() if one.runtime.state in RESTING or not one.runtime.wanted}
    while True:
        more = {
            name
            for name, one in services.items()
            if name not in found
            and one.runtime.state is State.WAITING
            and any(other in found for other in missing(services, one))
        }
        if not more:
            return found
        found |= more


def next_due(services: Services) -> float | None:
    """The earliest `due` of all services."""
    return min((one.runtime.due for one in services.values() if one.runtime.due is not None), default=None)

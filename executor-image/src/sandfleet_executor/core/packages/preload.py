"""Modules that are loaded ahead of all contexts: which may be named, and what became of each."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from sandfleet_executor.core.errors import BadRequest

MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", re.ASCII)
MAX_MODULES = 32
MAX_NAME = 100
MAX_PROBLEM = 300
# For all modules together, from the start of the executor on. The module that is being imported then is left out, and
# the others have some seconds more. Both are well below the minute that a fleet gives a sandbox to start.
SECONDS, MORE_SECONDS = 30.0, 10.0
NOT_PRELOADED = "ModulesNotPreloaded"


class State(StrEnum):
    WAITING = "waiting"
    LOADING = "loading"
    LOADED = "loaded"
    FAILED = "failed"


@dataclass(frozen=True)
class Module:
    name: str
    state: State = State.WAITING
    # Why it was not loaded; empty otherwise.
    problem: str = ""


def check(names: Any) -> tuple[str, ...]:
    """Raises BadRequest."""
    if not isinstance(names, list | tuple) or len(names) > MAX_MODULES:
        raise BadRequest(f"cannot preload: modules have to be a list of at most {MAX_MODULES}")
    for name in names:
        if not isinstance(name, str) or len(name) > MAX_NAME or not MODULE.fullmatch(name):
            raise BadRequest(f"cannot preload {name!r:.80}: it is no name of a module")
    if len(set(names)) != len(names):
        raise BadRequest("cannot preload: a module is named twice")
    return tuple(names)


@dataclass(frozen=True)
class Preloads:
    """All of them, in the order in which they are loaded."""

    modules: tuple[Module, ...] = ()

    @classmethod
    def of(cls, names: Sequence[str]) -> "Preloads":
        return cls(tuple(map(Module, names)))

    @property
    def settled(self) -> bool:
        return all(each.state in (State.LOADED, State.FAILED) for each in self.modules)

    @property
    def wanted(self) -> list[str]:
        """What a new namespace loads: what has failed once is left out."""
        return [each.name for each in self.modules if each.state is not State.FAILED]

    @property
    def failed(self) -> list[Module]:
        return [each for each in self.modules if each.state is State.FAILED]

    def heard(self, said: Mapping[str, Any]) -> "Preloads":
        """After a word of the spawner's. What cannot be read changes nothing."""
        name, problem = said.get("module"), said.get("problem")
        match said.get("event"):
            case "preloading":
                return self._with([name], State.LOADING)
            case "preloaded" if isinstance(problem, str):
                shown = problem[:MAX_PROBLEM].encode("utf-8", "replace").decode()
                return self._with([name], State.FAILED if problem else State.LOADED, shown)
        return self

    def ended(self, why: str = "importing it ended the process that contexts are forked from") -> "Preloads":
        """After the end of the namespace: a module that was being loaded has ended it, the others are loaded again."""
        at = [each.name for each in self.modules if each.state is State.LOADING]
        again = [each.name for each in self.modules if each.state is State.LOADED]
        return self._with(at, State.FAILED, why)._with(again, State.WAITING)  # noqa: SLF001 of its own kind

    def given_up(self, why: str) -> "Preloads":
        """No further attempt is made."""
        left = [each.name for each in self.modules if each.state is not State.FAILED]
        return self._with(left, State.FAILED, why)

    def _with(self, names: Iterable[object], state: State, problem: str = "") -> "Preloads":
        chosen = set(names)
        changed = (
            replace(each, state=state, problem=problem) if each.name in chosen else each for each in self.modules
        )
        return Preloads(tuple(changed))


def told(failed: Sequence[Module]) -> str:
    """One sentence for people and models."""
    said = "; ".join(f"{each.name} ({each.problem})" for each in failed[:3])
    more = f" and {len(failed) - 3} more" if len(failed) > 3 else ""
    return f"cannot preload {said}{more}"

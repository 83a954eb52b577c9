"""The namespace is made again without the modules that have ended it."""

import asyncio

import pytest
from sandfleet_executor.core.packages import preload as rules
from sandfleet_executor.effects.session.preload import MAX_ENDS, Preload
from sandfleet_operator.plan.scheduler.limits import FleetLimits


class Namespaces:
    """Namespaces whose spawners do with each module what `fate` says: a problem, or "ends", or "hangs"."""

    def __init__(self, preload: Preload, fate: dict[str, str]) -> None:
        self.preload, self.fate = preload, fate
        self.made: list[list[str]] = []
        self.living = False

    async def begin(self) -> None:
        if not self.living:
            self.living = True
            self.made.append(self.preload.status.wanted)
            asyncio.get_running_loop().call_soon(self.load, list(self.made[-1]))

    async def end(self) -> None:
        self.living = False
        self.preload.heard({"event": "ended"})

    def load(self, names: list[str]) -> None:
        for name in names:
            self.preload.heard({"event": "preloading", "module": name})
            if self.fate.get(name) == "hangs":
                return
            if self.fate.get(name) == "ends":
                self.living = False
                self.preload.heard({"event": "ended"})
                return
            self.preload.heard({"event": "preloaded", "module": name, "problem": self.fate.get(name, "")})


async def settled(names, fate, **limits):
    preload = Preload(names)
    namespaces = Namespaces(preload, fate)
    await asyncio.wait_for(preload.settle(namespaces.begin, namespaces.end), 60)
    assert namespaces.living
    return preload, namespaces.made


async def test_without_modules_one_namespace_is_made():
    preload, made = await settled([], {})
    assert (made, preload.notices()) == ([[]], ())


async def test_a_module_that_raises_costs_no_namespace():
    preload, made = await settled(["a", "b", "c"], {"b": "ImportError: why"})
    assert made == [["a", "b", "c"]]
    [notice] = preload.notices()
    assert notice.message == "cannot preload b (ImportError: why)"


async def test_a_module_that_ends_the_namespace_is_left_out_of_the_next():
    preload, made = await settled(["a", "b", "c"], {"b": "ends"})
    assert made == [["a", "b", "c"], ["a", "c"]]
    assert [each.name for each in preload.status.failed] == ["b"]


async def test_after_too_many_ends_nothing_is_loaded_ahead():
    names = [f"m{number}" for number in range(10)]
    preload, made = await settled(names, dict.fromkeys(names, "ends"))
    assert len(made) == MAX_ENDS + 2
    assert made[-1] == []
    assert len(preload.status.failed) == 10


async def test_what_is_not_done_in_time_is_given_up(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(rules, "SECONDS", 0.2)
    preload, made = await settled(["a", "b", "c"], {"b": "hangs"})
    assert made == [["a", "b", "c"], ["a", "c"]]
    assert [(each.name, each.problem) for each in preload.status.failed] == [("b", "it was not done within 0.2 s")]


async def test_after_a_second_module_that_hangs_nothing_is_loaded_ahead(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(rules, "SECONDS", 0.2)
    monkeypatch.setattr(rules, "MORE_SECONDS", 0.1)
    preload, made = await settled(["a", "b", "c"], {"b": "hangs", "c": "hangs"})
    assert made == [["a", "b", "c"], ["a", "c"], []]
    assert len(preload.status.failed) == 3


def test_a_module_that_hangs_leaves_time_for_the_start_of_the_sandbox():
    # One machine's fleet gives up a sandbox that is not ready then.
    assert FleetLimits().start_timeout - 15 >= rules.SECONDS + rules.MORE_SECONDS

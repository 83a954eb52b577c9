"""What `make cluster` says while it works."""

from __future__ import annotations

import io
import re
import time

import pytest
from cluster.harness import binaries, progress, up

PLANNED = {"building etcd": 31.0, "building kubernetes": 330.0, "waiting for the node": 3.0}


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0, "a few seconds"), (30, "half a minute"), (61, "a minute"), (330, "6 minutes"), (1200, "20 minutes")],
)
def test_a_duration_is_said_as_people_say_it(seconds: float, said: str) -> None:
    assert progress.duration(seconds) == said


def test_each_step_has_its_number_and_its_usual_time() -> None:
    out = io.StringIO()
    with progress.steps("cluster", PLANNED, out) as say:
        for message in ("building etcd", "repairing a link", "building kubernetes"):
            say(message)
    assert [re.sub(r" +[\d.]+ s  ", " ", line) for line in out.getvalue().splitlines()] == [
        "cluster: 3 steps, about 6 minutes in all",
        "cluster: step 1 of 3, about half a minute: building etcd",
        "cluster: repairing a link",
        "cluster: step 2 of 3, about 6 minutes: building kubernetes",
    ]


def test_on_a_terminal_the_line_of_a_step_counts_its_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "TICK_SECONDS", 0.01)
    monkeypatch.setenv("COLUMNS", "100")
    out = Terminal()
    with progress.steps("cluster", PLANNED, out) as say:
        say("building etcd")
        deadline = time.monotonic() + 10
        while out.getvalue().count("\r") < 3 and time.monotonic() < deadline:
            time.sleep(0.01)
        say("building kubernetes")
    heading, first, second = out.getvalue().splitlines()[0], *re.findall(r"\n\r?([^\n]*)", out.getvalue())[:2]
    assert heading.endswith("3 steps, about 6 minutes in all")
    shown = first.split("\r")
    assert len(shown) >= 3
    assert set(shown) <= {f"cluster: 0:{n:02}  step 1 of 3, about half a minute: building etcd" for n in range(11)}
    assert second.startswith("cluster: 0:00  step 2 of 3")
    assert out.getvalue().endswith("\n")


def test_what_is_built_and_started_is_planned_in_words_that_are_said(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    """Programs that the cache has are no steps; only a message that is planned word for word gets its number."""
    monkeypatch.setattr(binaries, "toolchain", lambda _: "go1.26.0")
    monkeypatch.setattr(binaries, "_build", lambda _, target: (target.mkdir(), (target / binaries.SUMS).touch()))
    (tmp_path / "bin").mkdir()
    said: list[str] = []
    planned = binaries.planned(tmp_path, ["etcd", "helm"])
    binaries.provide(tmp_path, said.append, ["etcd", "helm"])
    assert said == list(planned) == ["building etcd from source", "building helm from source"]
    assert binaries.planned(tmp_path, ["etcd", "helm"]) == {}
    assert len(binaries.planned(tmp_path)) == len(binaries.MODULES) - 2
    assert all(seconds > 0 for seconds in up.STARTS.values())

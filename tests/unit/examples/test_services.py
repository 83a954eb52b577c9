"""What the agent of the show `services` decides, and how the states of services are drawn."""

import asyncio
import io
import re

import pytest
from sandfleet.demo.stage import Stage
from sandfleet.errors import UnavailableError
from sandfleet.values.services import Service, ServiceState
from shows import guestbook
from shows.trails import Trails

FEATURE = guestbook.with_feature(guestbook.WEB)


@pytest.mark.parametrize(
    ("log", "column"),
    [
        ("Traceback …\nDatabaseError: no such column: mood\n", "mood"),
        ("DatabaseError: table guests has no column named age", "age"),
        ("DatabaseError: no such column: a\nDatabaseError: no such column: b\n", "b"),
        ("DatabaseError: no such table: guests", ""),
        ("no such column: mood", ""),
        ("", ""),
    ],
)
def test_only_the_databases_own_words_name_a_missing_column(log, column):
    assert guestbook.missing_column(log) == column


@pytest.mark.parametrize("source", [guestbook.DB, guestbook.WEB, FEATURE, guestbook.with_migration(FEATURE, "mood")])
def test_what_the_agent_writes_is_python(source):
    compile(source, "source", "exec")


def test_the_feature_is_in_the_query_the_answer_and_the_insertion():
    removed = [line for line in guestbook.diff("web.py", guestbook.WEB, FEATURE) if line.startswith("-")]
    assert len(removed) == 3
    assert FEATURE.count("mood") == 4


def test_the_column_is_added_before_the_first_query():
    repaired = guestbook.with_migration(FEATURE, "mood")
    assert repaired.index("ADD COLUMN mood") < repaired.index("guests so far")
    assert all(line[0] in "+ @" for line in guestbook.diff("web.py", FEATURE, repaired))


def test_a_diff_of_nothing_is_empty():
    assert guestbook.diff("web.py", guestbook.WEB, guestbook.WEB) == []


def test_the_ports_stand_in_the_sources():
    assert f'("127.0.0.1", {guestbook.DB_PORT})' in guestbook.DB
    assert f'("127.0.0.1", {guestbook.DB_PORT})' in guestbook.WEB
    assert f'("127.0.0.1", {guestbook.WEB_PORT})' in guestbook.WEB


class Scripted:
    """Services that are in another state each time one looks; an exception is raised."""

    def __init__(self, *steps):
        self.steps = list(steps)
        self.over = asyncio.Event()

    async def list(self):
        step = self.steps.pop(0) if len(self.steps) > 1 else self.steps[0]
        if len(self.steps) == 1:
            self.over.set()
        if isinstance(step, Exception):
            raise step
        return (Service("web", step, message="because\x1b[2J" if step is not ServiceState.READY else ""),)


class Terminal(io.StringIO):
    def isatty(self):
        return True


def trails(out, *steps):
    async def watched():
        services = Scripted(*steps)
        found = Trails(Stage.on(out, as_json=False), services)
        await found.during(services.over.wait())
        return found.seen

    return asyncio.run(watched())


STATES = (ServiceState.STARTING, ServiceState.STARTING, ServiceState.RUNNING, ServiceState.FAILED)


def test_each_state_is_told_once_and_by_a_line_where_nothing_can_be_drawn_over():
    out = io.StringIO()
    assert trails(out, *STATES) == {"web": [ServiceState.STARTING, ServiceState.RUNNING, ServiceState.FAILED]}
    assert out.getvalue() == "  web starting → running → failed  because\ufffd[2J\n"


def test_a_terminal_draws_over_the_line_and_only_when_it_changes(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    out = Terminal()
    trails(out, *STATES)
    assert out.getvalue().count("\x1b[1F") == 2
    assert "\x1b[2J" not in out.getvalue()


@pytest.mark.parametrize("columns", [1, 12, 30, 40, 80, 200])
def test_no_line_is_wider_than_the_terminal(monkeypatch, columns):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.delenv("NO_COLOR", raising=False)
    out = Terminal()
    trails(out, *STATES * 4)
    lines = re.sub(r"\x1b\[\d*(;\d+)*[mFK]", "", out.getvalue()).splitlines()
    # The name and the state are always said.
    assert all(len(line) <= max(columns, len("  web starting")) for line in lines)
    assert lines[-1].startswith("  web ")
    assert "failed" in lines[-1]
    assert ("because" in lines[-1]) == (columns == 200)


def test_no_color_means_lines(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    out = Terminal()
    trails(out, *STATES)
    assert "\x1b" not in out.getvalue()


def test_the_awaited_call_raises_the_error_instead_of_the_reader():
    async def ended():
        raise UnavailableError("the first")

    async def watched():
        await Trails(Stage(io.StringIO(), live=False), Scripted(UnavailableError("the second"))).during(ended())

    with pytest.raises(UnavailableError, match="the first"):
        asyncio.run(watched())

"""What `sandfleet sandboxes top` shows."""

import io
import json
import re

import pytest
from sandfleet.cli import top
from sandfleet.values.execution import RunningCommand, Usage
from sandfleet.values.sandbox import Limits
from sandfleet.values.usage import ExecutionUsage, SandboxUsage

MIB = 1 << 20
USAGE = SandboxUsage(
    memory_bytes=512 * MIB,
    tmp_bytes=0,
    processes=9,
    cpu_seconds=1.0,
    running_executions=1,
    disk_bytes=960 * MIB,
    wall_seconds=75.0,
    total_cpu_seconds=3.456,
    peak_memory_bytes=700 * MIB,
    peak_processes=12,
    written_bytes=None,
    executions=4,
    limits=Limits(memory_bytes=1024 * MIB, processes=256, executions=32, disk_bytes=1024 * MIB),
    running=(
        ExecutionUsage("0123456789abcdef", "default", 100 * MIB, 2, Usage(12.3, 0.5, 120 * MIB, 2, 10, 20, 5 * MIB)),
    ),
)


NAMES = top.Names(lambda: [RunningCommand("c1", ("sleep", "1000", "--with", "a" * 80), None, 7)])


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_terminal_shows_how_near_to_the_limits_it_is():
    assert top.screen(USAGE, "box", NAMES, 80) == [
        "box  up 1:15  4 executions ended",
        "memory     ██████████··········  512M/1.0G",
        "disk       ███████████████████·  960M/1.0G",
        "processes  █···················  9/256",
        "executions █···················  1/32",
        "peaks      memory 700M, 12 processes",
        "in all     cpu 3.46 s, written ?",
        "",
        "EXECUTION     TIME   CPU   MEMORY  PEAK  PROCS  WRITTEN  OUTPUT  WHAT",
        "0123456789ab  12.3s  0.50  100M    120M  2      5.0M     30B     cell in default",
    ]


def test_what_runs_has_its_name_and_the_rows_fit_80_columns():
    command = ExecutionUsage("c1", "", MIB, 1, Usage(1.0))
    usage = SandboxUsage(0, 0, 0, 0.0, 0, running=(*USAGE.running, command))
    lines = top.screen(usage, "box", NAMES, 79)
    assert max(map(len, lines)) <= 79
    assert re.search(r"sleep 1000 --with a+…$", lines[-1])


def test_a_terminal_is_drawn_over_and_colours_can_be_had_off(monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    out = Terminal()
    top.follow([USAGE, USAGE], as_json=False, name="box", named=NAMES, out=out)
    assert out.getvalue().count("\033[10F") == 1
    # Green, and red for the disk.
    assert "\033[32m██████████\033[0m" in out.getvalue()
    assert "\033[31m███████████████████\033[0m" in out.getvalue()
    monkeypatch.setenv("NO_COLOR", "1")
    plain = Terminal()
    top.follow([USAGE], as_json=False, name="box", named=NAMES, out=plain)
    assert "\033[3" not in plain.getvalue()


def test_elsewhere_each_is_a_line_and_json_an_object_a_line():
    out = io.StringIO()
    top.follow([USAGE, USAGE], as_json=False, name="box", named=NAMES, out=out)
    line = "1:15  memory 512M/1.0G  disk 960M/1.0G  processes 9/256  executions 1/32  cpu 3.46 s  written ?\n"
    assert out.getvalue() == 2 * line
    out = io.StringIO()
    top.follow([USAGE], as_json=True, name="box", named=NAMES, out=out)
    said = json.loads(out.getvalue())
    assert (said["written_bytes"], said["running"][0]["execution_id"]) == (None, "0123456789abcdef")


def test_ctrl_c_ends_it_cleanly():
    def usages():
        yield USAGE
        raise KeyboardInterrupt

    out = io.StringIO()
    top.follow(usages(), as_json=False, name="box", named=NAMES, out=out)
    assert out.getvalue().count("\n") == 1


def test_an_executors_texts_cannot_control_the_terminal():
    hostile = ExecutionUsage("\033[2J\n\r\x07", "\033]0;title\x07")
    lines = [top.clip(line, 80) for line in top.screen(SandboxUsage(0, 0, 0, 0.0, 0, running=(hostile,)), "box", NAMES)]
    assert all(line.isprintable() for line in lines)


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "?"), (0, "0B"), (999, "999B"), (1023, "1.0K"), (1536, "1.5K"), (150 * MIB, "150M"), (1 << 64, "16.0E")],
)
def test_sizes_are_short(value, text):
    assert top.size(value) == text


@pytest.mark.parametrize(("value", "text"), [(3.44, "3.4s"), (75.9, "1:15"), (3723.0, "1:02:03"), (0.0, "0.0s")])
def test_times_are_short(value, text):
    assert top.seconds(value) == text


def test_a_usage_without_a_limit_has_no_bar():
    assert top.gauges(SandboxUsage(1, 2, 3, 0.0, 4))[0] == ("memory", "3B", None)
    assert top.bar(None) == "·" * 20

"""Processes by number and start time: the number alone may belong to another process by now."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

POLL_SECONDS = 0.02


@dataclass(frozen=True)
class Process:
    pid: int
    started: int
    """In clock ticks since the machine's start."""


def _fields(pid: int) -> list[str]:
    text = Path(f"/proc/{pid}/stat").read_text()
    return text[text.rindex(")") + 2 :].split()


def find(pid: int) -> Process | None:
    """The process that has this number now; a zombie is none."""
    try:
        fields = _fields(pid)
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] == "Z" else Process(pid, int(fields[19]))


def alive(process: Process) -> bool:
    return find(process.pid) == process


def kill(process: Process, number: int = signal.SIGKILL) -> None:
    """Send a signal, unless the number has passed on; the pid is pinned for as long as that is looked at."""
    try:
        handle = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return
    try:
        if alive(process):
            signal.pidfd_send_signal(handle, number)
    except ProcessLookupError:
        pass
    finally:
        os.close(handle)


def children(pid: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        return []


def inner_pid(pid: int) -> int | None:
    """What a process is called in its own, innermost PID namespace."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return next((int(line.split()[-1]) for line in lines if line.startswith("NSpid:")), None)


def wait_until(happened: Callable[[], bool], seconds: float) -> bool:
    """Poll until it has happened; False when it has not within the time."""
    deadline = time.monotonic() + seconds
    while not happened():
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_SECONDS)
    return True

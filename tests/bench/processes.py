"""Memory and time of process trees of this machine, from /proc."""

import os
from pathlib import Path


def descendants(pid: int) -> list[int]:
    """`pid` and all below it."""
    found, todo = [], [pid]
    while todo:
        current = todo.pop()
        found.append(current)
        for children in Path(f"/proc/{current}/task").glob("*/children"):
            try:
                todo += [int(child) for child in children.read_text().split()]
            except OSError:
                continue
    return found


def command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def memory(pid: int, field: str = "Pss") -> int:
    """Bytes; 0 for a process that has gone."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith(f"{field}:")), 0)


def cpu_seconds(pid: int) -> float:
    """User and system time of one process; 0 for one that has gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def executors() -> list[int]:
    """Processes of this process's embedded fleet that serve one sandbox each: the forks of the executor host."""
    mine = descendants(os.getpid())
    hosts = [pid for pid in mine if "sandfleet_executor host" in command_line(pid)]
    return [pid for pid in hosts if any(parent in hosts for parent in parents(pid))]


def parents(pid: int) -> list[int]:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    except OSError:
        return []
    return [int(fields[1])]

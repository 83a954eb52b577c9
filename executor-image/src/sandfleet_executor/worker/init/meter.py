"""What the children of the spawner use: samples for the executor, and the guard of the sandbox's memory."""

import os
import time
from collections.abc import Callable, Mapping
from typing import Any

from ..base import tree
from . import child, guard, machine

Processes = dict[int, tree.Process]


class Meter:
    """Samples the trees of all children, and kills trees before the sandbox runs out of memory."""

    def __init__(
        self,
        options: Mapping[str, Any],
        children: Mapping[int, str],
        send: Callable[[dict[str, Any]], None],
        kill: Callable[[int], None],
    ) -> None:
        self._limit = int(options["memory_bytes"])
        self._tmp_directories: list[str] = options["tmp_directories"]
        # Whether the kernel tells what processes write to the workspace.
        self._counts_writes: bool = options["counts_writes"]
        # Whether contexts share much more than the interpreter.
        self._shares = bool(options["preload"])
        self._children = children
        self._send = send
        self._kill = kill
        self._machine = machine.Machine()
        # Executions under way, as reported by the executor.
        self.busy = 0
        # Children that were killed for their memory and are not reaped yet.
        self._condemned: set[int] = set()
        # Bytes at the last sample. Memory that forks share counts once for each fork: this errs on the high side.
        self._used = 0
        self._peak = 0
        self._last_sample: dict[int, list[float]] = {}
        # When it was measured, and the answer.
        self._last_usage: tuple[float, dict[str, Any]] = (float("-inf"), {})

    @property
    def interval(self) -> float:
        """Seconds from one sample to the next."""
        return guard.interval(busy=self.busy > 0, used=self._used, limit=self._limit)

    def was_condemned(self, pid: int) -> bool:
        """For a child that was reaped: whether the guard has killed it. Forgets the child."""
        condemned = pid in self._condemned
        self._condemned.discard(pid)
        return condemned

    def sample(self) -> None:
        """Looks at all trees; while the whole sandbox is over its limit all processes are stopped meanwhile."""
        over = guard.is_tight(self._used, self._limit) and self._machine.over(self._limit)
        if over:
            self._machine.freeze()
        try:
            self._sample(over=over)
        finally:
            if over:
                self._machine.thaw()

    def _sample(self, *, over: bool) -> None:
        processes = tree.scan()
        trees = {pid: tree.measure(processes, pid) for pid in self._children}
        tmp = machine.tmp_used(self._tmp_directories)
        running = sum(each.rss for pid, each in trees.items() if self._children[pid] != child.COPY) + tmp
        # A copy grows only while other processes run and write to the pages that they share.
        self._used = sum(each.rss for each in trees.values()) + tmp if self.busy else running
        self._peak = max(self._peak, running)
        short = guard.trees_to_kill(trees, {}, tmp, self._limit)
        if short and (over or not self._machine.known or self._machine.over(self._limit)):
            self._condemn(processes, trees, tmp, running)
        if self.busy:
            self._report(processes, trees)

    def _report(self, processes: Processes, trees: Mapping[int, tree.Tree]) -> None:
        # Rounded, so that an idle tree causes no traffic.
        sample = {
            pid: [
                each.rss >> 20 << 20,
                each.processes,
                round(each.cpu_seconds - self._own_cpu(processes, pid), 2),
                self._written(processes, pid) >> 20 << 20,
            ]
            for pid, each in trees.items()
        }
        if sample != self._last_sample:
            self._last_sample = sample
            self._send({"event": "sample", "trees": sample})

    def _condemn(self, processes: Processes, trees: dict[int, tree.Tree], tmp: int, running: int) -> None:
        """Kills the trees that have to go, after a look at the exact figures: these cost too much for every sample."""
        copies = [pid for pid, kind in self._children.items() if kind == child.COPY]
        if self._condemned:
            # A dying process still counts its memory, and its copy looks as if it owned the shared pages: spare the
            # copy.
            trees = {pid: each for pid, each in trees.items() if pid not in copies}
            copies = []
        if self._machine.known:
            # What the running processes do not hold is held by the copies.
            used = self._machine.used()
            alone = {pid: max(0, used - running) // len(copies) for pid in copies}
            victims = guard.trees_to_kill(trees, alone, tmp, self._limit, used=used)
        else:
            exact = tree.proportional(processes)
            trees = {pid: tree.measure(exact, pid) for pid in trees}
            victims = guard.trees_to_kill(trees, {pid: tree.private_bytes(pid) for pid in copies}, tmp, self._limit)
        for pid in victims:
            self._condemned.add(pid)
            self._kill(pid)

    def _own_cpu(self, processes: Processes, pid: int) -> float:
        """Seconds of the child itself that are not the user's: a supervisor may have had many commands."""
        is_supervisor = self._children[pid] == child.COMMAND and pid in processes
        return processes[pid].ticks / tree.TICKS if is_supervisor else 0.0

    def _held(self, pid: int, found: tree.Tree) -> int:
        """Bytes of a child; of a copy only what it does not share with the context that it was made of."""
        return tree.private_bytes(pid) if self._children[pid] == child.COPY else found.rss

    def _written(self, processes: Processes, pid: int) -> int:
        """Bytes written by the living processes of a tree; 0 while memory is tight, when there is no time to look."""
        if not self._counts_writes or guard.is_tight(self._used, self._limit):
            return 0
        return tree.written_bytes([pid, *tree.descendants(processes, pid)])

    def usage(self, age: float) -> dict[str, Any]:
        """Of all children, with the number of processes of each. May be up to `age` seconds old."""
        now = time.monotonic()
        if now - self._last_usage[0] >= age:
            self._last_usage = now, self._measure()
        return self._last_usage[1]

    def _measure(self) -> dict[str, Any]:
        processes = tree.scan()
        if self._shares:
            processes = tree.proportional(processes)
        own = processes.get(os.getpid())
        children = {pid: tree.measure(processes, pid) for pid in self._children}
        tmp = machine.tmp_used(self._tmp_directories)
        memory = sum(self._held(pid, each) for pid, each in children.items())
        self._peak = max(self._peak, memory + tmp)
        return {
            "memory": memory + (own.rss if own else 0),
            "peak": self._peak + (own.rss if own else 0),
            "tmp": tmp,
            "processes": {pid: each.processes for pid, each in children.items()},
            "cpu": sum(each.cpu_seconds for each in children.values()),
        }

"""What the children of the spawner use: samples for the executor, and the guard of the sandbox's memory."""

import os
import time
from collections.abc import Callable, Mapping
from typing import Any

from ..base import tree
from . import child, guard, hidden, machine, segments

Processes = dict[int, tree.Process]
# Seconds between two looks at memory that no process has mapped, where the kernel tells no sum.
HIDDEN_SECONDS, IDLE_HIDDEN_SECONDS = 1.0, 10.0
# How long the killed may take to end, and memory to be free after that.
DYING_SECONDS, SETTLE_SECONDS = 3.0, 0.5
# Ticks that a copy may work after it was adopted: it waits, and has no process below it. A copy that does more counts
# as a context does, whatever has said that it is one.
COPY_TICKS = tree.TICKS // 5


class Meter:
    """Samples the trees of all children, and kills trees before the sandbox runs out of memory."""

    def __init__(
        self,
        options: Mapping[str, Any],
        children: Mapping[int, str],
        counted: machine.Machine,
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
        self._machine = counted
        # Files in memory: those that there may be, and those from which on a tree ends for them.
        self._most_files = self._files_allowed = int(options["tmp_inodes"]) * len(self._tmp_directories)
        # Copies that wait, of the last look; and the ticks of each copy when it was seen first.
        self._copies: set[int] = set()
        self._first_ticks: dict[int, int] = {}
        # Seconds of processor time of each tree at the last sample.
        self._cpu: dict[int, float] = {}
        # When it was last looked for, and the bytes.
        self._hidden = (float("-inf"), 0)
        # Executions under way, as reported by the executor.
        self.busy = 0
        # Children that were killed for their memory and are not reaped yet.
        self._condemned: set[int] = set()
        # These and what was below them, which ends after them; when they were killed.
        self._dying: set[int] = set()
        self._killed = float("-inf")
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

    def sample(self) -> Processes:
        """Looks at all trees; while the whole sandbox is over its limit all processes are stopped meanwhile.

        Returns all processes.
        """
        over = self._machine.known and self._machine.over(self._limit)
        if over:
            self._machine.freeze()
        try:
            killed = self._killed
            processes = self._sample(over=over)
            if killed != self._killed and not self._machine.bounded:
                self._wait_for_memory()
            return processes
        finally:
            if over:
                self._machine.thaw()

    def _wait_for_memory(self) -> None:
        """Until what was killed has given its memory back: all others are stopped, and would be taken for it next."""
        while self._machine.over(self._limit) and time.monotonic() - self._killed < DYING_SECONDS:
            time.sleep(guard.TIGHT_INTERVAL)

    def _sample(self, *, over: bool) -> Processes:
        processes = tree.scan()
        self._look_at_copies(processes)
        trees = {pid: tree.measure(processes, pid) for pid in self._roots(processes)}
        tmp, files = machine.tmp(self._tmp_directories)
        running = sum(each.rss for pid, each in trees.items() if pid not in self._copies) + tmp
        beside = 0 if self._machine.known else self._look_for_hidden(processes)
        # A copy grows only while other processes run and write to the pages that they share.
        shown = sum(each.rss for each in trees.values()) + tmp if self.busy else running
        self._used = max(shown + beside, self._machine.used())
        self._peak = max(self._peak, running + beside)
        if self._machine.bounded and self._is_freeing(processes):
            # No other tree ends for memory that is about to be free.
            pass
        elif over or (not self._machine.known and trees and self._used > self._limit):
            self._condemn(processes, tmp)
        if files > self._allow_files(files):
            self._condemn_busiest(processes, trees)
        self._cpu = {pid: each.cpu_seconds for pid, each in trees.items()}
        if self.busy:
            self._report(processes, trees)
        return processes

    def _roots(self, processes: Processes) -> list[int]:
        """The children, and strays: while copies are expected, those live on."""
        strays = [each.pid for each in processes.values() if each.parent == os.getpid() and each.state != "Z"]
        return list(dict.fromkeys([*self._children, *strays]))

    def _look_at_copies(self, processes: Processes) -> None:
        copies = [pid for pid, kind in self._children.items() if kind == child.COPY and pid in processes]
        self._first_ticks = {pid: self._first_ticks.get(pid, processes[pid].ticks) for pid in copies}
        parents = {each.parent for each in processes.values()}
        self._copies = {
            pid
            for pid, first in self._first_ticks.items()
            if pid not in parents and processes[pid].ticks - first <= COPY_TICKS
        }

    def _allow_files(self, count: int) -> int:
        """The number of files from which on a tree ends at this sample; sets that of the next ones.

        It ends again when as many have come since as there may be in all: no kill frees a file. An empty one takes
        about a kibibyte of a kernel's memory. The kernel itself refuses them where root has said how many there may be.
        """
        allowed = self._files_allowed
        if count <= self._most_files:
            self._files_allowed = self._most_files
        elif count > allowed:
            self._files_allowed = count + self._most_files
        return allowed

    def _condemn_busiest(self, processes: Processes, trees: Mapping[int, tree.Tree]) -> None:
        """Nothing says whose a file is: the tree that has worked most since the last sample has made the most."""
        running = [pid for pid in trees if pid not in self._copies]
        if running:
            self._end(processes, max(running, key=lambda pid: trees[pid].cpu_seconds - self._cpu.get(pid, 0.0)))

    def _is_freeing(self, processes: Processes) -> bool:
        """Whether what was killed gives its memory back; the kernel frees page tables only after its end."""
        self._dying &= processes.keys()
        since = time.monotonic() - self._killed
        return since < SETTLE_SECONDS or (bool(self._dying) and since < DYING_SECONDS)

    def _look_for_hidden(self, processes: Processes) -> int:
        """Bytes that no process has mapped, as of the last look; while nothing runs also those of copies alone."""
        now = time.monotonic()
        if now - self._hidden[0] >= (HIDDEN_SECONDS if self.busy else IDLE_HIDDEN_SECONDS):
            copies = [] if self.busy else self._copies
            self._hidden = now, hidden.look(processes).total + sum(map(tree.private_bytes, copies))
        return self._hidden[1]

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
            if pid in self._children
        }
        if sample != self._last_sample:
            self._last_sample = sample
            self._send({"event": "sample", "trees": sample})

    def _condemn(self, processes: Processes, tmp: int) -> None:
        """Kills the trees that have to go, after a look at the exact figures: these cost too much for every sample."""
        found = hidden.look(processes, closely=True)
        # No kill would free them.
        segments.remove(found.orphans)
        if found.orphaned > self._limit * guard.WORTHWHILE_SHARE:
            return
        used, trees, alone = self._exact(processes, found, tmp)
        if self._condemned:
            # A dying process still counts its memory, and its copy looks as if it owned the shared pages: spare the
            # copy.
            trees = {pid: each for pid, each in trees.items() if pid not in alone}
            alone = {}
        for pid in guard.trees_to_kill(trees, alone, tmp, self._limit, used=used):
            self._end(processes, pid)

    def _end(self, processes: Processes, pid: int) -> None:
        if pid in self._children:
            self._condemned.add(pid)
        self._dying |= {pid, *tree.descendants(processes, pid)}
        self._killed = time.monotonic()
        self._kill(pid)

    def _exact(
        self, processes: Processes, found: hidden.Found, tmp: int
    ) -> tuple[int, dict[int, tree.Tree], dict[int, int]]:
        """Bytes of the whole sandbox, each tree with all that it holds, and what copies share with no other."""
        copies = self._copies
        told = not isinstance(self._machine, machine.GVisor)
        mapped = tree.proportional(processes) if told else processes
        trees = {pid: tree.measure(mapped, pid) for pid in self._roots(processes)}
        shown = sum(each.rss for pid, each in trees.items() if told or pid not in copies) + tmp + found.total
        used = self._whole(found.total, tmp, shown, processes)
        rest = used - shown
        if told:
            alone = {pid: tree.private_bytes(pid) for pid in copies}
        else:
            # What the running processes do not hold is held by the copies.
            alone = {pid: max(0, rest) // len(copies) for pid in copies}
        # More than any tree shows: it is none of the small differences between two ways to count.
        beside = hidden.spread(found, rest) if rest > max((each.rss for each in trees.values()), default=0) else {}
        held = {pid: found.held.get(pid, 0) + beside.get(pid, 0) for pid in found.held.keys() | beside.keys()}
        every = {pid: each._replace(rss=each.rss + held.get(pid, 0)) for pid, each in mapped.items()}
        return used, {pid: tree.measure(every, pid) for pid in trees}, alone

    def _whole(self, beside: int, tmp: int, shown: int, processes: Processes) -> int:
        """Bytes of the whole sandbox."""
        if self._machine.known:
            used = self._machine.used()
            # What waits for memory needs what the kernel holds for it.
            return used if used > self._limit else max(self._machine.held(), self._limit + 1)
        # What is mapped of files in memory counts once, as these files.
        mapped = sum(map(tree.shared_memory_bytes, processes))
        return shown - min(mapped, tmp + beside)

    def _own_cpu(self, processes: Processes, pid: int) -> float:
        """Seconds of the child itself that are not the user's: a supervisor may have had many commands."""
        is_supervisor = self._children[pid] == child.COMMAND and pid in processes
        return processes[pid].ticks / tree.TICKS if is_supervisor else 0.0

    def _held(self, pid: int, found: tree.Tree) -> int:
        """Bytes of a child; of a copy only what it does not share with the context that it was made of."""
        return tree.private_bytes(pid) if pid in self._copies else found.rss

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
        self._look_at_copies(processes)
        if self._shares:
            processes = tree.proportional(processes)
        own = processes.get(os.getpid())
        children = {pid: tree.measure(processes, pid) for pid in self._children}
        tmp = machine.tmp(self._tmp_directories).used
        memory = sum(self._held(pid, each) for pid, each in children.items())
        self._peak = max(self._peak, memory + tmp)
        return {
            "memory": max(memory, self._machine.used(), memory + self._hidden[1]) + (own.rss if own else 0),
            "peak": self._peak + (own.rss if own else 0),
            "tmp": tmp,
            "processes": {pid: each.processes for pid, each in children.items()},
            "cpu": sum(each.cpu_seconds for each in children.values()),
        }

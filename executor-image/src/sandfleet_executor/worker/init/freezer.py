"""Stops all processes of the session for a moment, and lets them go on, also if the executor does not say so.

Processes that code itself has stopped stay stopped. No process but the spawner runs meanwhile, so none can wake others.
"""

import math
import os
import signal
import time

from ..base import tree

# How long the processes may take to stop, in seconds: one may be in the middle of a long system call.
STOP_SECONDS = 0.2
LOOK_SECONDS = 0.002
# Of processes that need no stop: ended, and stopped or traced by code.
STILL = "ZXTt"


class Freezer:
    def __init__(self) -> None:
        self._frozen: set[int] = set()
        # When they go on by themselves, on the monotonic clock.
        self.due = math.inf

    def freeze(self, seconds: float) -> bool:
        """For so many seconds at most. Returns whether all of them stand still."""
        self.due = time.monotonic() + seconds
        give_up = time.monotonic() + STOP_SECONDS
        for _ in range(tree.FREEZE_ROUNDS):
            moving = self._moving()
            new = moving - self._frozen
            tree.send_signal(new, signal.SIGSTOP)
            self._frozen |= new
            if not moving:
                return True
            if time.monotonic() > give_up:
                break
            if not new:
                time.sleep(LOOK_SECONDS)
        return False

    def thaw(self) -> None:
        """Lets them go on."""
        self.due = math.inf
        tree.send_signal(self._frozen, signal.SIGCONT)
        self._frozen = set()

    @staticmethod
    def _moving() -> set[int]:
        processes = tree.scan()
        return {pid for pid in tree.descendants(processes, os.getpid()) if processes[pid].state not in STILL}

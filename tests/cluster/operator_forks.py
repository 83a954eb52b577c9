"""An operator that is started again and again, with a stand-in for executors.

`python -m cluster.operator_forks SETTINGS`. Python's imports take longer than the work that tests interrupt, so they
run once. Each life is a fork of its own; a port on standard input starts it, and its process id is the answer.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO

from cluster.operator_on_fakes import main
from cluster.operators import OperatorProcess
from support.ports import free_port


@dataclass
class Lives:
    """Of one operator, one after the other."""

    orders: IO[bytes]
    answers: IO[bytes]
    process: int = 0

    def begin(self) -> None:
        self.orders.write(b"%d\n" % free_port())
        self.orders.flush()
        self.process = int(self.answers.readline())

    def kill(self) -> None:
        """The process is gone when this returns, or as good as: it runs no line of its own any more."""
        os.kill(self.process, signal.SIGKILL)


@contextmanager
def lives(one: OperatorProcess) -> Iterator[Lives]:
    """The last life ends with the block, as it does when it is told to."""
    command = [sys.executable, "-m", "cluster.operator_forks", str(one.write_settings())]
    pipe = subprocess.PIPE
    with (
        (one.folder / "log").open("ab") as log,
        subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=log, env=one.environment) as parent,
    ):
        assert parent.stdin and parent.stdout
        made = Lives(parent.stdin, parent.stdout)
        try:
            yield made
        finally:
            if made.process:
                os.kill(made.process, signal.SIGTERM)
            parent.stdin.close()


def live(settings: str, port: str) -> int:
    try:
        return main(settings, port)
    except BaseException as error:  # noqa: BLE001 - a fork never returns to the loop below
        print(f"the operator fails: {error!r}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    # No parent waits for a life that was ended.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for line in sys.stdin:
        child = os.fork()
        if not child:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os._exit(live(sys.argv[1], line.strip()))
        print(child, flush=True)

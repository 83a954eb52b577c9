"""One run of a program below a supervisor of its own, for as long as it takes: services and what probes them."""

import asyncio
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass

from sandfleet_executor.core.services.exits import Facts
from sandfleet_executor.effects.executions.meter import signal_name
from sandfleet_executor.effects.executions.pump import Pump, make_pipe
from sandfleet_executor.effects.namespace.children import COMMAND, Child, Exit, Sample
from sandfleet_executor.effects.namespace.namespace import Namespace
from sandfleet_executor.worker.base.frames import Frame, FrameError

MAX_FAILURE_TEXT = 1024
# A program that writes without end waits between pieces of this size, so that nothing else has to: 5 MB/s.
PIECE_BYTES = 512 << 10
REST_SECONDS = 0.1
SIGKILL, SIGTERM = int(signal.SIGKILL), int(signal.SIGTERM)


@dataclass(frozen=True)
class Start:
    """`payload` as command.run takes it; `cwd` absolute, as user code sees it."""

    payload: bytes
    shell: bool
    cwd: bytes
    envs: dict[str, str]


class Program:
    """Both output streams go to `sink`. `running` is the pid, `ended` the end; no process is left then."""

    def __init__(self, sink: Callable[[bytes], None], stop_signal: int = SIGTERM) -> None:
        loop = asyncio.get_running_loop()
        self.running: asyncio.Future[int] = loop.create_future()
        self.ended: asyncio.Future[Facts] = loop.create_future()
        self._sink = sink
        self._stop_signal = stop_signal
        self._taken = 0
        self._killed = False
        self._written = 0
        self._pump: Pump | None = None
        self._child: Child | None = None
        self._namespace: Namespace

    @property
    def root(self) -> int:
        """The child of the spawner that everything of it is below; 0 where there is none."""
        return self._child.pid if self._child else 0

    async def start(self, namespace: Namespace, request: Start, *, lasting: bool) -> None:
        """Raises NamespaceError. A program that is not there is an end of it."""
        self._namespace = namespace
        header = {"cwd": os.fsdecode(request.cwd), "envs": request.envs, "shell": request.shell, "tell": True}
        fds = [os.open(os.devnull, os.O_RDONLY)]
        try:
            reader, writer = make_pipe()
            self._pump = Pump(reader, self._take)
            fds += [writer, os.dup(writer)]
            self._child = await namespace.children.start(COMMAND, header, request.payload, fds, self, lasting=lasting)
        except BaseException:  # A cancellation too: no other code knows of the pipe.
            if self._pump:
                self._pump.close()
            raise
        finally:
            for fd in fds:
                os.close(fd)

    def terminate(self) -> None:
        """Sends the stop signal to the program's process group."""
        if self._child and not self.ended.done():
            self._child.channel.send({"op": "signal", "signal": int(self._stop_signal)})

    def kill(self) -> None:
        """Ends everything of it."""
        if self._child and not self.ended.done():
            self._killed = True
            self._namespace.kill(self._child.pid)

    async def close(self) -> None:
        """Takes the rest of the output; ends the program if it still runs."""
        self.kill()
        if self._child and self._killed:
            await self._child.gone
        elif self._child:
            self._namespace.children.give_back(self._child, self._written)
        self.drain()
        if self._pump:
            self._pump.close()

    def drain(self) -> None:
        """Takes the output up to now."""
        if self._pump:
            self._pump.drain()

    # As the user of a child

    def on_frame(self, frame: Frame) -> None:
        said = frame.header
        match said["event"]:
            case "running" if not self.running.done():
                self.running.set_result(int(said["pid"]))
            case "exited":
                name = signal_name(int(said["signal"]))
                self._written = max(self._written, int(said["written"]))
                self._end(Facts(int(said["code"]), name, leftover=int(said["leftover"])))
            case "failed":
                self._end(Facts(int(said["code"]), failure=str(said["message"])[:MAX_FAILURE_TEXT]))

    def on_data(self) -> None:
        """Output and the end come in no order."""

    def on_channel_end(self, error: FrameError | None) -> None:
        """The end of the supervisor tells the rest."""

    def on_sample(self, sample: Sample) -> None:
        """Its usage is not reported. The supervisor's next program must not be charged with what this one wrote."""
        self._written = max(self._written, sample.written)

    def on_exit(self, ended: Exit) -> None:
        # Without a word from the supervisor: it was killed, and the program with it.
        everything = self._namespace.ended and not self._killed
        facts = Facts(128 + SIGKILL, signal_name(SIGKILL), memory=ended.memory, session_ended=everything)
        self._end(facts)

    def _end(self, facts: Facts) -> None:
        if not self.ended.done():
            self.ended.set_result(facts)

    def _take(self, data: bytes) -> None:
        self._sink(data)
        self._taken += len(data)
        if self._taken >= PIECE_BYTES and self._pump:
            self._taken = 0
            self._pump.pause()
            asyncio.get_running_loop().call_later(REST_SECONDS, self._pump.resume)

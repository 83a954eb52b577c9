"""Ports of pods on this machine, by `kubectl port-forward`: one child program for each port, shared by the process."""

from __future__ import annotations

import atexit
import os
import re
import subprocess
import threading
from collections import deque
from contextlib import suppress

from sandfleet.errors import UnavailableError

# Seconds that kubectl may take to listen, and to end.
_START_TIMEOUT, _STOP_TIMEOUT = 30.0, 5.0
_LISTENS = re.compile(rb"^Forwarding from (127\.0\.0\.1:\d+) -> ")
_NOISE = b"Handling connection"
_SAID_LIMIT = 500
# Ends kubectl when standard input ends: the kernel closes its other end when this process ends, in any way. The shell
# holds no output, so that the end of the output is the end of kubectl.
_KEEPER = '"$@" & exec >&- 2>&-; read -r _; kill "$!" 2>/dev/null'


class PortForward:
    """A running `kubectl port-forward`."""

    def __init__(self, kubectl: str, namespace: str, target: str, port: int) -> None:
        """Start it, and wait until it listens. `target` is "pod/NAME" or "service/NAME". Raises UnavailableError."""
        self.target = target
        self.address = ""
        self._last: deque[bytes] = deque(maxlen=3)
        self._told = threading.Event()
        words = ["port-forward", "--namespace", namespace, "--address", "127.0.0.1", target, f":{port}"]
        try:
            self._process = subprocess.Popen(
                ["sh", "-c", _KEEPER, "sh", kubectl, *words],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                # Ctrl-C at the terminal is for us.
                start_new_session=True,
            )
        except OSError as error:
            raise _failed(kubectl, words, str(error)) from error
        threading.Thread(target=self._read, name="sandfleet-port-forward", daemon=True).start()
        if not self._told.wait(_START_TIMEOUT):
            self.stop()
            raise _failed(kubectl, words, f"it does not listen after {_START_TIMEOUT:g} s")
        if not self.address:
            self.stop()
            said = b" ".join(self._last).decode("utf-8", "replace").strip()
            raise _failed(kubectl, words, said[:_SAID_LIMIT] or "it ended without a word")

    @property
    def alive(self) -> bool:
        """Whether kubectl runs."""
        return self._reading

    _reading = True

    def _read(self) -> None:
        """Read to the end, since kubectl writes a line for each connection."""
        output = self._process.stdout
        assert output is not None
        with suppress(OSError, ValueError):
            for line in output:
                if found := _LISTENS.match(line):
                    self.address = found[1].decode()
                    self._told.set()
                elif not line.startswith(_NOISE):
                    self._last.append(line.strip())
        self._reading = False
        self._told.set()

    def let_go(self) -> None:
        """Close our end of its standard input, so that it ends, or, in a forked child, is not held by it."""
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.close()

    def stop(self) -> None:
        """End it."""
        self.let_go()
        try:
            self._process.wait(_STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def _failed(kubectl: str, words: list[str], why: str) -> UnavailableError:
    command = " ".join([kubectl, *words])
    return UnavailableError(f"cannot connect: `{command}` failed: {why}", reason="PortForwardFailed", retryable=True)


_Key = tuple[str, str | None, str, str, int]
_lock = threading.Lock()
_running: dict[_Key, PortForward] = {}


def address(kubectl: str, namespace: str, target: str, port: int) -> str:
    """Return where a port of a pod or a service is on this machine: "127.0.0.1:PORT".

    It may block. Raises UnavailableError.
    """
    key = (kubectl, os.environ.get("KUBECONFIG"), namespace, target, port)
    with _lock:
        for other in [each for each, one in _running.items() if not one.alive]:
            _running.pop(other).stop()
        if key not in _running:
            _running[key] = PortForward(kubectl, namespace, target, port)
        return _running[key].address


def target_of(found: str) -> str:
    """Return what an address of this machine leads to; "" if it is none of ours."""
    return next((one.target for one in list(_running.values()) if one.address == found), "")


def stop() -> None:
    """End all; done by itself at the end of the process."""
    with _lock:
        while _running:
            _running.popitem()[1].stop()


def _forget_in_child() -> None:
    """Do not hold the parent's: a lock may be held by a thread that is not here."""
    global _lock  # noqa: PLW0603  of the process
    _lock = threading.Lock()
    for one in _running.values():
        one.let_go()
    _running.clear()


atexit.register(stop)
os.register_at_fork(after_in_child=_forget_in_child)

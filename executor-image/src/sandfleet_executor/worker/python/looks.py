"""Completion and inspection: what IPython knows of code at a position.

A fork of the context finds it: code of the user's may run (`__dir__`, properties), and must neither change the context
nor hold it up. The answer is one packet: {"event":"completed","matches","start","end","omitted"}, or
{"event":"inspected","found"} with the text as payload.
"""

import contextlib
import os
import resource
import signal
import socket
from collections.abc import Mapping
from typing import Any, NoReturn

from IPython.core.completer import provisionalcompleter, rectify_completions
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.tokenutil import token_at_cursor

from ..base import answers, parts, process
from ..base.helpers import Helpers

# How long a process may outlive its time, in seconds.
GRACE_SECONDS = 1.0
_fork, _exit = os.fork, os._exit


class Looks:
    """Looks at one context."""

    def __init__(self, shell: InteractiveShell) -> None:
        self._shell = shell
        self._helpers = Helpers()

    def look(self, header: Mapping[str, Any], code: str, descriptor: int) -> None:
        """Starts a process that answers on the descriptor, and returns at once."""
        self._helpers.reap()
        seconds = float(header["seconds"])
        with socket.socket(fileno=process.private_copy(descriptor)) as sock:
            os.close(descriptor)
            # The other end tells that there is no answer. Hooks that run at a fork may be the user's.
            with contextlib.suppress(Exception):
                pid = _fork()
                if pid == 0:
                    _answer(self._shell, header, code, sock)
                self._helpers.add(pid, seconds + GRACE_SECONDS)

    def forget(self) -> None:
        """In a copy of the context."""
        self._helpers.forget()


def _answer(shell: InteractiveShell, header: Mapping[str, Any], code: str, sock: socket.socket) -> NoReturn:
    """In the fork."""
    try:
        _become_helper(float(header["seconds"]))
        cursor = int(header["cursor"])
        if header["op"] == "complete":
            sock.sendall(_completed(shell, code, cursor))
        else:
            sock.sendall(_inspected(shell, code, cursor, int(header["detail_level"])))
    finally:
        _exit(0)


def _become_helper(seconds: float) -> None:
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGALRM})
    signal.setitimer(signal.ITIMER_REAL, seconds)
    resource.setrlimit(resource.RLIMIT_CPU, (int(seconds) + 1,) * 2)
    null = os.open(os.devnull, os.O_RDWR)
    for number in range(3):
        os.dup2(null, number)


def _completed(shell: InteractiveShell, code: str, cursor: int) -> bytes:
    # The class's own: a context does without, until it is asked.
    InteractiveShell.init_completer(shell)
    # Jedi reads files of the user's home, and takes much longer.
    shell.Completer.use_jedi = False
    with provisionalcompleter():
        found = list(rectify_completions(code, shell.Completer.completions(code, cursor)))
    start, end = (found[0].start, found[0].end) if found else (cursor, cursor)
    return answers.completed((each.text for each in found), start, end)


def _inspected(shell: InteractiveShell, code: str, cursor: int, detail_level: int) -> bytes:
    name = token_at_cursor(code, cursor)
    try:
        bundle = shell.object_inspect_mime(name, detail_level=detail_level) if name else {}
    except KeyError:
        bundle = {}
    return answers.inspected(str(bundle.get(parts.PLAIN, "")), found=bool(bundle))

"""Threads for requests that must not hold up the end of the program."""

import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from queue import Empty, SimpleQueue
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class DaemonThreads(Executor):
    """Runs calls in up to `most` threads, which end when they are idle. The interpreter does not wait for them.

    A `ThreadPoolExecutor` is joined when the program ends: after Ctrl-C, a model that thinks would be waited for.
    """

    def __init__(self, most: int, name: str, *, idle_seconds: float = 30.0) -> None:
        self._most = most
        self._idle_seconds = idle_seconds
        self._name = name
        self._calls: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._lock = threading.Lock()
        self._threads = 0
        self._idle = 0

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> "Future[T]":
        """Run a call as soon as a thread is free."""
        future: Future[T] = Future()

        def call() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(fn(*args, **kwargs))
            except BaseException as error:  # noqa: BLE001  it is raised where the result is asked for
                future.set_exception(error)

        with self._lock:
            self._calls.put(call)
            if self._calls.qsize() > self._idle and self._threads < self._most:
                self._threads += 1
                threading.Thread(target=self._work, name=f"{self._name}-{self._threads}", daemon=True).start()
        return future

    def _work(self) -> None:
        while (call := self._next()) is not None:
            call()
            # The next wait must not keep the last call's arguments alive.
            del call

    def _next(self) -> Callable[[], None] | None:
        """The next call; None, which ends the thread, when there was none for a while."""
        call: Callable[[], None] | None = None
        with self._lock:
            self._idle += 1
        with contextlib.suppress(Empty):
            call = self._calls.get(timeout=self._idle_seconds)
        with self._lock:
            self._idle -= 1
            if call is None:
                # One may have come in between.
                with contextlib.suppress(Empty):
                    call = self._calls.get_nowait()
            self._threads -= call is None
        return call

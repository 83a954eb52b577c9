"""One event loop in a thread of its own, on which the sync classes run the async ones."""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar, cast

from sandfleet.errors import SandfleetError

if TYPE_CHECKING:
    import asyncio
    from concurrent.futures import Future

Answer = TypeVar("Answer")
Value = TypeVar("Value")
Options = TypeVar("Options")

# Modules whose lines in a traceback say nothing to a caller: of this bridge always, of the client in its own errors.
_BRIDGE = ("asyncio.", "concurrent.", "threading", "sandfleet._sync.", "sandfleet._portal")
_CLIENT = ("sandfleet.", "grpc.")
# How long a cancelled call may take to end, in seconds.
_END = 2.0

_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None


def _running_loop() -> asyncio.AbstractEventLoop:
    global _loop  # noqa: PLW0603  there is one a process
    import asyncio

    with _lock:
        if _loop is None:
            _loop = asyncio.new_event_loop()
            threading.Thread(target=_loop.run_forever, name="sandfleet", daemon=True).start()
        return _loop


def _forget_in_child() -> None:
    """Start again after a fork: the child has no such thread, and the lock may never be released."""
    global _lock, _loop
    _lock, _loop = threading.Lock(), None


os.register_at_fork(after_in_child=_forget_in_child)


# Callbacks that are called after the call which is given them: no caller waits there who could run them.
_LATER = frozenset({"on_review", "on_tool_ask", "on_preempted"})


def _is_served(option: str) -> bool:
    return option.startswith("on_") and option not in _LATER


class Relay:
    """Runs callbacks in the waiting caller's thread, one at a time, while the loop waits for each."""

    def __init__(self) -> None:
        # One thread serves at a time; a callback may itself wait for another answer.
        self._serving = threading.RLock()
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()

    def wrap(self, callback: Callable[[Value], object] | None) -> Callable[[Value], object] | None:
        """Make an async callback, which runs the given one in the caller's thread.

        What cannot be called stays as it is: the async call accepts None and refuses the rest.
        """
        if not callable(callback):
            return callback

        import asyncio
        from concurrent.futures import Future

        async def relayed(value: Value) -> object:
            done: Future[object] = Future()
            self._calls.put(lambda: _settle(done, callback, value))
            return await asyncio.wrap_future(done)

        return relayed

    def wrap_options(self, options: Options) -> Options:
        """Wrap the callbacks that a call makes itself, among its options: their names begin with `on_`."""
        given = cast("dict[str, Any]", options)
        wrapped = {name: self.wrap(value) if _is_served(name) else value for name, value in given.items()}
        return cast("Options", wrapped)

    def serve(self, answer: Future[Answer]) -> Answer:
        """Run callbacks until the answer arrives."""
        with self._serving:
            answer.add_done_callback(lambda _: self._calls.put(None))
            while (call := self._calls.get()) is not None:
                call()
            return answer.result()


def _settle(done: Future[object], callback: Callable[[Value], object], value: Value) -> None:
    if not done.set_running_or_notify_cancel():
        return
    try:
        said = callback(value)
    except Exception as error:  # noqa: BLE001  the call that was given the callback raises it
        done.set_exception(error)
    else:
        done.set_result(said)


def run(work: Coroutine[Any, Any, Answer], relay: Relay | None = None) -> Answer:
    """Run a coroutine on the loop and wait for it; Ctrl-C here cancels it there."""
    import asyncio

    loop = _running_loop()
    try:
        inside = asyncio.get_running_loop() is loop
    except RuntimeError:
        inside = False
    if inside:
        work.close()
        raise RuntimeError("cannot wait for a sandbox in Sandfleet's own thread: it would wait for itself")
    over = threading.Event()
    answer = asyncio.run_coroutine_threadsafe(_telling(work, over), loop)
    try:
        return relay.serve(answer) if relay else answer.result()
    except BaseException as error:  # noqa: BLE001  KeyboardInterrupt too: the caller waits no longer
        if answer.cancel():
            # Let its end (an interrupt of the execution) finish before the caller closes things.
            over.wait(_END)
        raise shortened(error)  # noqa: B904  its cause stays as it is, unless it is hidden


def shortened(error: BaseException) -> BaseException:
    """Take what the event loop, gRPC and the async client did out of the traceback; callbacks' own lines stay.

    The gRPC error behind a typed one is not shown either; it stays in `__context__`.
    """
    own = isinstance(error, SandfleetError | KeyboardInterrupt)
    if own:
        error.__cause__ = None
    hidden = (*_BRIDGE, *_CLIENT) if own else _BRIDGE
    return error.with_traceback(_without(hidden, error.__traceback__))


def _without(hidden: tuple[str, ...], trace: TracebackType | None) -> TracebackType | None:
    kept = []
    while trace is not None:
        if not str(trace.tb_frame.f_globals.get("__name__", "")).startswith(hidden):
            kept.append(trace)
        trace = trace.tb_next
    rest: TracebackType | None = None
    for each in reversed(kept):
        rest = TracebackType(rest, each.tb_frame, each.tb_lasti, each.tb_lineno)
    return rest


async def _telling(work: Coroutine[Any, Any, Answer], over: threading.Event) -> Answer:
    try:
        return await work
    finally:
        over.set()


def unwrap(value: Any, attribute: str) -> Any:
    """Return the async object in a sync one; anything else as it is, which the async call accepts or refuses."""
    return getattr(value, attribute, value)


def iterate(items: AsyncIterator[Value], relay: Relay | None = None) -> Iterator[Value]:
    """Iterate on the loop, item by item."""

    async def step() -> tuple[Value] | None:
        try:
            return (await anext(items),)
        except StopAsyncIteration:
            return None

    while (item := run(step(), relay)) is not None:
        yield item[0]

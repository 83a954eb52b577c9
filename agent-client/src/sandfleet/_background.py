"""One event loop in a thread of its own, on which the sync classes run the async ones."""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from sandfleet import _late as late

if TYPE_CHECKING:
    import asyncio
    from concurrent.futures import Future

Answer = TypeVar("Answer")
Value = TypeVar("Value")
Class = TypeVar("Class", bound=type)

# How long a call that was given up may take to its end, in seconds.
_END = 2.0

_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None


def _running_loop() -> asyncio.AbstractEventLoop:
    global _loop  # noqa: PLW0603  one a process is the point
    with _lock:
        if _loop is None:
            _loop = late.asyncio.new_event_loop()
            threading.Thread(target=_loop.run_forever, name="sandfleet", daemon=True).start()
        return _loop


def _forget_in_child() -> None:
    """Start afresh after a fork: the thread is not there any more, and the lock may be held for ever."""
    global _lock, _loop
    _lock, _loop = threading.Lock(), None


os.register_at_fork(after_in_child=_forget_in_child)


class Relay:
    """Lets callbacks run in the thread of the caller who waits, one at a time, while the loop waits for each."""

    def __init__(self) -> None:
        # One thread serves at a time; a callback may itself wait for another answer.
        self._serving = threading.RLock()
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()

    def wrap(self, callback: Callable[[Value], object] | None) -> Callable[[Value], object] | None:
        """Make an async callback for the loop of one for the caller's thread."""
        if callback is None:
            return None

        from concurrent.futures import Future

        async def relayed(value: Value) -> None:
            done: Future[None] = Future()
            self._calls.put(lambda: _settle(done, callback, value))
            await late.asyncio.wrap_future(done)

        return relayed

    def serve(self, answer: Future[Answer]) -> Answer:
        """Run callbacks until the answer is there."""
        with self._serving:
            answer.add_done_callback(lambda _: self._calls.put(None))
            while (call := self._calls.get()) is not None:
                call()
            return answer.result()


def _settle(done: Future[None], callback: Callable[[Value], object], value: Value) -> None:
    if not done.set_running_or_notify_cancel():
        return
    try:
        callback(value)
    except Exception as error:  # noqa: BLE001  it is raised from the call that the callback was given to
        done.set_exception(error)
    else:
        done.set_result(None)


def run(work: Coroutine[Any, Any, Answer], relay: Relay | None = None) -> Answer:
    """Run a coroutine on the loop and wait for it; Ctrl-C here cancels it there."""
    loop = _running_loop()
    try:
        inside = late.asyncio.get_running_loop() is loop
    except RuntimeError:
        inside = False
    if inside:
        work.close()
        raise RuntimeError("cannot wait for a sandbox in Sandfleet's own thread: it would wait for itself")
    over = threading.Event()
    answer = late.asyncio.run_coroutine_threadsafe(_telling(work, over), loop)
    try:
        return relay.serve(answer) if relay else answer.result()
    except BaseException:  # KeyboardInterrupt too: the caller waits no longer.
        if answer.cancel():
            # What it does at its end (interrupt the execution, say) is not to meet what the caller closes next.
            over.wait(_END)
        raise


async def _telling(work: Coroutine[Any, Any, Answer], over: threading.Event) -> Answer:
    try:
        return await work
    finally:
        over.set()


def iterate(items: AsyncIterator[Value], relay: Relay | None = None) -> Iterator[Value]:
    """Iterate on the loop, item by item."""

    async def step() -> tuple[Value] | None:
        try:
            return (await anext(items),)
        except StopAsyncIteration:
            return None

    while (item := run(step(), relay)) is not None:
        yield item[0]


def mirrors(original: type) -> Callable[[Class], Class]:
    """Give a sync class and its methods the words of the async one, which are true of both."""

    def decorate(mirror: Class) -> Class:
        mirror.__doc__ = mirror.__doc__ or original.__doc__
        for name in vars(original):
            method, source = vars(mirror).get(name), vars(original).get(name)
            if not name.startswith("_") and method is not None and method.__doc__ is None:
                for target in (method, getattr(method, "__func__", method)):
                    target.__doc__ = source.__doc__
        return mirror

    return decorate

"""Threads for tools that are no coroutines. A thread cannot be ended: it outlives a call that is cancelled."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any


class ToolThreads:
    """So many threads; functions for which none is free wait, and cost nothing when they are given up."""

    def __init__(self, most: int) -> None:
        self._pool = ThreadPoolExecutor(most, thread_name_prefix="sandfleet-tool")
        self._free = asyncio.Semaphore(most)

    async def run(self, work: Callable[[], Any], begun: Callable[[], None], ended: Callable[[], None]) -> Any:
        """Run it in a thread; its result.

        Where this is cancelled while the function runs, `begun` is called at once and `ended` when it has ended.
        """
        await self._free.acquire()
        running = self._pool.submit(partial(contextvars.copy_context().run, work))
        running.add_done_callback(_here(self._free.release))
        try:
            return await asyncio.wrap_future(running)
        except asyncio.CancelledError:
            if not running.cancel():
                begun()
                running.add_done_callback(_here(ended))
            raise

    def close(self) -> None:
        """Begin nothing more. What runs goes on."""
        self._pool.shutdown(wait=False, cancel_futures=True)


def _here(callback: Callable[[], None]) -> Callable[[Future[Any]], None]:
    """The callback, to be called by the present event loop; not at all when that has ended."""
    loop = asyncio.get_running_loop()

    def call(_: Future[Any]) -> None:
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(callback)

    return call

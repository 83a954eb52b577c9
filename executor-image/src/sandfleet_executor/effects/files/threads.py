"""Threads for work on files, with the rights of the sandbox's user and not those of the executor."""

import asyncio
import contextlib
import functools
import os
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from sandfleet_executor.effects.linux import become_file_user

WORKERS = 4

P = ParamSpec("P")
T = TypeVar("T")


class FileThreads:
    """A small pool of threads. With a `user_id` (root only) the kernel checks and creates files as for that user.

    Where the rights cannot be taken, no thread starts and every call fails (BrokenThreadPool).
    Work that has begun goes to its end, also when the task that awaits it is cancelled.
    """

    def __init__(self, user_id: int | None = None) -> None:
        # User and group of the files that it makes.
        self.user = (os.geteuid(), os.getegid()) if user_id is None else (user_id, user_id)
        become = None if user_id is None else functools.partial(become_file_user, user_id)
        self._pool = ThreadPoolExecutor(WORKERS, "files", become)

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await asyncio.wrap_future(self._pool.submit(work, *args, **kwargs))

    async def run_then(self, finish: Callable[[], None], work: Callable[[], T]) -> T:
        """Runs the work, and `finish` when it has ended or will never begin."""
        return await asyncio.wrap_future(self._submit(finish, work))

    @contextlib.asynccontextmanager
    async def hold(
        self, finish: Callable[[], None], acquire: Callable[[], T], release: Callable[[T], None]
    ) -> AsyncIterator[T]:
        """Holds the result of `acquire` and releases it in a thread, even if it is acquired after a cancellation."""
        future = self._submit(finish, acquire)
        try:
            yield await asyncio.wrap_future(future)
        finally:
            if not future.done():
                future.add_done_callback(functools.partial(self._release, release))
            elif not future.cancelled() and future.exception() is None:
                # Shielded: a cancellation that comes now would take it from the queue of the threads.
                await asyncio.shield(asyncio.wrap_future(self._pool.submit(release, future.result())))

    def _submit(self, finish: Callable[[], None], work: Callable[[], T]) -> Future[T]:
        try:
            future = self._pool.submit(work)
        except BaseException:  # No future will ever say that it is done.
            finish()
            raise
        future.add_done_callback(lambda _: finish())
        return future

    def _release(self, release: Callable[[T], None], future: Future[T]) -> None:
        # Called by the thread that acquired it.
        if not future.cancelled() and future.exception() is None:
            release(future.result())

    def close(self) -> None:
        """Waits for work that has begun; drops work that has not."""
        self._pool.shutdown(wait=True, cancel_futures=True)

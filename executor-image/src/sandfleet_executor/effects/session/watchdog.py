"""Ends an executor whose event loop is stuck, so that its owner can start a new one."""

import asyncio
import threading
from collections.abc import Callable

CHECK_SECONDS = 5.0
STUCK_SECONDS = 30.0


def start(
    loop: asyncio.AbstractEventLoop,
    end: Callable[[], None],
    check_seconds: float = CHECK_SECONDS,
    stuck_seconds: float = STUCK_SECONDS,
) -> None:
    """Looks every `check_seconds` whether the loop answers within `stuck_seconds`; calls `end` when it does not."""

    def watch() -> None:
        while True:
            answered = threading.Event()
            try:
                loop.call_soon_threadsafe(answered.set)
            except RuntimeError:
                return  # The loop is closed: the executor is ending by itself.
            if not answered.wait(stuck_seconds):
                if not loop.is_closed():
                    end()
                return
            threading.Event().wait(check_seconds)

    threading.Thread(target=watch, name="watchdog", daemon=True).start()

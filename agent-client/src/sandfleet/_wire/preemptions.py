"""What this client has heard of the preemptions of one session."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from sandfleet.values.suspension import OnPreempted, Preemption

if TYPE_CHECKING:
    from sandfleet.errors import SandboxPreempted

# The last ones that are remembered.
_MOST = 100
_log = logging.getLogger(__name__)


class Preemptions:
    """`listener` is called once for each preemption that is heard of. What it raises is logged."""

    def __init__(self, sandbox_id: str) -> None:
        self._sandbox_id = sandbox_id
        self.listener: OnPreempted | None = None
        self.all: tuple[Preemption, ...] = ()
        # That of now; None: the session is not preempted, as far as it is known.
        self.now: Preemption | None = None

    def heard(self, error: SandboxPreempted) -> None:
        """The fleet says that the session is preempted."""
        if self.now is not None:
            return
        self.now = Preemption(self._sandbox_id, datetime.now(UTC), error.message)
        self.all = (*self.all[1 - _MOST :], self.now)
        if self.listener is not None:
            try:
                self.listener(self.now)
            except Exception:  # noqa: BLE001 - it is the caller's: the session goes on without it
                _log.exception("on_preempted of sandbox %s failed", self._sandbox_id)

    def over(self) -> None:
        """The session was resumed."""
        self.now = None

"""What the fleet needs from where sandboxes run."""

from dataclasses import dataclass
from typing import Protocol

from sandfleet_operator.api.values import Exit, Sandbox


@dataclass(frozen=True, slots=True)
class Ready:
    """The executor of this incarnation listens at `address`."""

    sandbox_uid: str
    address: str


@dataclass(frozen=True, slots=True)
class Exited:
    """The incarnation is gone: exactly once for each that was started, also for one that never ran."""

    sandbox_uid: str
    end: Exit


Event = Ready | Exited


class Backend(Protocol):
    """Starts and ends incarnations. What goes wrong with one is an event, never an exception."""

    async def start(self, sandbox: Sandbox) -> None:
        """Begins to start the incarnation on its workspace, which is made where it is not there."""
        ...

    async def stop(self, sandbox_uid: str) -> None:
        """Begins to end it. Stopping twice, or what is gone, is no error."""
        ...

    async def drop_workspace(self, workspace_id: str) -> None:
        """Removes a workspace that no incarnation has."""
        ...

    async def next_event(self) -> Event:
        """Waits for what happens next."""
        ...

    async def close(self) -> None:
        """Ends everything, and returns when nothing is left."""
        ...

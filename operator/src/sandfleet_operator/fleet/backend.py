"""What the fleet needs from where sandboxes run."""

from dataclasses import dataclass
from typing import Protocol

from sandfleet_operator.api.errors import Problem
from sandfleet_operator.api.kube import NotCreated
from sandfleet_operator.api.values import Exit, Sandbox


@dataclass(frozen=True, slots=True)
class Ready:
    """The executor of this incarnation listens at `address`."""

    sandbox_uid: str
    address: str


@dataclass(frozen=True, slots=True)
class Made:
    """What the incarnation needs exists: its start is on its way. Only from backends that confirm starts."""

    sandbox_uid: str


@dataclass(frozen=True, slots=True)
class NotMade:
    """What the incarnation needs was not created. Comes instead of Exited."""

    sandbox_uid: str
    why: NotCreated


@dataclass(frozen=True, slots=True)
class Exited:
    """The incarnation is gone: exactly once for each that was started, also for one that never ran."""

    sandbox_uid: str
    end: Exit


@dataclass(frozen=True, slots=True)
class Removed:
    """Another writer has ended the sandbox of this incarnation, with all that belongs to it."""

    sandbox_uid: str
    reason: str


Event = Ready | Made | NotMade | Exited | Removed


class TakenError(Exception):
    """Another fleet has the sandbox."""


class RefusedError(Exception):
    """Where the sandbox is, its claim is refused for good. `untouched`: it is as fit for another claim as before."""

    def __init__(self, problem: Problem, *, untouched: bool) -> None:
        super().__init__(problem.message)
        self.problem = problem
        self.untouched = untouched


class Backend(Protocol):
    """Starts and ends incarnations. What goes wrong with one is an event, never an exception."""

    async def start(self, sandbox: Sandbox) -> None:
        """Begins to start the incarnation on its workspace, which is made where it is not there."""
        ...

    async def claim(self, sandbox: Sandbox) -> None:
        """Binds it to its claim, if other fleets could take it too.

        Raises TakenError and RefusedError, or FleetError if that fails.
        """
        ...

    def answered(self, sandbox: Sandbox) -> float:
        """Its caller has it; after so many seconds `record` is to be called, unless its session is over by then."""
        ...

    async def record(self, sandbox: Sandbox) -> None:
        """Stores what the next fleet needs."""
        ...

    def decided(self, sandbox: Sandbox) -> None:
        """Its session is to sleep or to go on, which `suspend` or `resume` of the same value carries out."""
        ...

    async def suspend(self, sandbox: Sandbox) -> None:
        """Begins to end its process; the session and its workspace stay."""
        ...

    def can_suspend(self, sandbox: Sandbox) -> bool:
        """Whether its workspace outlives its process."""
        ...

    async def resume(self, sandbox: Sandbox) -> None:
        """Begins to start a process for the suspended session on its workspace."""
        ...

    async def gone(self, sandbox: Sandbox) -> None:
        """Its session is over, and so is its process: removes what there is of it beside them."""
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

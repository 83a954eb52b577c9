"""The sandbox below the loop: looked at before each execution, and replaced when it is gone."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Literal, Protocol, runtime_checkable

from sandfleet.errors import ClaimError, InvalidArgument, NotFoundError, SandboxEnded, SandboxError
from sandfleet.skills.skill import Skill
from sandfleet.values.execution import CommandResult, Execution
from sandfleet.values.reviews import OnReview
from sandfleet.values.sandbox import Isolation, SandboxInfo
from sandfleet.values.suspension import Preemption
from sandfleet.values.tools import AnyTool, Tool, ToolPolicy
from sandfleet.values.usage import Health
from sandfleet.values.variables import Autosave, StateRestored

# Pauses between the looks at a sandbox that is not ready, in seconds. After the last one it counts as lost.
_PAUSES = (0.1, 0.5, 2.0, 5.0)
# What an executor takes with it.
WITH_EXECUTOR = ("processes", "tmp")
EVERYTHING = ("variables", *WITH_EXECUTOR)
# A sandbox's contract, as a claim asks for it.
_CONTRACTS: Mapping[str, Literal["autonomous", "brokered", "reviewed"]] = {
    "autonomous": "autonomous",
    "brokered": "brokered",
    "reviewed": "reviewed",
}


class Commands(Protocol):
    async def run(self, cmd: str | list[str], *, timeout: float | None = None) -> CommandResult: ...


class Environment(Protocol):
    """What the loop needs of a sandbox. `AsyncSandbox` has it."""

    @property
    def commands(self) -> Commands: ...

    async def run_code(
        self,
        code: str,
        *,
        language: str | None = None,
        timeout: float | None = None,
    ) -> Execution: ...

    async def health(self) -> Health: ...

    async def get_info(self) -> SandboxInfo: ...


class States(Protocol):
    @property
    def autosave(self) -> Autosave | None: ...

    async def resume(self) -> StateRestored | None: ...


@runtime_checkable
class Remembers(Protocol):
    """An environment whose variables outlive its executor."""

    @property
    def states(self) -> States: ...


@runtime_checkable
class Preempted(Protocol):
    """An environment that says when it was preempted."""

    @property
    def preemptions(self) -> tuple[Preemption, ...]: ...


@dataclass(frozen=True, slots=True)
class Replaced:
    """The environment is another one than before: why, and what did not come along."""

    reason: str
    lost: tuple[str, ...]
    workspace_kept: bool = True
    # What an automatic save has brought back, in words.
    restored: str = ""


class EnvironmentGone(Exception):
    """No environment could be had in its place."""


Claim = Callable[[SandboxInfo], Awaitable[tuple[Environment, bool]]]


class Serving(Protocol):
    """What `serve_tools` gives."""

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The tools, those of MCP servers with them."""


@runtime_checkable
class ServesTools(Protocol):
    """An environment whose code can call functions of this process."""

    async def serve_tools(
        self,
        tools: Sequence[AnyTool],
        *,
        policy: ToolPolicy | None = None,
        on_ask: ToolPolicy | None = None,
        calls_file: str | PathLike[str] | None = None,
    ) -> Serving: ...


@runtime_checkable
class Reviewed(Protocol):
    """An environment that may have a reviewer in this process."""

    @property
    def on_review(self) -> OnReview | None: ...


class Skills(Protocol):
    @property
    def loaded(self) -> tuple[Skill, ...]: ...


@runtime_checkable
class HasSkills(Protocol):
    """An environment that skills may have been loaded into."""

    @property
    def skills(self) -> Skills: ...


def skills_of(environment: Environment) -> tuple[str, ...]:
    """The skills in an environment, as Python without bodies."""
    loaded = environment.skills.loaded if isinstance(environment, HasSkills) else ()
    return tuple(skill.stub for skill in loaded)


def claiming(environment: Environment, *, brokered: bool = False) -> Claim:
    """How another environment is had in the place of this one. `brokered`: its code calls tools."""
    autosave = environment.states.autosave if isinstance(environment, Remembers) else None
    on_review = environment.on_review if isinstance(environment, Reviewed) else None
    return partial(claim_again, autosave=autosave, brokered=brokered, on_review=on_review)


async def claim_again(
    ended: SandboxInfo,
    *,
    autosave: Autosave | None = None,
    brokered: bool = False,
    on_review: OnReview | None = None,
) -> tuple[Environment, bool]:
    """Claim a sandbox like the one that ended, on its workspace when that was kept, else on an empty one.

    It has the same contract: an agent whose code is reviewed does not get out by ending its sandbox. Returns it, and
    whether the workspace came along. The lease is kept alive until the sandbox is killed.
    """
    from sandfleet.sandbox import AsyncSandbox

    async def claim(workspace_id: str) -> AsyncSandbox:
        return await AsyncSandbox.create(
            ended.template or "python",
            labels=ended.labels,
            contract=_CONTRACTS.get("brokered" if brokered else ended.contract, ""),
            on_review=on_review,
            isolation=Isolation.NAMESPACE if ended.isolation is Isolation.UNKNOWN else ended.isolation,
            workspace_id=workspace_id,
            keep_workspace=bool(workspace_id),
            keep_alive=True,
            autosave=autosave or False,
        )

    if ended.workspace_id:
        try:
            return await claim(ended.workspace_id), True
        except (ClaimError, NotFoundError):
            pass  # It was not kept, or another sandbox has it by now.
    return await claim(""), False


class Watched:
    """An environment that knows when it was replaced."""

    def __init__(self, environment: Environment, claim: Claim, sleep: Callable[[float], Awaitable[None]]) -> None:
        self.environment = environment
        self._claim = claim
        self._sleep = sleep
        self._known: SandboxInfo | None = None
        self._told: Preemption | None = None

    @property
    def is_reviewed(self) -> bool:
        """Whether a person looks at what is to run."""
        return self._known is not None and self._known.contract == "reviewed"

    def preempted(self) -> Preemption | None:
        """The last preemption, where it has not been told yet."""
        last = self._last_preemption()
        if last == self._told:
            return None
        self._told = last
        return last

    def _last_preemption(self) -> Preemption | None:
        found = self.environment.preemptions if isinstance(self.environment, Preempted) else ()
        return found[-1] if found else None

    async def check(self) -> Replaced | None:
        """Look whether it can run code; put it right when it cannot. Raises EnvironmentGone."""
        if self._known is not None and (await self.environment.health()).ready:
            return None
        return await self.recover("it did not answer")

    async def recover(self, reason: str) -> Replaced | None:
        """Wait until it can run code again, or claim another; None when it is the same as before."""
        change: Replaced | None = None
        for pause in _PAUSES:
            try:
                change = await self._look(reason) or change
                health = await self.environment.health()
            except SandboxEnded as error:
                return await self._claim_again(str(error))
            except (SandboxError, OSError) as error:
                reason = str(error)
            else:
                if health.ready:
                    return change
                reason = health.message or reason
            await self._sleep(pause)
        raise EnvironmentGone(f"cannot get the environment back: {reason}")

    async def _look(self, reason: str) -> Replaced | None:
        before, now = self._known, await self.environment.get_info()
        if before is not None and before.sandbox_uid != now.sandbox_uid:
            if self._last_preemption() != self._told:
                # The session was resumed with its variables: the next execution says which are back.
                self._known = now
                return None
            brought = await self._bring_back()
            self._known = now
            return replace(brought, reason=now.last_restart_reason or reason)
        self._known = now
        return None

    async def _bring_back(self) -> Replaced:
        """What is lost of the variables after a replacement, and what an automatic save has brought back of them."""
        if isinstance(self.environment, Remembers) and (found := await self.environment.states.resume()):
            return Replaced("", (*found.lost, *WITH_EXECUTOR), restored=found.words)
        return Replaced("", EVERYTHING)

    async def _claim_again(self, reason: str) -> Replaced:
        ended = self._known or SandboxInfo(sandbox_id="")
        try:
            self.environment, kept = await self._claim(ended)
            self._known = await self.environment.get_info()
            brought = await self._bring_back()
        except (SandboxError, OSError) as error:
            raise EnvironmentGone(f"cannot claim another sandbox: {error}") from error
        return replace(brought, reason=f"{reason}; another one was claimed", workspace_kept=kept)


class HostTools:
    """Tools of this process for the environment, which may be replaced."""

    def __init__(
        self,
        given: Sequence[AnyTool],
        policy: ToolPolicy | None,
        on_ask: ToolPolicy | None,
        calls_file: str | PathLike[str] | None = None,
    ) -> None:
        self._given: Sequence[AnyTool] = ()
        if given:
            from sandfleet.tools.sources import prepared

            self._given = prepared(given)
        self._tools: tuple[Tool, ...] = ()
        self._policy = policy
        self._on_ask = on_ask
        self._calls_file = None if calls_file is None else Path(calls_file)
        # Environments that have been served; a file has the calls of one.
        self._environments = 0
        self._served: Environment | None = None

    @property
    def stubs(self) -> tuple[str, ...]:
        """The tools that were served, for the prompt."""
        return tuple(tool.stub for tool in self._tools)

    async def serve(self, environment: Environment) -> None:
        """Offer them to its code, once. Raises SandboxError, and InvalidArgument where its code cannot call tools."""
        if not self._given or self._served is environment:
            return
        if not isinstance(environment, ServesTools):
            raise InvalidArgument("cannot serve tools: the sandbox of this agent has no serve_tools()")
        file = self._calls_file
        if file is not None and self._environments:
            file = file.with_name(f"{file.name}.{self._environments}")
        serving = await environment.serve_tools(self._given, policy=self._policy, on_ask=self._on_ask, calls_file=file)
        self._tools = serving.tools
        self._served = environment
        self._environments += 1

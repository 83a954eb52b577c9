"""Gymnasium: an environment whose actions are code; `SandfleetVectorEnv` steps many at once."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from functools import partial
from typing import Any, Unpack

from sandfleet import Execution, Outcome, Sandbox
from sandfleet.codeact.evidence import of_execution
from sandfleet.codeact.observe import Sizes, cut, report
from sandfleet.errors import InvalidArgument, LimitReached, SandboxError
from sandfleet.integrations._base import needed, not_lost
from sandfleet.values.execution import Blame
from sandfleet.values.options import CreateOptions

with needed("gymnasium", "gymnasium"):
    from gymnasium import Env, Wrapper, spaces
    from gymnasium.error import ResetNeeded
    from gymnasium.vector import AutoresetMode, SyncVectorEnv

# Characters of one action.
MOST_CODE = 64 * 1024
# What `cut` says of the part that it leaves out.
CUT_NOTE = 100
# Gives the reward of an execution, and whether the episode is at its end.
Reward = Callable[[Execution], tuple[float, bool]]
# Called with the new sandbox, the environment's generator and the `options` of a reset.
Task = Callable[..., tuple[str, Reward]]
Step = tuple[str, float, bool, bool, dict[str, Any]]


class SandfleetEnv(Env[str, str]):
    """An episode is one sandbox, an action the code of one cell, an observation the text that a model is to read.

    task     called at each reset as `task(sandbox, generator, **options)`. It returns the first observation, and a
             function that gives the reward of each `Execution` and whether the episode is at its end.
    limit    how many characters of an observation are shown.
    options  as of `Sandbox.create`.

    A failure of the platform truncates the episode with `info["infra_failed"]` and the cause in `info["why"]`, also
    where the reset has found no sandbox: leave such an episode out of the loss. What the task raises beside failures
    of the platform is raised.
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012  theirs

    def __init__(self, task: Task, *, limit: int = 16_000, **options: Unpack[CreateOptions]) -> None:
        options.setdefault("keep_alive", True)
        self._task, self._limit, self._options = task, limit, options
        self.action_space = _AnyText(MOST_CODE)
        self.observation_space = _AnyText(limit + CUT_NOTE, min_length=0)
        self.sandbox: Sandbox | None = None
        self._failure = ""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Begin an episode in a new sandbox."""
        super().reset(seed=seed)
        self.close()
        try:
            self.sandbox = Sandbox.create(**self._options)
            first, self._reward = self._task(self.sandbox, self.np_random, **(options or {}))
        except InvalidArgument:
            raise
        except SandboxError as error:
            self.close()
            self._failure = str(error)
            text, *_, info = self._failed()
            return text, info
        return cut(first, self._limit), _info("")

    def step(self, action: str) -> Step:
        """Run the code. Raises ResetNeeded after the end of an episode by a failure of the platform."""
        if self._failure:
            return self._end()
        if self.sandbox is None:
            raise ResetNeeded("cannot step: the episode is at its end, or has not begun: call reset")
        try:
            execution = self._run(self.sandbox, action)
            reward, is_terminal = self._reward(execution)
        except InvalidArgument:
            raise
        except SandboxError as error:
            self._failure = str(error)
            return self._end()
        text = "\n".join(report(of_execution(execution), Sizes(output=self._limit)))
        return cut(text, self._limit), float(reward), is_terminal, False, _info("", execution.outcome)

    def close(self) -> None:
        """End the sandbox."""
        sandbox, self.sandbox, self._failure = self.sandbox, None, ""
        if sandbox is not None:
            with suppress(SandboxError):
                sandbox.kill()

    def _run(self, sandbox: Sandbox, code: str) -> Execution:
        try:
            return not_lost(sandbox.run_code(code))
        except (InvalidArgument, LimitReached) as error:
            return Execution("", Outcome.DENIED, Blame.CODE, error.reason, str(error))

    def _end(self) -> Step:
        ended = self._failed()
        self.close()
        return ended

    def _failed(self) -> Step:
        text = f"the sandbox failed, which is no fault of the code: {self._failure}"
        return cut(text, self._limit), 0.0, False, True, _info(self._failure, Outcome.LOST)


class SandfleetVectorEnv(SyncVectorEnv):
    """As Gymnasium's SyncVectorEnv, with the steps and resets of all environments side by side, in threads."""

    envs: list[_Ahead]

    def __init__(self, env_fns: Sequence[Callable[[], Env[str, str]]], **options: Any) -> None:
        self._threads = ThreadPoolExecutor(len(env_fns), "sandfleet-gymnasium")
        super().__init__([partial(_Ahead, make, self._threads) for make in env_fns], **options)

    def reset(self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None) -> Any:
        passed = dict(options or {})
        mask = passed.pop("reset_mask", None)
        seeds = seed if isinstance(seed, list) else [seed if seed is None else seed + n for n in range(self.num_envs)]
        for number, (env, own) in enumerate(zip(self.envs, seeds, strict=True)):
            if mask is None or mask[number]:
                env.begin(env.resets, seed=own, options=passed)
        return super().reset(seed=seed, options=options)

    def step(self, actions: Any) -> Any:
        for env, action, is_over in zip(self.envs, actions, self._autoreset_envs, strict=True):
            if is_over and self.autoreset_mode is AutoresetMode.NEXT_STEP:
                env.begin(env.resets)
            else:
                env.begin(env.steps, action, resets=self.autoreset_mode is AutoresetMode.SAME_STEP)
        return super().step(actions)

    def close_extras(self, **_: Any) -> None:
        list(self._threads.map(_Ahead.close, self.envs))
        self._threads.shutdown()


class _Ahead(Wrapper[str, str, str, str]):
    """Hands out what was begun in a thread before."""

    def __init__(self, make: Callable[[], Env[str, str]], threads: ThreadPoolExecutor) -> None:
        super().__init__(make())
        self._threads = threads
        self._begun = Future[deque[Any]]()
        self._begun.set_result(deque())

    def begin(self, call: Callable[..., deque[Any]], *args: Any, **options: Any) -> None:
        # One may be left where the step of another environment has raised.
        wait([self._begun])
        self._begun = self._threads.submit(call, *args, **options)

    def resets(self, **options: Any) -> deque[Any]:
        return deque([self.env.reset(**options)])

    def steps(self, action: str, *, resets: bool) -> deque[Any]:
        step = self.env.step(action)
        return deque([step, self.env.reset()] if resets and (step[2] or step[3]) else [step])

    def reset(self, **_: Any) -> Any:
        return self._begun.result().popleft()

    def step(self, action: str) -> Any:
        return self._begun.result().popleft()


class _AnyText(spaces.Text):
    """A text of any characters: those of the base class are samples."""

    def contains(self, x: Any) -> bool:
        return isinstance(x, str) and self.min_length <= len(x) <= self.max_length


def _info(failure: str, outcome: Outcome = Outcome.OK) -> dict[str, Any]:
    return {"infra_failed": bool(failure), "why": failure, "outcome": outcome.value}

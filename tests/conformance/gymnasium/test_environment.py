"""Episodes, failures of the platform, and Gymnasium's rules of vectors."""

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import numpy as np
import pytest
from gymnasium.error import ResetNeeded
from gymnasium.vector import AutoresetMode
from gymnasium.wrappers import TimeLimit
from sandfleet import Execution, InvalidArgument, Sandbox
from sandfleet.errors import UnavailableError
from sandfleet.integrations.gymnasium import Reward, SandfleetEnv, SandfleetVectorEnv


def task(sandbox: Sandbox, generator: Any, bound: int = 1000) -> tuple[str, Reward]:
    number = int(generator.integers(bound))
    sandbox.files.write("number", str(number))

    def reward(execution: Execution) -> tuple[float, bool]:
        is_solved = execution.text == str(number)
        return float(is_solved), is_solved

    return f"number {number}", reward


@pytest.fixture
def env() -> Iterator[SandfleetEnv]:
    with closing(SandfleetEnv(task)) as made:
        yield made


def test_an_episode_ends_with_the_right_answer(env: SandfleetEnv) -> None:
    first, info = env.reset(seed=1, options={"bound": 1})
    assert (first, info["infra_failed"]) == ("number 0", False)
    observation, reward, terminated, truncated, info = env.step("number = int(open('number').read()); 1 / number")
    assert (reward, terminated, truncated, info["outcome"]) == (0.0, False, False, "error")
    assert observation.startswith("ERROR: ZeroDivisionError")
    assert env.step("number") == (
        "ok\nresult: 0",
        1.0,
        True,
        False,
        {"infra_failed": False, "why": "", "outcome": "ok"},
    )


def test_what_the_code_does_to_its_interpreter_is_its_own_failure(env: SandfleetEnv) -> None:
    env.reset()
    assert env.step("import os; os._exit(1)")[1:4] == (0.0, False, False)
    observation, *_, info = env.step("x" * 20_000_000)
    assert (info["infra_failed"], info["outcome"]) == (False, "denied")
    assert env.observation_space.contains(observation)


def test_death_truncates_the_episode_and_leaves_the_loss(env: SandfleetEnv) -> None:
    env.reset()
    assert env.sandbox is not None
    env.sandbox.kill()
    observation, reward, terminated, truncated, info = env.step("1")
    assert (reward, terminated, truncated, info["infra_failed"]) == (0.0, False, True, True)
    assert observation == f"the sandbox failed, which is no fault of the code: {info['why']}"
    with pytest.raises(ResetNeeded):
        env.step("1")
    assert env.reset()[1]["infra_failed"] is False


def test_an_episode_without_a_sandbox_is_truncated(env: SandfleetEnv, monkeypatch: pytest.MonkeyPatch) -> None:
    def create(**_: object) -> None:
        raise UnavailableError("cannot create a sandbox: the fleet is full")

    monkeypatch.setattr(Sandbox, "create", create)
    assert env.reset()[1] == {
        "infra_failed": True,
        "why": "cannot create a sandbox: the fleet is full",
        "outcome": "lost",
    }
    assert env.step("1")[2:4] == (False, True)


def test_mistakes_of_the_program_are_raised() -> None:
    with pytest.raises(InvalidArgument), closing(SandfleetEnv(task, memory="no size")) as env:
        env.reset()


def make() -> TimeLimit[Any, Any]:
    return TimeLimit(SandfleetEnv(task), 2)


def test_a_vector_resets_its_environments_by_itself() -> None:
    with closing(SandfleetVectorEnv([make] * 2)) as envs:
        first, _ = envs.reset(seed=3)
        assert first == envs.reset(seed=[3, 4])[0] != envs.reset(seed=[4, 3])[0]
        solve = "int(open('number').read())"
        _, rewards, terminated, *_ = envs.step([solve, "1 / 0"])
        assert (rewards.tolist(), terminated.tolist()) == ([1.0, 0.0], [True, False])
        observed, _, terminated, truncated, _ = envs.step(["", "1 / 0"])
        assert observed[0].startswith("number ")
        assert (terminated.tolist(), truncated.tolist()) == ([False, False], [False, True])
        masked, _ = envs.reset(options={"reset_mask": np.array([False, True]), "bound": 1})
        assert masked == (observed[0], "number 0")


def test_a_vector_resets_in_the_same_step_and_raises_what_a_task_raises() -> None:
    with closing(SandfleetVectorEnv([make] * 2, autoreset_mode=AutoresetMode.SAME_STEP)) as envs:
        envs.reset()
        observed, _, terminated, _, infos = envs.step(["int(open('number').read())", "1"])
        assert (terminated.tolist(), observed[0][:7]) == ([True, False], "number ")
        assert infos["final_obs"][0].startswith("ok")
        with pytest.raises(TypeError, match="unknown"):
            envs.reset(options={"unknown": 1})
        assert envs.reset(options={"bound": 1})[0] == ("number 0",) * 2

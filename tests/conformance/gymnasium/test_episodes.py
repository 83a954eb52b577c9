"""Episodes while executors are killed: each one is solved, or told apart. SANDFLEET_EPISODES=500 is the long run."""

import os
import random
import signal
from contextlib import closing
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
from gymnasium.wrappers import TimeLimit
from sandfleet import Execution, Sandbox
from sandfleet.integrations.gymnasium import Reward, SandfleetEnv, SandfleetVectorEnv

EPISODES = int(os.environ.get("SANDFLEET_EPISODES", "16"))
WIDTH = 8
EVERY = 2.0
LABELS = {"run": "episodes"}


def processes() -> dict[int, tuple[int, bytes]]:
    """Each process with its parent and command."""
    table = {}
    for each in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((each / "stat").read_text().rpartition(") ")[2].split()[1])
            table[int(each.name)] = parent, (each / "cmdline").read_bytes()
        except OSError:
            continue
    return table


def executors() -> list[int]:
    """Children of the host of executors, which is a child of this process's fleet."""
    table = processes()
    fleets = {pid for pid, (parent, _) in table.items() if parent == os.getpid()}
    hosts = {pid for pid, (parent, command) in table.items() if parent in fleets and b"sandfleet_executor" in command}
    return [pid for pid, (parent, command) in table.items() if parent in hosts and b"sandfleet_executor" in command]


def task(sandbox: Sandbox, generator: Any) -> tuple[str, Reward]:
    number = int(generator.integers(1000))
    sandbox.files.write("number", str(number))

    def reward(execution: Execution) -> tuple[float, bool]:
        is_solved = execution.text == str(number + 1)
        return float(is_solved), is_solved

    return "Add one to the number.", reward


def killing(over: Event, killed: list[int]) -> None:
    chance = random.Random(7)
    while not over.wait(EVERY):
        if victims := executors():
            killed.append(chance.choice(victims))
            os.kill(killed[-1], signal.SIGKILL)


@pytest.mark.timeout(1800)
def test_episodes_are_solved_or_told_apart_while_executors_are_killed() -> None:
    over, killed = Event(), list[int]()
    solved = failed = others = 0
    thread = Thread(target=killing, args=(over, killed))
    with closing(SandfleetVectorEnv([lambda: TimeLimit(SandfleetEnv(task, labels=LABELS), 3)] * WIDTH)) as envs:
        envs.reset(seed=1)
        thread.start()
        over_before, begun = [False] * WIDTH, [False] * WIDTH
        while solved + failed + others < EPISODES or not failed:
            # The second step of an episode needs the variable of the first.
            actions = ["x + 1" if each else "x = int(open('number').read())" for each in begun]
            _, rewards, terminated, truncated, infos = envs.step(actions)
            ended = terminated | truncated
            failed += int((ended & infos["infra_failed"]).sum())
            solved += int((ended & (rewards == 1.0)).sum())
            others += int((ended & (rewards != 1.0) & ~infos["infra_failed"]).sum())
            # A step behind an end is the reset.
            begun = [not was_over and not is_over for was_over, is_over in zip(over_before, ended, strict=True)]
            over_before = ended.tolist()
    over.set()
    thread.join()
    print(f"{solved} solved, {failed} told apart, {others} others, {len(killed)} executors killed")
    assert others == 0
    assert Sandbox.list("run=episodes") == []

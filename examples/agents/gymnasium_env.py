"""Episodes of Gymnasium whose actions are code, four at a time. The policy is scripted: put your model in its place."""

from typing import Any

from gymnasium.wrappers import TimeLimit
from sandfleet import Execution, Sandbox
from sandfleet.integrations.gymnasium import Reward, SandfleetEnv, SandfleetVectorEnv

SCRIPT = ("numbers = list(map(int, open('numbers.txt')))", "print(sum(numbers))")


def task(sandbox: Sandbox, generator: Any) -> tuple[str, Reward]:
    """Put a task into a new sandbox; the answer stays here."""
    numbers = generator.integers(100, size=5)
    sandbox.files.write("numbers.txt", "\n".join(map(str, numbers)))

    def reward(execution: Execution) -> tuple[float, bool]:
        is_solved = execution.stdout.strip() == str(sum(numbers))
        return float(is_solved), is_solved

    return "Print the sum of the numbers in numbers.txt.", reward


def main() -> list[float]:
    """Run an episode in each environment, and return the rewards that count."""
    make = lambda: TimeLimit(SandfleetEnv(task), 10)  # noqa: E731
    environments = SandfleetVectorEnv([make] * 4)
    rewards = []
    environments.reset(seed=7)
    for code in SCRIPT:
        _, gained, terminated, truncated, infos = environments.step([code] * 4)
        # Failures of the platform say nothing of the policy: they leave the loss.
        ended = (terminated | truncated) & ~infos["infra_failed"]
        rewards += gained[ended].tolist()
    environments.close()
    return rewards


if __name__ == "__main__":
    print(main())

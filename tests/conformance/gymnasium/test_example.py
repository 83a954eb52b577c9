"""The example runs: episodes with a scripted policy."""

from runpy import run_path


def test_each_episode_is_solved() -> None:
    assert run_path("examples/agents/gymnasium_env.py")["main"]() == [1.0] * 4

"""The example runs: an agent with a scripted model."""

from runpy import run_path


def test_the_agent_submits_what_its_sandbox_has_said() -> None:
    assert run_path("examples/agents/mini_swe_agent.py")["main"]() == "28\n"

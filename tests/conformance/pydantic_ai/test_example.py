"""The example runs: an agent with a scripted model."""

from runpy import run_path


def test_the_agent_answers_from_its_sandbox() -> None:
    assert run_path("examples/agents/pydantic_ai_agent.py")["main"]() == "It is 42."

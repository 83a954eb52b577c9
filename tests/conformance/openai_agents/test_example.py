"""The example runs: an agent with a scripted model."""

from runpy import run_path


async def test_the_agent_answers_from_its_sandbox() -> None:
    answer, output = await run_path("examples/agents/openai_agents_agent.py")["main"]()
    assert answer == "It is 42."
    assert output.endswith("Output:\n42\n")

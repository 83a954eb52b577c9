"""The example runs: an agent with a scripted model, whose second block uses a variable of the first."""

from runpy import run_path


async def test_the_agent_answers_from_its_sandbox() -> None:
    said = await run_path("examples/agents/google_adk_agent.py")["main"]()
    assert said[1:] == ["Code execution result:\n42\n\n", "It is 42."]

"""The example runs: an agent with a scripted model."""

from runpy import run_path


async def test_the_tools_of_the_agent_share_a_sandbox() -> None:
    assert await run_path("examples/agents/ag2_agent.py")["main"]() == ("It is 42.", "42")

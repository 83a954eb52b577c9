"""An agent of Google ADK whose code runs in a sandbox. The model is scripted: name yours in its place."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_response import LlmResponse
from google.adk.runners import InMemoryRunner
from google.genai.types import Content, Part
from sandfleet.integrations.google_adk import SandfleetCodeExecutor

REPLIES = iter(("```python\nanswer = 6 * 7\n```", "```python\nprint(answer)\n```", "It is 42."))


class Scripted(BaseLlm):
    """A model that gives the replies, one after the other."""

    async def generate_content_async(self, *_: Any, **__: Any) -> AsyncGenerator[LlmResponse, None]:
        yield LlmResponse(content=Content(role="model", parts=[Part(text=next(REPLIES))]))


async def main() -> list[str]:
    """Run the agent, and return what its code has said and what it answers."""
    executor = SandfleetCodeExecutor()
    agent = LlmAgent(name="calculator", model=Scripted(model="scripted"), code_executor=executor)
    runner = InMemoryRunner(agent=agent, app_name="example")
    session = await runner.session_service.create_session(app_name="example", user_id="user")
    question = Content(role="user", parts=[Part(text="How much is 6 * 7?")])
    said = []
    async for event in runner.run_async(user_id="user", session_id=session.id, new_message=question):
        for part in event.content.parts if event.content else ():
            said += [part.code_execution_result.output] if part.code_execution_result else [part.text] * bool(part.text)
    executor.close()
    return said


if __name__ == "__main__":
    print(asyncio.run(main()))

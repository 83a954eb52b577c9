"""An agent of AG2 whose tools run in a sandbox. The model is scripted: name yours in its place."""

import asyncio

from ag2 import Agent
from ag2.events import ToolCallEvent
from ag2.testing import TestConfig
from ag2.tools import SandboxCodeTool, SandboxShellTool
from sandfleet.integrations.ag2 import SandfleetEnvironment

SCRIPT = (
    ToolCallEvent(
        name="run_code", arguments='{"code": "open(\'answer\', \'w\').write(str(6 * 7))", "language": "python"}'
    ),
    "It is 42.",
)


async def main() -> tuple[str, str]:
    """Run the agent. Return its answer, and what it has left in the sandbox."""
    async with SandfleetEnvironment() as environment:
        tools = [SandboxCodeTool(environment), SandboxShellTool(environment)]
        reply = await Agent("calculator", config=TestConfig(*SCRIPT), tools=tools).ask("How much is 6 * 7?")
        left = await environment.exec(["cat", "answer"])
    return str(reply.body), left.output


if __name__ == "__main__":
    print(asyncio.run(main()))

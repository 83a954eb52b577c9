"""A SandboxAgent of the OpenAI Agents SDK in a sandbox. The model is scripted: name yours in its place."""

import asyncio

from agents import RunConfig, Runner, set_tracing_disabled
from agents.sandbox import SandboxAgent, SandboxRunConfig
from agents.sandbox.capabilities import Shell
from agents.testing import ScriptedModel, assistant_message, function_call
from sandfleet.integrations.openai_agents import SandfleetClient

MODEL = ScriptedModel(
    [
        [function_call("exec_command", {"cmd": "echo $((6 * 7)) | tee answer.txt"}, call_id="1")],
        [assistant_message("It is 42.")],
    ]
)


async def main() -> tuple[str, str]:
    """Run the agent. Return its answer, and the last that it has seen of the sandbox."""
    # Traces would go to OpenAI.
    set_tracing_disabled(True)
    agent = SandboxAgent(name="Calculator", model=MODEL, capabilities=[Shell()])
    config = RunConfig(sandbox=SandboxRunConfig(client=SandfleetClient()))
    result = await Runner.run(agent, "How much is 6 * 7?", run_config=config)
    return str(result.final_output), str(result.to_input_list()[-2]["output"])


if __name__ == "__main__":
    print(asyncio.run(main()))

"""An agent of Pydantic AI whose workspace is a sandbox. The model is scripted: name yours in its place."""

from pydantic_ai import Agent, RunContext
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from sandfleet.integrations.pydantic_ai import SandfleetWorkspace


def script(messages: list[ModelMessage], _info: AgentInfo) -> ModelResponse:
    """Call the tool, then answer with what it has returned."""
    last = messages[-1].parts[-1]
    if isinstance(last, ToolReturnPart):
        return ModelResponse([TextPart(f"It is {last.content}.")])
    return ModelResponse([ToolCallPart("shell", {"command": "echo $((6 * 7)) | tee answer.txt"})])


agent = Agent(FunctionModel(script), capabilities=[SandfleetWorkspace()])


@agent.tool
async def shell(context: RunContext, command: str) -> str:
    """Run a line of shell."""
    ended = await context.workspace.run(command, shell=True)  # noqa: S604  in the sandbox
    return str(ended.stdout).strip()


def main() -> str:
    """Run the agent. Its sandbox ends with the lease, once the run is forgotten."""
    return str(agent.run_sync("How much is 6 * 7?").output)


if __name__ == "__main__":
    print(main())

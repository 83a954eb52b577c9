"""An evaluation of Inspect AI whose tools run in a sandbox. The model is scripted: name yours in its place."""

from inspect_ai import Task, eval  # noqa: A004  their name
from inspect_ai.dataset import Sample
from inspect_ai.log import EvalLog
from inspect_ai.model import ModelOutput, ModelUsage, get_model
from inspect_ai.scorer import includes
from inspect_ai.solver import generate, use_tools
from inspect_ai.tool import bash
from sandfleet.integrations import inspect as _registered  # noqa: F401  an install registers it by itself


def main(log_dir: str = "logs") -> EvalLog:
    """Run one sample, in a sandbox of its own."""
    call = ModelOutput.for_tool_call("mockllm/model", "bash", {"command": "echo $((6 * 7)) > answer; cat answer"})
    answer = ModelOutput.from_content("mockllm/model", "42")
    # Inspect would fetch a tokenizer to count what no model has counted.
    call.usage = answer.usage = ModelUsage()
    task = Task(
        dataset=[Sample("How much is 6 * 7?", target="42")],
        solver=[use_tools(bash(timeout=30)), generate()],
        scorer=includes(),
        sandbox="sandfleet",
    )
    model = get_model("mockllm/model", custom_outputs=[call, answer])
    (log,) = eval(task, model=model, log_dir=log_dir, display="none")
    return log


if __name__ == "__main__":
    print(main().status)

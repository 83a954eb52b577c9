"""mini-swe-agent whose commands run in a sandbox. The model is scripted: put yours in its place."""

from minisweagent.agents.default import DefaultAgent
from minisweagent.models.test_models import DeterministicModel, make_output
from sandfleet.integrations.mini_swe_agent import SandfleetEnvironment

SCRIPT = (
    "sed -i s/29/28/ calendar.py && python calendar.py",
    "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT && python calendar.py",
)


def main() -> str:
    """Run the agent on a file, and return what it submits."""
    environment = SandfleetEnvironment(timeout=60)
    environment.sandbox.files.write("calendar.py", "print(29)\n")
    agent = DefaultAgent(
        DeterministicModel(outputs=[make_output("A step.", [{"command": line}]) for line in SCRIPT]),
        environment,
        system_template="You work on {{system}} by commands.",
        instance_template="{{task}}",
    )
    submission = agent.run("calendar.py has to print 28.")["submission"]
    environment.cleanup()
    return str(submission)


if __name__ == "__main__":
    print(main())

"""Commands, their deadline, templates, and failures of the platform, which end a run."""

from collections.abc import Iterator

import pytest
from minisweagent.agents.default import DefaultAgent
from minisweagent.environments import get_environment
from minisweagent.models.test_models import DeterministicModel, make_output
from sandfleet.errors import SandboxEnded
from sandfleet.integrations.mini_swe_agent import SandfleetEnvironment


@pytest.fixture
def environment() -> Iterator[SandfleetEnvironment]:
    settings = {
        "environment_class": "sandfleet.integrations.mini_swe_agent.SandfleetEnvironment",
        "env": {"WHO": "agent"},
        "labels": {"run": "mini"},
    }
    made = get_environment(settings)
    assert isinstance(made, SandfleetEnvironment)
    yield made
    made.cleanup()


def test_settings_reach_the_sandbox(environment: SandfleetEnvironment) -> None:
    assert environment.sandbox.get_info().labels["run"] == "mini"
    ended = environment.execute({"command": "echo $WHO; echo error >&2; exit 3"})
    assert ended == {"output": "agent\nerror\n", "returncode": 3, "exception_info": ""}
    assert environment.serialize()["info"]["config"]["environment"]["labels"] == {"run": "mini"}


def test_a_late_command_is_told_to_the_model(environment: SandfleetEnvironment) -> None:
    late = environment.execute({"command": "echo begun; sleep 60"}, timeout=1)
    assert (late["output"], late["returncode"]) == ("begun\n", -1)
    assert late["exception_info"].startswith("An error occurred while executing the command: ")


def test_templates_name_the_sandbox_and_nothing_of_this_machine(
    environment: SandfleetEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET", "secret")
    variables = environment.get_template_vars(task="t")
    assert (variables["system"], variables["node"], variables["task"]) == ("Linux", "sandbox", "t")
    assert "SECRET" not in variables


def test_a_sandbox_that_ends_in_the_middle_ends_the_run(environment: SandfleetEnvironment) -> None:
    environment.get_template_vars()
    environment.sandbox.kill()
    model = DeterministicModel(outputs=[make_output("", [{"command": "true"}])])
    agent = DefaultAgent(model, environment, system_template="", instance_template="")
    with pytest.raises(SandboxEnded):
        agent.run("t")
    assert agent.messages[-1]["extra"]["exit_status"] == "SandboxEnded"

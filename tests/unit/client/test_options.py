"""Options of calls: keyword arguments that are declared once."""

import inspect

import pytest
import sandfleet
from sandfleet import (
    AsyncSandbox,
    CodeOptions,
    ContextOptions,
    CreateOptions,
    ExplainOptions,
    Fleet,
    ListenOptions,
    RunOptions,
    Sandbox,
)
from sandfleet._fleets.fleet import AsyncFleet
from sandfleet._sync.commands import Commands
from sandfleet.resources.commands import AsyncCommands
from sandfleet.testing import FakeFleet

CALLS = [
    (AsyncSandbox.create, CreateOptions),
    (Sandbox.create, CreateOptions),
    (AsyncSandbox.run_code, CodeOptions),
    (Sandbox.run_code, CodeOptions),
    (AsyncCommands.run, RunOptions),
    (Commands.run, RunOptions),
    (AsyncFleet.explain, ExplainOptions),
    (Fleet.explain, ExplainOptions),
    (AsyncSandbox.create_context, ContextOptions),
    (Sandbox.create_context, ContextOptions),
]


@pytest.mark.parametrize(("call", "options"), CALLS)
def test_a_call_says_which_options_it_takes(call, options: type) -> None:
    assert inspect.signature(call).parameters["options"].annotation == f"Unpack[{options.__name__}]"
    assert f"`{options.__name__}`" in inspect.getdoc(call)
    assert getattr(sandfleet, options.__name__) is options


@pytest.mark.parametrize(
    "options", [CreateOptions, CodeOptions, ContextOptions, ExplainOptions, ListenOptions, RunOptions]
)
def test_every_option_is_described(options: type) -> None:
    words = inspect.getdoc(options)
    assert [name for name in options.__annotations__ if name not in words] == []


@pytest.fixture
async def sandbox():
    async with (
        FakeFleet() as fake,
        await AsyncFleet.connect(fake.address) as fleet,
        await AsyncSandbox.create(fleet=fleet) as made,
    ):
        yield made


async def test_an_unknown_option_is_refused_before_anything_is_sent(sandbox: AsyncSandbox) -> None:
    with pytest.raises(TypeError, match=r"create\(\) got an unexpected keyword argument 'time'"):
        await AsyncSandbox.create(time=1)
    with pytest.raises(TypeError, match=r"run_code\(\) got an unexpected keyword argument 'stdin'"):
        await sandbox.run_code("1", stdin="x")
    with pytest.raises(TypeError, match=r"run\(\) got an unexpected keyword argument 'shell'"):
        await sandbox.commands.run("true", shell=True)


def test_an_unknown_option_of_the_sync_client_is_refused() -> None:
    with pytest.raises(TypeError, match=r"create\(\) got an unexpected keyword argument 'time'"):
        Sandbox.create(time=1)
    with pytest.raises(TypeError, match=r"'env_vars': did you mean envs\?"):
        Sandbox.create(env_vars={})

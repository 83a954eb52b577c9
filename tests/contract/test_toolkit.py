"""Prepared tools on a real sandbox: what a model gets of each, what is refused in words, what is bounded."""

import inspect
import re
from collections.abc import AsyncIterator, Iterator
from typing import get_type_hints

import pytest
from sandfleet import AsyncFleet, AsyncSandbox, AsyncToolkit, InvalidArgument, Sandbox, SandboxEnded, toolkit
from sandfleet._fleets.embedded import Options, Process
from support.client.served import served_fleet

NAMES = ["run_code", "run_command", "read", "write", "edit", "glob", "grep"]


@pytest.fixture(scope="module")
def served() -> Iterator[Process]:
    with served_fleet(Options(pool_size=1)) as process:
        yield process


@pytest.fixture
async def sandbox(fleet: AsyncFleet) -> AsyncIterator[AsyncSandbox]:
    async with AsyncSandbox.create(fleet=fleet) as made:
        yield made


@pytest.fixture
def kit(sandbox: AsyncSandbox) -> AsyncToolkit:
    return toolkit(sandbox, limit=1000)


async def test_code_keeps_its_variables_and_a_command_says_how_it_ended(kit: AsyncToolkit) -> None:
    assert await kit.call("run_code", {"code": "x = 20"}) == "ok"
    assert await kit.call("run_code", '{"code": "x + 1"}') == "ok\nresult: 21"
    assert "ERROR: ZeroDivisionError" in await kit.call("run_code", {"code": "1 / 0"})
    assert "exit code 3" in await kit.call("run_command", {"command": "exit 3"})
    assert "TIMEOUT" in await kit.call("run_command", {"command": "sleep 60", "timeout": 0.2})


@pytest.mark.parametrize(
    ("old", "options", "refusal"),
    [
        ("c", {}, "cannot edit a.txt: the text does not occur in it; read it again"),
        ("one two", {}, "one that differs in white space alone begins at line 1"),
        ("b", {}, "the text occurs 2 times, at lines 2, 3; give more of the text around it, or set replace_all"),
        ("", {}, "the old text is empty"),
        ("new", {}, "the new text is the old one"),
        ("one  two", {}, None),
        ("b", {"replace_all": True}, None),
    ],
)
async def test_an_edit_replaces_what_occurs_once_and_refuses_the_rest_in_words(
    kit: AsyncToolkit, sandbox: AsyncSandbox, old: str, options: dict[str, bool], refusal: str | None
) -> None:
    before = "one  two\r\nb\nb\n"
    await sandbox.files.write("a.txt", before)
    told = await kit.call("edit", {"path": "a.txt", "old": old, "new": "new", **options})
    assert told.is_error is (refusal is not None)
    assert (refusal or "edited a.txt") in told
    expected = before if refusal else before.replace(old, "new")
    assert await sandbox.files.read("a.txt", format="bytes") == expected.encode()


async def test_a_long_result_is_cut_and_its_rest_can_be_read(kit: AsyncToolkit) -> None:
    told = await kit.call("run_code", {"code": "for i in range(5000): print(i)"})
    assert len(told) < 1300
    path = re.search(r"/tmp/toolkit/\w+\.txt", told)[0]
    assert "2500" in await kit.call("grep", {"pattern": "^2500$", "path": path})


async def test_a_file_is_read_in_pieces_until_its_end(kit: AsyncToolkit, sandbox: AsyncSandbox) -> None:
    text = "".join(f"line {number} é\n" for number in range(1, 301))
    await sandbox.files.write("long.txt", text)
    got, offset = "", 1
    while offset:
        told = await kit.call("read", {"path": "long.txt", "offset": offset})
        assert len(told) < 1100
        got += told.partition("[there is more")[0]
        more = re.search(r"offset=(\d+)", told)
        offset = int(more[1]) if more else 0
    assert got == text
    assert "its last line is 300" in await kit.call("read", {"path": "long.txt", "offset": 900})
    await sandbox.files.write("wide.txt", "x" * 5000 + "\nend\n")
    assert "[line 1 is longer: these are its first 1,000 characters; go on with offset=2]" in await kit.call(
        "read", {"path": "wide.txt"}
    )
    assert await kit.call("read", {"path": "wide.txt", "offset": 2}) == "end\n"
    await sandbox.files.write("binary", b"\0\1")
    assert (await kit.call("read", {"path": "binary"})).is_error


async def test_files_and_lines_are_found(kit: AsyncToolkit) -> None:
    await kit["write"]("src/a.py", "one = 1\ntwo = 2\n")
    assert await kit["glob"]("**/*.py") == "/workspace/src/a.py"
    assert await kit["grep"]("^t.o", include="**/*.py") == "/workspace/src/a.py:2: two = 2"
    assert await kit["grep"]("three") == "nothing was found"
    assert (await kit["grep"]("(")).is_error


@pytest.mark.parametrize(
    ("name", "arguments", "why"),
    [
        ("fly", {}, "the tools are run_code"),
        ("read", "{", "no JSON"),
        ("read", "[]", "no JSON object"),
        ("read", {}, "path is missing"),
        ("read", {"path": "a", "depth": 1}, "depth is unknown"),
        ("read", {"path": 1}, "path is no string"),
        ("read", {"path": "a", "offset": True}, "offset is no integer"),
        ("read", {"path": "a", "offset": None}, "no such file"),
    ],
)
async def test_a_bad_call_is_refused_in_words(kit: AsyncToolkit, name: str, arguments: object, why: str) -> None:
    told = await kit.call(name, arguments)
    assert told.is_error
    assert why in told.lower().replace("json", "JSON")


async def test_what_the_platform_cannot_do_is_raised(kit: AsyncToolkit, sandbox: AsyncSandbox) -> None:
    await sandbox.kill()
    with pytest.raises(SandboxEnded):
        await kit.call("read", {"path": "a"})


def test_blocking_functions_and_schemas_say_the_same(served: Process) -> None:
    from sandfleet import Fleet

    with Fleet.connect(served.address) as fleet, Sandbox.create(fleet=fleet) as sandbox:
        kit = toolkit(sandbox)
        assert [each.__name__ for each in kit.functions] == NAMES == [each.name for each in kit.schemas]
        assert kit["run_code"]("6 * 7") == "ok\nresult: 42"
        for function, openai, anthropic in zip(kit.functions, kit.openai, kit.anthropic, strict=True):
            parameters = inspect.signature(function).parameters
            assert list(parameters) == list(openai["function"]["parameters"]["properties"])
            assert anthropic["input_schema"] == openai["function"]["parameters"]
            assert get_type_hints(function)["return"] is str
            assert all(f"    {name}: " in function.__doc__ for name in parameters)
        with pytest.raises(InvalidArgument, match="limit 0"):
            toolkit(sandbox, limit=0)

"""`sandfleet mcp`: the tools of a sandbox, as the official MCP client calls them over stdio."""

import asyncio
import base64
import os
import subprocess
import sys
import urllib.request
from contextlib import asynccontextmanager

import pytest
from sandfleet import Fleet, Sandbox
from sandfleet._fleets.embedded import Options, Process

pytest.importorskip("mcp")
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

PNG = base64.b64encode(bytes.fromhex("89504e470d0a1a0a") + b"picture").decode()


@pytest.fixture(scope="module")
def address():
    fleet = Process(Options(pool_size=1))
    yield fleet.address
    fleet.stop()


@pytest.fixture
def session(address):
    @asynccontextmanager
    async def opened(*words, mode="auto"):
        env = {**os.environ, "SANDFLEET_ADDRESS": address}
        started = StdioServerParameters(command=sys.executable, args=["-m", "sandfleet", "mcp", *words], env=env)
        async with Client(stdio_client(started), mode=mode) as client:
            yield client

    return opened


def text(answer):
    return "\n".join(one.text for one in answer.content if one.type == "text")


def claimed(fleet):
    return [one for one in fleet.list() if str(one.state) not in ("warm", "starting")]


async def of(client, name, /, **arguments):
    answer = await client.call_tool(name, arguments)
    assert not answer.is_error, text(answer)
    return answer


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_variables_last_from_call_to_call_and_end_with_the_session(session, mode, address):
    fleet = Fleet.connect(address)
    async with session(mode=mode) as client:
        assert claimed(fleet) == []
        await of(client, "run_code", code="x = 41")
        answer = await of(client, "run_code", code="print('hi')\nx + 1")
        assert text(answer) == "hi\n42"
        told = answer.structured_content
        assert (told["outcome"], told["text"], told["stdout"], told["cut"]) == ("ok", "42", "hi\n", False)
        assert text(await of(client, "run_code", code="echo $((6 * 7))", language="bash")) == "42"
        async with session() as other:
            failed = await of(other, "run_code", code="x")
            assert failed.structured_content["outcome"] == "error"
            assert "NameError" in failed.structured_content["error"]
            assert len(claimed(fleet)) == 2
    assert claimed(fleet) == []


async def test_pictures_come_as_pictures(session):
    code = f"import base64; from IPython.display import Image; Image(data=base64.b64decode('{PNG}'), format='png')"
    async with session() as client:
        (shown,) = [one for one in (await of(client, "run_code", code=code)).content if one.type == "image"]
        assert (shown.mime_type, shown.data) == ("image/png", PNG)
        await of(client, "run_code", code=f"open('a.png', 'wb').write(base64.b64decode('{PNG}'))")
        (shown,) = (await of(client, "read_file", path="a.png")).content
        assert (shown.mime_type, shown.data) == ("image/png", PNG)


async def test_long_output_is_cut_and_can_be_read_page_by_page(session):
    async with session() as client:
        for name, given in (
            ("run_code", {"code": "print('a' * 30_000 + 'b' * 30_000)"}),
            ("run_command", {"command": "printf 'a%.0s' {1..30000}; printf 'b%.0s' {1..30000}"}),
        ):
            cut = (await of(client, name, **given)).structured_content
            assert cut["cut"]
            assert len(cut["stdout"]) < 21_000
            whole, offset = "", 0
            while offset is not None:
                page = (
                    await of(client, "read_output", execution_id=cut["execution_id"], offset=offset)
                ).structured_content
                whole, offset = whole + page["text"], page["next_offset"]
            assert whole.strip() == "a" * 30_000 + "b" * 30_000
        refused = await client.call_tool("read_output", {"execution_id": "none"})
        assert refused.is_error
        assert "no code and no command has this id" in text(refused)


async def test_a_command_in_the_background_is_followed_and_killed(session):
    async with session() as client:
        begun = await of(client, "run_command", command="echo one; sleep 1000", background=True)
        command = begun.structured_content["execution_id"]
        page = (await of(client, "read_output", execution_id=command, wait=60)).structured_content
        assert page == {"text": "one\n", "next_offset": 4, "running": True}
        assert text(await of(client, "kill_command", execution_id=command)) == "ended"
        page = (await of(client, "read_output", execution_id=command, offset=4, wait=60)).structured_content
        assert "exit code 137" in page["text"]


async def test_files_are_written_read_by_lines_edited_exactly_and_listed(session):
    async with session() as client:
        await of(client, "write_file", path="src/a.txt", content="one\ntwo\ntwo\n")
        page = await of(client, "read_file", path="src/a.txt", limit=1)
        assert text(page) == "one\n[there is more: go on with offset=2]"
        assert text(await of(client, "read_file", path="src/a.txt", offset=2)) == "two\ntwo\n"
        missing = await client.call_tool("edit_file", {"path": "src/a.txt", "old": "three", "new": "3"})
        assert "does not occur in it" in text(missing)
        twice = await client.call_tool("edit_file", {"path": "src/a.txt", "old": "two", "new": "2"})
        assert "occurs 2 times, at lines 2, 3" in text(twice)
        assert missing.is_error
        assert twice.is_error
        await of(client, "edit_file", path="src/a.txt", old="one\ntwo", new="1\n2")
        assert text(await of(client, "read_file", path="src/a.txt")) == "1\n2\ntwo\n"
        assert text(await of(client, "glob", pattern="**/*.txt")) == "/workspace/src/a.txt"
        assert text(await of(client, "grep", pattern="t.o")) == "/workspace/src/a.txt:3: two"
        listed = (await of(client, "list_files", path="src")).structured_content["entries"]
        assert [(one["path"], one["size"]) for one in listed] == [("/workspace/src/a.txt", 8)]


async def test_a_service_can_be_reached_by_its_url(session):
    async with session() as client:
        await of(client, "write_file", path="index.html", content="from the sandbox")
        await of(client, "start_service", name="web", command="python3 -m http.server 8000", port=8000)
        url = text(await of(client, "get_url", port=8000))
        with await asyncio.to_thread(urllib.request.urlopen, url) as answer:
            assert answer.read() == b"from the sandbox"
        assert "GET /" in text(await of(client, "service_logs", name="web"))
        assert text(await of(client, "stop_service", name="web")) == "web has ended"


async def test_a_snapshot_brings_the_session_back(session):
    async with session() as client:
        await of(client, "run_code", code="x = 1")
        taken = text(await of(client, "snapshot", name="before"))
        assert '"name": "before"' in taken
        await of(client, "run_code", code="x = 2")
        await of(client, "restore", snapshot="before")
        assert text(await of(client, "run_code", code="x")) == "1"


async def test_progress_is_told_and_a_cancelled_call_interrupts_its_code(session):
    begun, told = asyncio.Event(), []

    async def progress(count, total, message):
        told.append((count, total, message))
        begun.set()

    code = "y = 7\nprint('begun')\nimport time\ntime.sleep(1000)"
    async with session() as client:
        running = asyncio.ensure_future(client.call_tool("run_code", {"code": code}, progress_callback=progress))
        await begun.wait()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        assert told[0] == (6, None, "begun")
        assert text(await of(client, "run_code", code="y")) == "7"


async def test_a_session_goes_on_in_a_new_sandbox_and_says_so(session, address):
    fleet = Fleet.connect(address)
    async with session() as client:
        await of(client, "run_code", code="x = 1")
        (info,) = claimed(fleet)
        assert Sandbox.kill(info.sandbox_id, fleet=fleet)
        failed = await client.call_tool("run_code", {"code": "x"})
        assert failed.is_error
        assert "the next call begins in a new one" in text(failed)
        assert (await of(client, "run_code", code="1 + 1")).structured_content["text"] == "2"


async def test_packages_are_refused_unless_the_server_allows_them(session):
    async with session() as client:
        refused = await client.call_tool("install_packages", {"packages": ["humanize"]})
        assert refused.is_error
        assert "sandfleet mcp --packages python" in text(refused)


def test_install_prints_what_clients_need():
    words = [sys.executable, "-m", "sandfleet", "mcp", "install", "--packages", "python", "--env", "A=b c"]
    said = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    assert f"claude mcp add sandfleet -- {sys.executable} -m sandfleet mcp --max-wait 60.0 --env 'A=b c'" in said
    assert '"mcpServers"' in said
    assert "[mcp_servers.sandfleet]" in said

"""`sandfleet serve --mcp`: the official client over streamable HTTP, and the sandboxes of its sessions."""

import asyncio
import http.client
import json
import signal
import socket
import time
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress

import httpx2
import pytest
from sandfleet import Fleet, Sandbox
from sandfleet._fleets.embedded import Options, Process
from support.client.http_door import serving

pytest.importorskip("mcp")
pytest.importorskip("uvicorn")
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

PATIENCE = 60
PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SANDFLEET_STATE", str(tmp_path_factory.mktemp("state")))
        fleet = Process(Options(pool_size=1))
        patch.setenv("SANDFLEET_ADDRESS", fleet.address)
        yield fleet.address
        fleet.stop()


@pytest.fixture(scope="module")
def server(address):
    with serving("--mcp", "--max-sessions", "3", "--env", "COLOUR=blue", "--allow-origin", "https://a.example.com") as (
        _,
        port,
        key,
    ):
        yield port, key


@pytest.fixture(scope="module")
def fleet(address):
    with Fleet.connect(address) as made:
        yield made


@asynccontextmanager
async def session(server, *, ends=True, **options):
    port, key = server
    async with httpx2.AsyncClient(headers={"Authorization": f"Bearer {key}"}, timeout=PATIENCE) as web:
        transport = streamable_http_client(f"http://127.0.0.1:{port}/mcp", http_client=web, terminate_on_close=ends)
        async with Client(transport, **options) as client:
            yield client


async def of(client, name, **arguments):
    answer = await client.call_tool(name, arguments)
    assert not answer.is_error, answer
    return answer.content[0].text


def claimed(fleet):
    return {one.sandbox_id for one in fleet.list() if one.state == "claimed"}


def until(found):
    """Ends of sessions are told by their sandboxes."""
    end = time.monotonic() + PATIENCE
    while not found() and time.monotonic() < end:
        time.sleep(0.02)
    return found()


def post(server, message, headers=None, method="POST"):
    connection = http.client.HTTPConnection("127.0.0.1", server[0], timeout=PATIENCE)
    accept = "application/json, text/event-stream"
    fields = {"Authorization": f"Bearer {server[1]}", "Content-Type": "application/json", "Accept": accept}
    connection.request(method, "/mcp", json.dumps(message), {**fields, **(headers or {})})
    answer = connection.getresponse()
    answer.connection = connection
    return answer


def initialized(server):
    told = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    return post(server, {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": told})


@contextmanager
def opened(server):
    """The header of a new session, which is deleted at the end."""
    answer = initialized(server)
    assert answer.status == 200
    header = {"Mcp-Session-Id": answer.headers["Mcp-Session-Id"]}
    try:
        yield header
    finally:
        with suppress(OSError):
            post(server, None, header, "DELETE")


def ran(server, session, code):
    """What a cell prints, by a connection of its own."""
    call = {"name": "run_code", "arguments": {"code": code}}
    answer = post(server, {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}, session)
    assert answer.status == 200, answer.read()
    *_, last = [line for line in answer.read().decode().splitlines() if line.startswith("data: {")]
    return json.loads(last.removeprefix("data: "))["result"]["content"][0]["text"]


async def test_each_session_has_a_sandbox_that_ends_with_it(server, fleet):
    """In the mode of the client that first asks for a protocol without sessions."""
    async with session(server) as one, session(server) as other:
        assert len((await one.list_tools()).tools) == 17
        assert await of(one, "run_code", code="import os\nx = 41\nos.environ['COLOUR']") == "'blue'"
        assert await of(one, "run_code", code="x + 1") == "42"
        refused = (await other.call_tool("run_code", {"code": "x"})).content[0].text
        assert "NameError" in refused
        assert len(claimed(fleet)) == 2
    assert until(lambda: not claimed(fleet))


async def test_progress_and_cancellation_reach_their_call(server):
    lines = asyncio.Queue()

    async def told(progress, total, message):
        await lines.put(message)

    async with session(server) as client:
        await of(client, "run_code", code="kept = 1")
        code = "import time\nprint('begun', flush=True)\nwhile True: time.sleep(0.01)"
        call = asyncio.ensure_future(client.call_tool("run_code", {"code": code}, progress_callback=told))
        assert await asyncio.wait_for(lines.get(), PATIENCE) == "begun"
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        assert await of(client, "run_code", code="kept") == "1"


def test_a_session_is_kept_over_connections_until_it_is_deleted(server, fleet):
    with opened(server) as own:
        ran(server, own, "x = 1")
        (sandbox_id,) = claimed(fleet)
        assert ran(server, own, "x + 1") == "2"
        assert claimed(fleet) == {sandbox_id}
        assert post(server, None, own, "DELETE").status == 200
        assert until(lambda: not claimed(fleet))
        assert post(server, PING, own).status == 404


def test_sessions_are_bounded_and_one_that_ends_makes_room(server):
    with ExitStack() as stack:
        for _ in range(3):
            stack.enter_context(opened(server))
        assert initialized(server).status == 503
    with opened(server) as own:
        assert post(server, PING, own).status == 200


def test_a_session_that_is_not_used_ends_with_its_sandbox(address, fleet, tmp_path, monkeypatch):
    monkeypatch.setenv("SANDFLEET_STATE", str(tmp_path))
    with serving("--mcp", "--idle", "3") as (_, *server), opened(server) as own:
        news = post(server, None, own, "GET")
        ran(server, own, "1")
        assert len(claimed(fleet)) == 1
        news.connection.close()
        news.close()
        assert until(lambda: not claimed(fleet))
        assert post(server, PING, own).status == 404


def test_at_the_server_s_end_calls_go_on_and_streams_of_news_end(address, fleet, tmp_path, monkeypatch):
    """A stream of news would hold the server until it cuts all that runs."""
    monkeypatch.setenv("SANDFLEET_STATE", str(tmp_path))
    with serving("--mcp") as (process, *server), opened(server) as own:
        ran(server, own, "1")
        (sandbox_id,) = claimed(fleet)
        news = post(server, None, own, "GET")
        assert news.status == 200
        with ThreadPoolExecutor() as pool, Sandbox.connect(sandbox_id) as sandbox:
            code = (
                "import os, time\nopen('begun', 'w')\nwhile not os.path.exists('go'): time.sleep(0.01)\nprint('whole')"
            )
            call = pool.submit(ran, server, own, code)
            assert until(lambda: sandbox.files.exists("begun"))
            process.send_signal(signal.SIGTERM)
            with suppress(http.client.IncompleteRead):
                news.read()
            assert until(lambda: not listens(server))
            # The SDK looks each half second whether the server drains.
            assert not wait({call}, 1.5).done
            sandbox.files.write("go", "")
            assert call.result() == "whole"
        assert process.wait(PATIENCE) == 0
    assert until(lambda: not claimed(fleet))


def listens(server):
    with socket.socket() as probe:
        return not probe.connect_ex(("127.0.0.1", server[0]))


FOREIGN = {
    "no key": ({"Authorization": "Bearer x"}, 401),
    "a host that was made to lead here": ({"Host": "rebound.example.com"}, 403),
    "a page of another origin": ({"Origin": "https://evil.example.com"}, 403),
}


@pytest.mark.parametrize("method", ["POST", "GET", "DELETE"])
@pytest.mark.parametrize("attack", FOREIGN)
def test_only_callers_with_the_key_reach_sessions(server, attack, method):
    headers, status = FOREIGN[attack]
    with opened(server) as own:
        assert post(server, PING, {**own, **headers}, method).status == status
        # The control.
        page = {"Origin": "https://a.example.com"}
        answer = post(server, PING, {**own, **page})
        assert (answer.status, answer.headers["Access-Control-Allow-Origin"]) == (200, page["Origin"])


def test_versions_without_sessions_are_refused_in_words(server):
    answer = post(server, {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}, {"Mcp-Protocol-Version": "2026-07-28"})
    assert answer.status == 400
    assert "it has no sessions" in answer.read().decode()


def test_bodies_are_bounded(server):
    assert post(server, "x" * (5 * 1024 * 1024)).status == 413


def test_without_the_option_there_is_no_mcp(address, tmp_path, monkeypatch):
    monkeypatch.setenv("SANDFLEET_STATE", str(tmp_path))
    monkeypatch.setenv("SANDFLEET_SERVE_KEY", "k" * 32)
    with serving() as (_, port, key):
        assert key is None
        answer = post((port, "k" * 32), PING)
        assert answer.status == 404
        assert "of `sandfleet serve --mcp`" in json.loads(answer.read())["message"]

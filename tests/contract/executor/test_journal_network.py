"""What code gets from the network may be another answer at a replay: it is found, shown and named."""

import asyncio
from contextlib import asynccontextmanager

import pytest
from sandfleet.replay import replay

pytestmark = pytest.mark.asyncio(loop_scope="session")


class Website:
    """A server of this machine whose answer can be changed."""

    def __init__(self):
        self.answer = b"41"

    async def serve(self, reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(self.answer)}\r\nConnection: close\r\n\r\n"
        writer.write(head.encode() + self.answer)
        await writer.drain()
        writer.close()


@asynccontextmanager
async def website():
    made = Website()
    async with await asyncio.start_server(made.serve, "127.0.0.1", 0) as server:
        yield made, server.sockets[0].getsockname()[1]


async def again(starting, found, network):
    async with starting(network=network) as executor:
        return await replay(found, executor.sandbox, go_on=True)


async def test_another_answer_from_beyond_the_sandbox_is_found_and_named(starting, host):
    if "own network" not in host.traits:
        pytest.skip("the server is on this machine")
    async with website() as (site, port):
        async with starting(network="pod") as executor:
            await executor.sandbox.run_code("import urllib.request as web")
            ask = f"print(web.urlopen('http://127.0.0.1:{port}/price', timeout=20).read().decode())"
            assert (await executor.sandbox.run_code(ask)).logs.stdout == "41\n"
            found = [record async for record in executor.sandbox.journal.records()]
        # The control: the same answer is the same.
        assert [step.word for step in (await again(starting, found, "pod")).steps] == ["skipped", "same", "same"]
        site.answer = b"42"
        *_, last = (await again(starting, found, "pod")).steps
        (difference,) = last.sameness.differences
        assert (last.word, difference.field, difference.was, difference.now) == ("different", "stdout", "41\n", "42\n")
        # A sandbox without that network: the first step names the setting, the last one what came of it.
        first, *_, last = (await again(starting, found, "none")).steps
        assert "network was pod, and is none" in first.why
        assert "error.value" in {each.field for each in last.sameness.differences}

"""What is asked of name servers, and who counts as having answered."""

import asyncio
import socket
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from sandfleet_executor.core.network.egress_probe import Target, name_servers, question
from sandfleet_executor.effects.network.egress_probe import reached
from support.tools import tool

pytestmark = pytest.mark.process

RESOLVER = [Target()]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", ([], "")),
        ("search team.svc.cluster.local svc.cluster.local\nnameserver 10.96.0.10\noptions ndots:1\n", (["10.96.0.10"], "team.svc.cluster.local")),
        ("# nameserver 1.1.1.1\nnameserver\nnameserver fe80::1%eth0\n", (["fe80::1"], "")),
        ("\n".join(f"nameserver 10.0.0.{n}" for n in range(5)), (["10.0.0.0", "10.0.0.1", "10.0.0.2"], "")),
    ],
)  # fmt: skip
def test_a_resolv_conf_names_servers_and_a_domain(text, found):
    assert name_servers(text) == found


@pytest.mark.parametrize(
    ("domain", "name"),
    [("a.bc.", b"\1a\2bc\0"), ("", b"\0"), ("x" * 64, b"\0"), ("a." * 200, b"\0"), ("ä", b"\1?\0")],
)
def test_the_question_is_one_message_whatever_the_domain_is(domain, name):
    made = question(b"\x12\x34", domain)
    assert made == b"\x12\x34\x01\x00\x00\x01" + bytes(6) + name + b"\0\1\0\1"


class NameServer(asyncio.DatagramProtocol):
    def __init__(self, answer):
        self.answer, self.questions = answer, []

    def connection_made(self, transport):
        self.transport = transport

    def datagram_received(self, data, address):
        self.questions.append(data)
        if (said := self.answer(data)) is not None:
            self.transport.sendto(said, address)


async def asked(tmp_path, answer):
    """Whether a name server that answers so is reached, and what it was asked."""
    transport, server = await asyncio.get_running_loop().create_datagram_endpoint(
        lambda: NameServer(answer), ("127.0.0.1", 0)
    )
    file = tmp_path / "resolv.conf"
    file.write_text("nameserver 127.0.0.1\nsearch team.svc.cluster.local\n")
    try:
        return await reached(RESOLVER, file, transport.get_extra_info("sockname")[1]), server.questions
    finally:
        transport.close()


async def test_a_name_server_is_reached_by_any_answer(tmp_path):
    found, questions = await asked(tmp_path, lambda said: said[:2] + b"\x81\x83" + bytes(8))
    assert (found, len(questions)) == ([True], 1)
    assert b"\x04team\x03svc\x07cluster\x05local" in questions[0]


@pytest.mark.parametrize("answer", [lambda _: None, lambda said: bytes([said[0] ^ 1]) + said[1:], lambda _: b""])
async def test_silence_and_answers_to_other_questions_are_no_answer(tmp_path, answer):
    found, questions = await asked(tmp_path, answer)
    assert found == [False]
    # Datagrams get lost: it was asked again.
    assert len(questions) == 2


async def test_without_a_name_server_nothing_is_reached(tmp_path):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    file = tmp_path / "resolv.conf"
    assert await reached(RESOLVER, file, port) == [False]
    for text in ("nameserver 127.0.0.1\n", "nameserver name.of.one\n", "search a\n"):
        file.write_text(text)
        assert await reached(RESOLVER, file, port) == [False]


def open_files():
    return {path.name for path in Path("/proc/self/fd").iterdir()}


async def test_a_caller_that_leaves_leaves_no_connection_behind(tmp_path):
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full, socket.create_connection(full.getsockname()):
        port = full.getsockname()[1]
        before = open_files()
        task = asyncio.create_task(reached([Target("127.0.0.1", port)] * 8))
        await asyncio.sleep(0.05)
        assert len(open_files() - before) == 8
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert open_files() == before


REFUSING = """
    import asyncio, subprocess
    from sandfleet_executor.core.network.egress_probe import Target
    from sandfleet_executor.effects.network.egress_probe import reached
    target = [Target("127.0.0.1", 9999), Target("::1", 9999)]
    def run(*words):
        subprocess.run(words, check=True)
    run("ip", "link", "set", "lo", "up")
    print(*asyncio.run(reached(target)))
    run("nft", "add table inet t; add chain inet t c {{ type filter hook output priority 0; }}")
    run("nft", "add rule inet t c tcp dport 9999 reject with icmpx type {kind}")
    print(*asyncio.run(reached(target)))
"""


@pytest.mark.parametrize("kind", ["port-unreachable", "admin-prohibited"])
def test_a_refusal_by_a_hop_on_the_way_is_no_refusal_by_the_target(kind):
    tool("nft")
    command = ["unshare", "--user", "--map-root-user", "--net", sys.executable, "-c"]
    done = subprocess.run(
        [*command, textwrap.dedent(REFUSING).format(kind=kind)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        pytest.skip(f"no network namespace with a firewall is to be had here: {done.stderr[-300:]}")
    assert done.stdout.split() == ["True", "True", "False", "False"]

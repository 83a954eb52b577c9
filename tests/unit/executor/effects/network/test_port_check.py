"""The executor's TCP connections answer at once, and it finds the addresses of its port that another process could
take.
"""

import socket
from pathlib import Path

import pytest
from sandfleet_executor.effects.network import port_check


@pytest.fixture
def connection():
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()) as client:
        accepted, _ = listener.accept()
        with accepted:
            yield accepted, client


def descriptors():
    return {path.name for path in Path("/proc/self/fd").iterdir()}


def is_prompt(one):
    return bool(one.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))


def test_what_was_accepted_on_the_port_answers_at_once_and_nothing_else_is_touched(connection):
    accepted, client = connection
    with socket.socketpair()[0]:
        assert not is_prompt(accepted)
        port_check.send_at_once(accepted.getsockname()[1])
        assert is_prompt(accepted)
        assert not is_prompt(client)


def test_no_descriptor_is_closed_or_left_open(connection):
    before = descriptors()
    port_check.send_at_once(connection[0].getsockname()[1])
    assert descriptors() == before


def test_only_a_port_on_all_addresses_can_be_left_open():
    assert port_check.left_open("127.0.0.1:1") == []


def test_on_linux_a_port_that_is_taken_on_all_addresses_cannot_be_taken_again():
    with socket.create_server(("0.0.0.0", 0)) as listener:
        left = port_check.left_open(f"0.0.0.0:{listener.getsockname()[1]}")
    assert [address for address in left if not address.startswith("[")] == []


def test_a_port_that_is_free_could_be_taken_and_is_never_seen_open_meanwhile(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    monkeypatch.setattr(socket.socket, "listen", lambda *_: pytest.fail("a client could have connected"))
    assert port_check.can_be_taken("127.0.0.1", port)

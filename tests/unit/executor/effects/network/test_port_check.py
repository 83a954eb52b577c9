"""The executor finds the addresses of its port that another process could take."""

import socket

import pytest
from sandfleet_executor.effects.network import port_check

pytestmark = pytest.mark.process


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

"""Which ports a tree of processes listens on."""

import os
import socket

import pytest
from sandfleet_executor.worker.init import ports

TABLE = b"""  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 111 1 0 100 0 0 10 0
   1: 0100007F:1F90 0100007F:C350 01 00000000:00000000 00:00000000 00000000  1000        0 222 1 0 100 0 0 10 0
"""


def test_only_listening_sockets_are_ports():
    assert ports.parse(TABLE) == {111: 8080}


@pytest.mark.parametrize("table", [b"head\n1 2 3\n", b"head\n" + b"x " * 12 + b"\n"])
def test_a_table_in_another_format_is_not_guessed(table, monkeypatch):
    monkeypatch.setattr(ports, "read", lambda _: table.replace(b"x x x x", b"x x:1 x 0A"))
    assert ports.listening() is None


def test_ports_are_unknown_when_the_kernel_shows_no_inodes(monkeypatch):
    monkeypatch.setattr(ports, "read", lambda _: TABLE.replace(b" 111 ", b" 0 "))
    assert ports.of_trees([1]) == {1: ([], False)}


@pytest.mark.process
def test_ports_of_a_tree_are_those_its_processes_listen_on():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        reader, writer = os.pipe()
        if (child := os.fork()) == 0:
            os.read(reader, 1)
            os._exit(0)
        server.close()
        found, known = ports.of_trees([os.getpid()])[os.getpid()]
        os.write(writer, b"x")
        os.waitpid(child, 0)
        os.close(reader)
        os.close(writer)
    assert (port in found, known) == (True, True)


@pytest.mark.process
def test_ports_are_unknown_when_a_process_has_too_many_descriptors(monkeypatch):
    monkeypatch.setattr(ports, "MAX_LINKS", 1)
    reader, writer = os.pipe()
    if (child := os.fork()) == 0:
        os.read(reader, 1)
        os._exit(0)
    assert ports.of_trees([os.getpid()])[os.getpid()][1] is False
    os.write(writer, b"x")
    os.waitpid(child, 0)
    os.close(reader)
    os.close(writer)

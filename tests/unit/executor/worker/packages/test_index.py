"""Whether an index can be reached."""

import errno
import socket
import time

import pytest
from sandfleet_executor.worker.packages import index
from sandfleet_executor.worker.packages.index import Reach


@pytest.fixture(autouse=True)
def _no_proxies(monkeypatch):
    for name in index.PROXIES:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def network(monkeypatch):
    """A network with routes, whose connections are made by a function of (host, port)."""

    def made(connect, *, routes=True):
        monkeypatch.setattr(index, "_has_route", lambda *_: routes)
        monkeypatch.setattr(socket, "create_connection", lambda address, timeout: connect(*address))

    return made


def failing(*errors):
    """A connection that fails, with one error for each host."""
    return lambda host, _: (_ for _ in ()).throw(dict(errors)[host])


def failing_after(seconds):
    def connect(*_):
        time.sleep(seconds)
        raise NOT_FOUND

    return connect


NOT_FOUND = socket.gaierror(socket.EAI_AGAIN, "no")
NO_ROUTE = OSError(errno.ENETUNREACH, "no")
REFUSED = ConnectionRefusedError(errno.ECONNREFUSED, "no")


@pytest.mark.parametrize(
    ("errors", "reach"),
    [
        ([NOT_FOUND], Reach.NONE),
        ([NO_ROUTE], Reach.NONE),
        ([REFUSED], Reach.UNKNOWN),
        ([NOT_FOUND, NO_ROUTE], Reach.NONE),
        ([NOT_FOUND, REFUSED], Reach.UNKNOWN),
    ],
)
def test_only_what_is_certain_counts_as_out_of_reach(network, errors, reach):
    network(failing(*((f"i{number}", error) for number, error in enumerate(errors))))
    found, why = index.reach([f"https://i{number}/simple" for number in range(len(errors))])
    assert found is reach
    assert "i0" in why


def test_one_index_that_answers_is_enough(network):
    ours, theirs = socket.socketpair()
    with theirs:
        network(lambda host, _: ours if host == "good" else failing((host, NOT_FOUND))(host, 0))
        assert index.reach(["http://bad/", "http://good:81/"])[0] is Reach.REACHED


def test_without_a_route_no_index_is_asked(network):
    network(lambda *_: pytest.fail("asked"), routes=False)
    assert index.reach(["https://index.example/simple"]) == (Reach.NONE, "this session has no network")


@pytest.mark.parametrize("address", ["http://localhost:3141/", "http://127.0.0.1/simple", "file:///wheels", "wheels"])
def test_an_index_in_the_session_needs_no_network(network, address):
    network(lambda *_: pytest.fail("asked"), routes=False)
    assert index.reach([address])[0] is Reach.REACHED


def test_behind_a_proxy_the_proxy_decides(network, monkeypatch):
    network(lambda *_: pytest.fail("asked"), routes=False)
    monkeypatch.setenv("https_proxy", "http://proxy:3128")
    assert index.reach(["https://index.example/simple"])[0] is Reach.REACHED


def test_an_index_that_does_not_answer_is_not_waited_for(network, monkeypatch):
    monkeypatch.setattr(index, "SECONDS", 0.05)
    network(failing_after(5))
    assert index.reach(["https://index.example/simple"])[0] is Reach.UNKNOWN

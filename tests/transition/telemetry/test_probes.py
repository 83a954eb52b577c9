"""The probes of operator and fleet: the event loop answers them, and the answer says who leads."""

import asyncio
import json
import socket
import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

import pytest
from sandfleet_operator.fleet.kubernetes import serve
from sandfleet_operator.reconciler import run
from sandfleet_operator.reconciler.health import Health
from sandfleet_operator.telemetry import probes as module
from sandfleet_operator.telemetry.probes import Probes, Standing
from transition.mutant import Mutant

pytestmark = pytest.mark.process

LEADS = Standing(ready=True, leads=True, leader="fleet-0_1", fencing=3)
STANDBY = Standing(ready=True, leads=False, leader="fleet-0_1")
STARTING = Standing(ready=False, leads=False)


async def asked(probes, line):
    """Status and body."""
    server = await probes.listen(0, "127.0.0.1")
    async with server:
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.write(line)
        writer.write_eof()
        try:
            answer = (await reader.read()).decode()
        except ConnectionResetError:
            answer = ""
        writer.close()
    head, _, body = answer.partition("\r\n\r\n")
    return (head.split() or ["", ""])[1], body


@pytest.mark.parametrize(
    ("path", "alive", "now", "status"),
    [
        ("/healthz", True, STARTING, "200"),
        ("/healthz", True, STANDBY, "200"),
        ("/healthz", False, LEADS, "503"),
        ("/readyz", True, STARTING, "503"),
        ("/readyz", True, STANDBY, "200"),
        ("/readyz", True, LEADS, "200"),
        ("/leadz", True, STANDBY, "503"),
        ("/leadz", True, LEADS, "200"),
        ("/metrics", True, LEADS, "404"),
    ],
)
async def test_each_check_has_its_answer_which_says_who_leads(path, alive, now, status):
    found, body = await asked(Probes(lambda: alive, lambda: now), f"GET {path} HTTP/1.1\r\n\r\n".encode())
    assert found == status
    if status != "404":
        assert Standing(**json.loads(body)) == now


async def test_the_metrics_of_a_process_that_has_some_are_beside_its_probes():
    probes = Probes(lambda: True, lambda: STARTING, lambda: '# TYPE m gauge\nm{a="é"} 1\n')
    assert await asked(probes, b"GET /metrics HTTP/1.1\r\n\r\n") == ("200", '# TYPE m gauge\nm{a="é"} 1\n')


# The last one is longer than a line may be.
@pytest.mark.parametrize(
    ("line", "status"), [(b"\r\n", "404"), (b"GET \xff\xfe HTTP/1.1\r\n\r\n", "404"), (b"G" * 10_000, "")]
)
async def test_what_is_no_request_breaks_nothing(line, status):
    probes = Probes(lambda: True, lambda: LEADS)
    assert (await asked(probes, line))[0] == status
    assert (await asked(probes, b"GET /healthz HTTP/1.1\r\n\r\n"))[0] == "200"


async def test_a_silent_connection_is_closed(monkeypatch):
    monkeypatch.setattr(module, "READ_SECONDS", 0.01)
    server = await Probes(lambda: True, lambda: LEADS).listen(0, "127.0.0.1")
    async with server:
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        assert await reader.read() == b""
        writer.close()


def test_a_stuck_event_loop_gives_no_answer_though_its_port_takes_connections():
    stuck, port, ended = threading.Event(), [], threading.Event()

    async def live():
        server = await Probes(lambda: True, lambda: LEADS).listen(0, "127.0.0.1")
        port.append(server.sockets[0].getsockname())
        # The loop stands still in here.
        stuck.set()
        ended.wait(30)
        server.close()

    thread = threading.Thread(target=lambda: asyncio.run(live()))
    thread.start()
    stuck.wait(30)
    try:
        with socket.create_connection(port[0], timeout=5) as caller:
            caller.sendall(b"GET /healthz HTTP/1.1\r\n\r\n")
            caller.settimeout(0.2)
            with pytest.raises(TimeoutError):
                caller.recv(1)
    finally:
        ended.set()
        thread.join(30)


class Held:
    """A Lease as the process sees it."""

    def __init__(self, fencing, holder="other_1"):
        self.fencing, self.holder = fencing, holder


class Fleet:
    def __init__(self, *, synced, serving):
        self.synced, self.serving = synced, serving


@pytest.mark.parametrize(
    ("synced", "serving", "fencing", "expected"),
    [
        (False, False, None, Standing(ready=False, leads=False, leader="other_1")),
        (True, False, None, Standing(ready=True, leads=False, leader="other_1")),
        # It has the Lease and still learns what exists.
        (True, False, 4, Standing(ready=True, leads=False, leader="other_1", fencing=4)),
        (True, True, 4, Standing(ready=True, leads=True, leader="other_1", fencing=4)),
    ],
)
def test_a_fleet_leads_when_it_serves(synced, serving, fencing, expected):
    assert serve.standing(Fleet(synced=synced, serving=serving), Held(fencing)) == expected


@pytest.mark.parametrize(("ready", "fencing"), [(False, None), (True, None), (True, 2)])
def test_an_operator_leads_while_its_lease_says_so(ready, fencing):
    health = Health(lambda: 0.0, None)
    health.ready = ready
    found = run._standing(health, Held(fencing))
    assert (found.ready, found.leads, found.fencing, found.leader) == (ready, fencing is not None, fencing, "other_1")


async def _listens_in_a_thread(probes, port, host):
    """Answers though the event loop is stuck."""

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self):
            good, body = probes.answer(self.path)
            self.send_response(200 if good else 503)
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer((host, port), Answers)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return SimpleNamespace(sockets=[server.socket], close=server.shutdown)


def _ready_from_the_start(fleet, held):
    return replace(STANDING(fleet, held), ready=True)


def _leads_by_its_lease(fleet, held):
    return replace(STANDING(fleet, held), leads=held.fencing is not None)


def _names_no_leader(fleet, held):
    return replace(STANDING(fleet, held), leader="")


def _of_a_fleet(*row):
    return lambda: test_a_fleet_leads_when_it_serves(*row)


STANDING = serve.standing
SYNCS = _of_a_fleet(False, False, None, Standing(ready=False, leads=False, leader="other_1"))
LEARNS = _of_a_fleet(True, False, 4, Standing(ready=True, leads=False, leader="other_1", fencing=4))
MUTANTS = (
    Mutant(
        "B.9",
        test_a_stuck_event_loop_gives_no_answer_though_its_port_takes_connections,
        ((Probes, "listen", _listens_in_a_thread),),
    ),
    Mutant("B.9", SYNCS, ((serve, "standing", _ready_from_the_start),)),
    Mutant("B.9", LEARNS, ((serve, "standing", _leads_by_its_lease),)),
    Mutant("B.9", LEARNS, ((serve, "standing", _names_no_leader),)),
    Mutant(
        "B.9",
        lambda: test_an_operator_leads_while_its_lease_says_so(True, None),
        ((run, "_standing", lambda health, _held: Standing(ready=health.ready, leads=True, leader="other_1")),),
    ),
)


@pytest.mark.parametrize("mutant", MUTANTS)
def test_each_mend_has_its_test(mutant):
    mutant.finder()
    with mutant.applied(), pytest.raises((AssertionError, pytest.fail.Exception)):
        mutant.finder()

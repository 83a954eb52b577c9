"""The program that `helm test` runs, against a server that answers as it is told."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import grpc
import pytest
from chart.helm_chart import CHART, loaded
from sandfleet_api.executor.v1 import common_pb2, interpreter_pb2
from sandfleet_api.executor.v1.interpreter_pb2_grpc import (
    InterpreterServiceServicer,
    add_InterpreterServiceServicer_to_server,
)
from sandfleet_api.fleet.v1 import fleet_pb2
from sandfleet_api.fleet.v1.fleet_pb2_grpc import FleetServiceServicer, add_FleetServiceServicer_to_server
from sandfleet_operator.executors.authority import Authority

pytestmark = pytest.mark.process

program = loaded(CHART / "files/chart_test.py")
BASE = "/apis/sandfleet.io/v1alpha1/namespaces/here"
CORE = "/api/v1/namespaces/here"
ONE = program.Made("one", "image:1", "gvisor")


class Server(ThreadingHTTPServer):
    """Keeps objects. Sandboxes and pools have `ready` as their condition; those that `stick` are not deleted."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.objects: dict[str, dict] = {}
        self.ready: list[dict] = []
        self.refuses = self.sticks = False
        self.calls: list[tuple[str, str]] = []
        self.left: list[tuple[str, str]] = []


class Handler(BaseHTTPRequestHandler):
    server: Server

    def _answer(self, code: int, body: dict | None) -> None:
        data = json.dumps(body or {"reason": "NotFound"}).encode()
        self.send_response(code)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _handle(self) -> None:
        server, path = self.server, self.path.removeprefix(BASE).removeprefix(CORE)
        assert self.headers["Authorization"] == "Bearer the-token"
        server.calls.append((self.command, path.split("/")[1]))
        if self.command == "POST":
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if server.refuses:
                self._answer(403, {"message": "pods are forbidden"})
                return
            server.objects[f"{path}/{body['metadata']['name']}"] = body
            self._answer(201, body)
            return
        if path in ("/pods", "/persistentvolumeclaims"):
            left = [{"metadata": {"name": name}} for plural, name in server.left if path == f"/{plural}"]
            self._answer(200, {"items": left})
            return
        found = server.objects.get(path)
        if self.command == "DELETE" and not server.sticks:
            server.objects.pop(path, None)
        if found and ("codesandboxes" in path or "sandboxpools" in path):
            found = {**found, "status": {"conditions": server.ready}}
        self._answer(200 if found else 404, found)

    do_GET = do_POST = do_DELETE = _handle  # noqa: N815 - the base class's names

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield made
    made.shutdown()
    thread.join()
    made.server_close()


@pytest.fixture
def api(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "token").write_text("the-token\n")
    monkeypatch.setattr(program, "PAUSE", 0.01)
    return program.Api(f"http://127.0.0.1:{server.server_port}", "here", tmp_path)


def condition(status: str, reason: str, message: str) -> list[dict]:
    return [
        {"type": "Isolated", "status": "True"},
        {"type": "Ready", "status": status, "reason": reason, "message": message},
    ]


def test_a_sandbox_that_becomes_ready_passes_and_leaves_nothing(server: Server, api, capsys) -> None:
    server.ready = condition("True", "ExecutorAnswers", "code can be run")
    assert program.run(api, ONE, 5) is True
    assert capsys.readouterr().out == "a CodeSandbox:\nReady=True ExecutorAnswers: code can be run\n"
    assert server.objects == {}
    # The template outlives its sandbox.
    assert server.calls[:2] == [("POST", "sandboxtemplates"), ("POST", "codesandboxes")]
    assert server.calls[-1] == ("DELETE", "sandboxtemplates")


def test_a_sandbox_that_does_not_become_ready_fails_with_its_reason_and_leaves_nothing(
    server: Server, api, capsys
) -> None:
    server.ready = condition("False", "ImagePullFailed", "no such image")
    assert program.run(api, ONE, 0.05) is False
    assert capsys.readouterr().out.splitlines() == [
        "a CodeSandbox:",
        "Ready=False ImagePullFailed: no such image",
        "cannot test codesandboxes/one: it is not Ready after 0 s",
    ]
    assert server.objects == {}


def test_without_an_operator_it_says_so(server: Server, api, capsys) -> None:
    assert program.run(api, ONE, 0.05) is False
    assert "Ready=Unknown NotSeen: no operator has looked at it yet" in capsys.readouterr().out


def test_a_refusal_is_shown_in_the_api_servers_words(server: Server, api, capsys) -> None:
    server.refuses = True
    assert program.run(api, ONE, 5) is False
    assert "cannot test: HTTP Error 403" in (said := capsys.readouterr().out)
    assert "pods are forbidden" in said


def test_a_sandbox_that_cannot_be_deleted_fails_the_test(server: Server, api, capsys, monkeypatch) -> None:
    server.ready, server.sticks = condition("True", "ExecutorAnswers", ""), True
    monkeypatch.setattr(program.remove, "__defaults__", (0.05,))
    assert program.run(api, ONE, 5) is False
    assert "cannot delete codesandboxes/one: it is still there" in capsys.readouterr().out


def test_its_objects_fit_the_schemas_of_the_kinds() -> None:
    from chart.test_examples import unknown
    from support.operator.crd_schemas import SCHEMAS

    for one in (ONE.template(), ONE.sandbox(), ONE.pool()):
        assert unknown(SCHEMAS[one["kind"]], {"spec": one["spec"]}) == []


class Callers(FleetServiceServicer):
    """Hands out one sandbox, whose executor listens on the same port."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.bound = fleet_pb2.Bound(warm=True)
        self.refuses = False

    def _hear(self, what: str, context: grpc.ServicerContext) -> None:
        self.asked.append((what, dict(context.invocation_metadata())))

    def Claim(self, request, context):  # noqa: N802 - gRPC's name
        self._hear(f"claim from {request.namespace}/{request.pool}", context)
        if self.refuses:
            context.abort(grpc.StatusCode.PERMISSION_DENIED, "no right to claim")
        yield fleet_pb2.ClaimResponse(queued=fleet_pb2.Queued(position=1, reason="PoolEmpty"))
        yield fleet_pb2.ClaimResponse(bound=self.bound)

    def Release(self, request, context):  # noqa: N802 - gRPC's name
        self._hear(f"release {request.sandbox_id}", context)
        return fleet_pb2.ReleaseResponse(released=True)


class Cells(InterpreterServiceServicer):
    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.outcome = common_pb2.OUTCOME_OK

    def Execute(self, request, context):  # noqa: N802 - gRPC's name
        self.asked.append((request.code, dict(context.invocation_metadata())))
        part = common_pb2.MimePart(mime_type="text/plain", data=b"42")
        result = common_pb2.ExecutionEvent(sequence=1, result=common_pb2.Result(parts=[part]))
        finished = common_pb2.ExecutionFinished(outcome=self.outcome, message="as it is told")
        end = common_pb2.ExecutionEvent(sequence=2, finished=finished)
        yield interpreter_pb2.ExecuteResponse(events=[result])
        yield interpreter_pb2.ExecuteResponse(events=[end])


@dataclass
class Bed:
    fleet: object
    callers: Callers
    cells: Cells


@pytest.fixture
def bed() -> Iterator[Bed]:
    """A fleet, and an executor whose certificate has the uid of its pod alone."""
    authority, callers, cells, now = Authority.new(time.time()), Callers(), Cells(), time.time()
    servers, ports = [], []
    for name, add in (
        ("127.0.0.1", lambda server: add_FleetServiceServicer_to_server(callers, server)),
        ("the-pods-uid", lambda server: add_InterpreterServiceServicer_to_server(cells, server)),
    ):
        server = grpc.server(ThreadPoolExecutor(2))
        add(server)
        shown = grpc.ssl_server_credentials([authority.server([name], now, 600.0)])
        ports.append(server.add_secure_port("127.0.0.1:0", shown))
        server.start()
        servers.append(server)
    callers.bound.sandbox.CopyFrom(fleet_pb2.Sandbox(sandbox_id="here/claim-1", sandbox_uid="the-pods-uid"))
    callers.bound.access.CopyFrom(
        fleet_pb2.Access(address=f"127.0.0.1:{ports[1]}", ca_pem=authority.pem, token="of-the-claim")
    )
    yield Bed(program.Fleet(f"127.0.0.1:{ports[0]}", authority.pem, "of-the-account"), callers, cells)
    for server in servers:
        server.stop(0).wait()


def test_a_claim_runs_a_cell_with_its_own_token_is_released_and_leaves_nothing(
    server: Server, api, bed: Bed, capsys
) -> None:
    server.ready = condition("True", "Filled", "")
    assert program.run_claim(api, bed.fleet, ONE, 5) is True
    claimed, released = bed.callers.asked
    assert [claimed[0], released[0]] == ["claim from here/one", "release here/claim-1"]
    assert {one["authorization"] for _, one in bed.callers.asked} == {"Bearer of-the-account"}
    ((code, sent),) = bed.cells.asked
    assert (code, sent["authorization"]) == ("6 * 7", "Bearer of-the-claim")
    said = capsys.readouterr().out.splitlines()
    assert said[2:4] == ["queued: PoolEmpty", f"bound to here/claim-1, warm, at {bed.callers.bound.access.address}"]
    assert said[4:] == ["6 * 7 = 42, OUTCOME_OK as it is told", "released"]
    assert server.objects == {}
    # A pool's sandboxes are made of the template.
    assert [one for one in server.calls if one[0] == "DELETE"] == [
        ("DELETE", "sandboxpools"),
        ("DELETE", "sandboxtemplates"),
    ]


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("claim", "cannot claim and run: PERMISSION_DENIED: no right to claim"),
        ("cell", "6 * 7 = 42, OUTCOME_KILLED"),
        ("left", "left: persistentvolumeclaims/workspace-one-abc"),
        ("stays", "cannot delete here/claim-1: it is still there"),
    ],
)
def test_a_failed_claim_fails_the_test_and_its_objects_are_deleted(
    server: Server, api, bed: Bed, capsys, monkeypatch, what: str, said: str
) -> None:
    monkeypatch.setattr(program, "GONE_SECONDS", 0.05)
    server.ready = condition("True", "Filled", "")
    bed.callers.refuses = what == "claim"
    if what == "cell":
        bed.cells.outcome = common_pb2.OUTCOME_KILLED
    if what == "left":
        server.left = [("persistentvolumeclaims", "workspace-one-abc"), ("pods", "other")]
    if what == "stays":
        server.objects["/codesandboxes/claim-1"] = {"kind": "CodeSandbox"}
    assert program.run_claim(api, bed.fleet, ONE, 5) is False
    assert said in capsys.readouterr().out
    assert [one[0] for one in bed.callers.asked[1:]] == ([] if what == "claim" else ["release here/claim-1"])
    server.objects.pop("/codesandboxes/claim-1", None)
    assert server.objects == {}


def test_a_fleet_without_a_certificate_counts_as_no_fleet(server: Server, api, capsys) -> None:
    assert program.fleet_of(api, "here") is None
    assert "sandfleet-ca is empty; does the fleet run?" in capsys.readouterr().out

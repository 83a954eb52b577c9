"""The program that `helm test` runs, against a server that answers as it is told."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from chart.helm_chart import CHART, loaded

program = loaded(CHART / "files/chart_test.py")
BASE = "/apis/sandfleet.io/v1alpha1/namespaces/here"


class Server(ThreadingHTTPServer):
    """Keeps objects; a sandbox has `ready` as its condition, and where it `sticks` it is not deleted."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.objects: dict[str, dict] = {}
        self.ready: list[dict] = []
        self.refuses = self.sticks = False
        self.calls: list[tuple[str, str]] = []


class Handler(BaseHTTPRequestHandler):
    server: Server

    def _answer(self, code: int, body: dict | None) -> None:
        data = json.dumps(body or {"reason": "NotFound"}).encode()
        self.send_response(code)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _handle(self) -> None:
        server, path = self.server, self.path.removeprefix(BASE)
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
        found = server.objects.get(path)
        if self.command == "DELETE" and not server.sticks:
            server.objects.pop(path, None)
        if found and "codesandboxes" in path:
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


def test_a_sandbox_that_gets_ready_passes_and_leaves_nothing(server: Server, api, capsys) -> None:
    server.ready = condition("True", "ExecutorAnswers", "code can be run")
    assert program.run(api, "one", "image:1", "gvisor", 5) is True
    assert capsys.readouterr().out == "Ready=True ExecutorAnswers: code can be run\n"
    assert server.objects == {}
    # The template outlives its sandbox.
    assert server.calls[:2] == [("POST", "sandboxtemplates"), ("POST", "codesandboxes")]
    assert server.calls[-1] == ("DELETE", "sandboxtemplates")


def test_a_sandbox_that_does_not_get_ready_fails_with_its_reason_and_leaves_nothing(
    server: Server, api, capsys
) -> None:
    server.ready = condition("False", "ImagePullFailed", "no such image")
    assert program.run(api, "one", "image:1", "gvisor", 0.05) is False
    assert capsys.readouterr().out.splitlines() == [
        "Ready=False ImagePullFailed: no such image",
        "cannot make a sandbox: it is not Ready after 0 s",
    ]
    assert server.objects == {}


def test_without_an_operator_it_says_so(server: Server, api, capsys) -> None:
    assert program.run(api, "one", "image:1", "gvisor", 0.05) is False
    assert "Ready=Unknown NotSeen: no operator has looked at it yet" in capsys.readouterr().out


def test_what_the_api_server_refuses_is_said_in_its_own_words(server: Server, api, capsys) -> None:
    server.refuses = True
    assert program.run(api, "one", "image:1", "gvisor", 5) is False
    assert "cannot test: HTTP Error 403" in (said := capsys.readouterr().out)
    assert "pods are forbidden" in said


def test_a_sandbox_that_cannot_be_deleted_fails_the_test(server: Server, api, capsys, monkeypatch) -> None:
    server.ready, server.sticks = condition("True", "ExecutorAnswers", ""), True
    monkeypatch.setattr(program.remove, "__defaults__", (0.05,))
    assert program.run(api, "one", "image:1", "gvisor", 5) is False
    assert "cannot delete the sandbox: one is still there" in capsys.readouterr().out


def test_it_makes_what_the_kinds_schemas_take() -> None:
    from chart.test_examples import unknown
    from crd_schemas import SCHEMAS

    for one in program.objects("one", "image:1", "gvisor"):
        assert unknown(SCHEMAS[one["kind"]], {"spec": one["spec"]}) == []

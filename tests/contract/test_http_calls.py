"""Both APIs over HTTP: the same calls by gRPC and through the door of `sandfleet serve`, with the same answers."""

import asyncio
import base64
import contextlib
import gzip
import http.client
import json
import re
import socket
import time
import tracemalloc
import uuid
from urllib.parse import urlsplit

import jsonschema
import pytest
from sandfleet import Fleet, Sandbox
from sandfleet._fleets.embedded import Options, Process
from sandfleet_api.executor.v1 import common_pb2 as common
from sandfleet_api.executor.v1 import filesystem_pb2 as files
from sandfleet_api.executor.v1 import interpreter_pb2 as interpreter
from sandfleet_api.executor.v1 import process_pb2 as processes
from sandfleet_api.fleet.v1 import fleet_pb2 as fleets
from support.client.http_door import FRAME, Door, Grpc, serving

pytest.importorskip("uvicorn")
from sandfleet.doors.http import server as server_module
from sandfleet.doors.http.forms import Failure, Form
from sandfleet.doors.http.rpcs import services

FLEET = fleets.DESCRIPTOR.services_by_name["FleetService"].methods_by_name
FILES = files.DESCRIPTOR.services_by_name["FilesystemService"].methods_by_name
CELLS = interpreter.DESCRIPTOR.services_by_name["InterpreterService"].methods_by_name
COMMANDS = processes.DESCRIPTOR.services_by_name["ProcessService"].methods_by_name
FRAMED = ("connect+json", "connect+proto", "grpc-web+proto")
LIST = "sandfleet_api.fleet.v1.FleetService/List"
READ = "sandfleet_api.executor.v1.FilesystemService/Read"
MOST = 4 * 1024 * 1024


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SANDFLEET_STATE", str(tmp_path_factory.mktemp("state")))
        fleet = Process(Options(pool_size=1, max_sandboxes=2))
        patch.setenv("SANDFLEET_ADDRESS", fleet.address)
        yield fleet.address
        fleet.stop()


@pytest.fixture(scope="module")
def server(address):
    with serving("--allow-origin", "https://app.example.com") as (_, port, key):
        yield port, key


@pytest.fixture(scope="module")
def sandbox(address, server):
    with Fleet.connect(address) as fleet, Sandbox.create(fleet=fleet) as made:
        made.files.write("data.csv", "a,b\n" * 100_000)
        yield made


@pytest.fixture
def door(server):
    return Door(*server, "json")


def execute(name, code, **more):
    return interpreter.ExecuteRequest(execution_id=name, code=code, **more)


def written(path, *data):
    size = sum(map(len, data))
    header = files.WriteRequest(header=files.WriteHeader(path=path))
    return [header, *(files.WriteRequest(data=one) for one in data), files.WriteRequest(end=files.WriteEnd(size=size))]


# (method, requests for a caller's name, whether the call is the executor's)
CALLS = {
    "a unary call to the fleet": (FLEET["ListQueues"], lambda _: [fleets.ListQueuesRequest()], False),
    "a unary call to the executor": (FILES["Stat"], lambda _: [files.StatRequest(path=b"data.csv")], True),
    "a stream of answers": (FILES["Read"], lambda _: [files.ReadRequest(path=b"data.csv")], True),
    "a stream of requests": (FILES["Write"], lambda _: written(b"out.bin", b"\x00\xff" * 1000, b"end"), True),
    "a cell": (CELLS["Execute"], lambda name: [execute(name, "print('hi')\n6 * 7")], True),
    "a cell that raises": (CELLS["Execute"], lambda name: [execute(name, "1/0")], True),
    "a command": (COMMANDS["Start"], lambda name: [start(name, "echo out; echo err >&2; exit 3")], True),
    "an unknown context": (CELLS["RestartContext"], lambda _: [interpreter.RestartContextRequest(context_id="x")], True),
    "a missing file": (FILES["Stat"], lambda _: [files.StatRequest(path=b"missing")], True),
    "a missing file as a stream": (FILES["Read"], lambda _: [files.ReadRequest(path=b"missing")], True),
    "a stream of requests that breaks off": (FILES["Write"], lambda _: written(b"out.bin", b"a")[:-1], True),
    "a request that is refused": (CELLS["Execute"], lambda _: [execute("/", "1")], True),
    "a call that this fleet does not serve": (FLEET["Watch"], lambda _: [fleets.WatchRequest()], False),
    "a call for reviewers": (FLEET["ListReviews"], lambda _: [fleets.ListReviewsRequest()], False),
    "a sandbox that is not there": (FLEET["Renew"], lambda _: [fleets.RenewRequest(sandbox_id="0" * 12)], False),
    "an ended sandbox": (FLEET["Release"], lambda _: [fleets.ReleaseRequest(sandbox_id="0" * 12)], False),
}  # fmt: skip


def start(name, command):
    return processes.StartRequest(execution_id=name, shell=command.encode())


def comparable(outcome):
    """Without times, sizes and numbers of the run, and output in one piece for each stream."""
    if not any(hasattr(message, "events") for message in outcome.messages):
        return [without_times(message) for message in outcome.messages], outcome.error
    output, rest = {}, []
    for event in (event for message in outcome.messages for event in message.events):
        kind = event.WhichOneof("event")
        value = getattr(event, kind)
        if kind == "output":
            output[value.stream] = output.get(value.stream, b"") + value.data
        elif kind == "finished":
            rest.append((value.outcome, value.blame, value.reason, value.exit_code))
        elif kind == "error":
            rest.append((value.name, value.value))
        else:
            rest.append((kind, [part.data for part in getattr(value, "parts", ())]))
    return output, rest, outcome.error


def without_times(message):
    same = type(message).FromString(message.SerializeToString())
    if isinstance(message, files.ReadResponse | files.WriteResponse):
        same.info.ClearField("modified")
    return same


def forms_of(method):
    """Those that Connect and gRPC-Web have for it, and plain JSON."""
    if method.server_streaming:
        return ["json", "events", *FRAMED]
    return ["json", *FRAMED] if method.client_streaming else ["json", "proto", "grpc-web+proto"]


@pytest.mark.parametrize(("name", "form"), [(name, form) for name in CALLS for form in forms_of(CALLS[name][0])])
def test_a_call_has_the_answer_that_it_has_by_grpc(address, server, sandbox, name, form):
    method, requests, is_executors = CALLS[name]
    where = sandbox.sandbox_id if is_executors else ""
    direct = Grpc(address).call(method, requests(uuid.uuid4().hex), where)
    through = Door(*server, form).call(method, requests(uuid.uuid4().hex), where)
    assert comparable(through) == comparable(direct)
    assert (direct.error is None) == (name in list(CALLS)[:7] or name == "an ended sandbox")


@pytest.mark.parametrize("form", ["json", "connect+proto", "grpc-web+proto"])
def test_a_deadline_ends_a_call_with_the_code_that_it_has_by_grpc(address, server, sandbox, form):
    name = uuid.uuid4().hex
    create = interpreter.CreateContextRequest(context_id=name)
    assert Grpc(address).call(CELLS["CreateContext"], [create], sandbox.sandbox_id).error is None
    for number, caller in enumerate((Door(*server, form), Grpc(address))):
        cell = execute(f"{name}-{number}", "import time; time.sleep(1000)", context_id=name)
        outcome = caller.call(CELLS["Execute"], [cell], sandbox.sandbox_id, timeout=0.5)
        assert outcome.error[0] == "deadline_exceeded"


def test_a_deadline_counts_while_the_request_comes(server):
    with socket.create_connection(("127.0.0.1", server[0]), timeout=60) as connection:
        connection.sendall(head(server, "Connect-Timeout-Ms: 100", "Content-Length: 2"))
        assert connection.recv(12) == b"HTTP/1.1 504"


def head(server, *lines, path=LIST, kind="json"):
    fields = ["Host: localhost", f"Authorization: Bearer {server[1]}", f"Content-Type: application/{kind}", *lines]
    return "\r\n".join([f"POST /{path} HTTP/1.1", *fields, "", ""]).encode()


def test_a_caller_that_goes_away_undoes_its_claim_as_by_grpc(address, server, door, sandbox):
    """Both sandboxes of the fleet are taken: the claim waits until its caller goes."""

    def claim(name):
        return fleets.ClaimRequest(request_id=name, max_wait={"seconds": 600})

    with Sandbox.create():
        answer = door.request(FLEET["Claim"], door.body([claim("through")]))
        assert "queued" in json.loads(answer.readline())
        stub = Grpc(address).channel.unary_stream(
            "/sandfleet_api.fleet.v1.FleetService/Claim",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=fleets.ClaimResponse.FromString,
        )
        call = stub(claim("direct"))
        assert next(call).HasField("queued")
        assert waits(address, "through")
        assert waits(address, "direct")
        call.cancel()
        answer.connection.sock.shutdown(socket.SHUT_RDWR)
        answer.close()
        for name in ("through", "direct"):
            until = time.monotonic() + 60
            while waits(address, name) and time.monotonic() < until:
                time.sleep(0.05)
            assert not waits(address, name)


def waits(address, request_id):
    outcome = Grpc(address).call(FLEET["Explain"], [fleets.ExplainRequest(request_id=request_id)])
    assert outcome.error is None or outcome.error[1] == "ClaimNotFound"
    return outcome.error is None


def test_output_comes_while_the_cell_runs(door, sandbox):
    code = (
        "print('first', flush=True)\nimport os, time\nwhile not os.path.exists('go'): time.sleep(0.01)\nprint('last')"
    )
    answer = door.request(CELLS["Execute"], door.body([execute("live", code)]), sandbox.sandbox_id)
    said = b""
    while b"first" not in said:
        events = json.loads(answer.readline()).get("events", [])
        said += b"".join(base64.b64decode(one["output"]["data"]) for one in events if "output" in one)
    sandbox.files.write("go", "")
    assert b'"finished"' in answer.read()


def test_a_trace_goes_on_in_the_sandbox(door, sandbox):
    trace = {"traceparent": f"00-{'ab' * 16}-{'cd' * 8}-01"}
    body = door.body([execute("traced", "1")])
    answer = door.request(CELLS["Execute"], body, sandbox.sandbox_id, trace)
    *_, last = door.read(CELLS["Execute"], answer, answer.read()).messages
    spans = last.events[-1].finished.spans
    assert {span.trace_id.hex() for span in spans} == {"ab" * 16}


def test_a_trace_that_is_none_is_left_out(server):
    for text in ("\xe9", "a\tb", "x" * 10_000, "00-1"):
        assert post(server, f"/{LIST}", b"{}", {"traceparent": text}).status == 200


def test_a_stream_of_requests_may_be_larger_than_a_message(server, sandbox):
    door = Door(*server, "connect+proto")
    pieces = [bytes([number]) * (MOST // 2) for number in range(5)]
    assert door.call(FILES["Write"], written(b"large", *pieces), sandbox.sandbox_id).error is None
    assert sandbox.files.get_info("large").size == 5 * MOST // 2


@pytest.mark.parametrize("form", ["json", "connect+proto", "grpc-web+proto"])
def test_a_message_that_is_too_large_is_refused(server, sandbox, form):
    door = Door(*server, form)
    requests = [files.WriteRequest(header=files.WriteHeader(path=b"x")), files.WriteRequest(data=b"x" * (MOST + 1))]
    assert door.call(FILES["Write"], requests, sandbox.sandbox_id).error[:2] == (
        "resource_exhausted",
        "RequestTooLarge",
    )


def test_a_body_that_never_ends_is_refused_when_it_is_too_large(server):
    with socket.create_connection(("127.0.0.1", server[0]), timeout=60) as connection:
        connection.sendall(head(server, "Content-Length: 1000000000"))
        # A refusal may come before all of it is sent.
        with contextlib.suppress(OSError):
            connection.sendall(b" " * (MOST + 1))
        assert connection.recv(12) == b"HTTP/1.1 429"


def test_a_second_request_is_refused_before_the_body_ends(server, sandbox):
    with socket.create_connection(("127.0.0.1", server[0]), timeout=60) as connection:
        path = f"{sandbox.sandbox_id}/{READ}"
        connection.sendall(head(server, "Content-Length: 1000000000", path=path, kind="connect+json"))
        connection.sendall((FRAME.pack(0, 2) + b"{}") * 2)
        said = b""
        while b'"unimplemented"' not in said and (data := connection.recv(65536)):
            said += data
        assert b"it takes one request" in said


def test_what_gzip_has_made_smaller_is_never_unpacked_whole():
    packed = gzip.compress(bytes(64 * MOST))
    tracemalloc.start()
    try:
        with pytest.raises(Failure, match="more than"):
            list(Form("json", "", "gzip").messages(packed, is_last=True))
        assert tracemalloc.get_traced_memory()[1] < 8 * MOST
    finally:
        tracemalloc.stop()


GROWING = gzip.compress(b" " * (MOST + 1))
BAD = {
    "no JSON": (f"/{LIST}", b"{", {}, 400, "InvalidRequest"),
    "no UTF-8": (f"/{LIST}", b'{"namespace": "\xff"}', {}, 400, "InvalidRequest"),
    "an empty body": (f"/{LIST}", b"", {}, 400, "InvalidRequest"),
    "a field that does not exist": (f"/{LIST}", b'{"pages": 1}', {}, 400, "InvalidRequest"),
    "a value of another type": (f"/{LIST}", b'{"pageSize": "many"}', {}, 400, "InvalidRequest"),
    "deep JSON": (f"/{LIST}", b"[" * 100_000, {}, 400, "InvalidRequest"),
    "a long number": (f"/{LIST}", b'{"pageSize": 1' + b"0" * 10_000 + b"}", {}, 400, "InvalidRequest"),
    "no protobuf": (f"/{LIST}", b"\xff", {"Content-Type": "application/proto"}, 400, "InvalidRequest"),
    "no type": (f"/{LIST}", b"{}", {"Content-Type": ""}, 415, "InvalidRequest"),
    "a type that is not read": (f"/{LIST}", b"<a/>", {"Content-Type": "text/xml"}, 415, "InvalidRequest"),
    "an unknown compression": (f"/{LIST}", b"{}", {"Content-Encoding": "br"}, 501, "Compressed"),
    "no gzip": (f"/{LIST}", b"{}", {"Content-Encoding": "gzip"}, 400, "InvalidRequest"),
    "half a gzip": (f"/{LIST}", gzip.compress(b"{}")[:-1], {"Content-Encoding": "gzip"}, 400, "InvalidRequest"),
    "a gzip that grows": (f"/{LIST}", GROWING, {"Content-Encoding": "gzip"}, 429, "RequestTooLarge"),
    "an unknown method": (f"/{LIST}s", b"{}", {}, 404, "Unimplemented"),
    "an unknown service": ("/grpc.health.v1.Health/Check", b"{}", {}, 404, "Unimplemented"),
    "an executor's method without a sandbox": (f"/{READ}", b"{}", {}, 404, "Unimplemented"),
    "the fleet's method of a sandbox": (f"/0123456789ab/{LIST}", b"{}", {}, 404, "Unimplemented"),
    "both directions at once": ("/0123456789ab/sandfleet_api.executor.v1.PortService/Tunnel", b"{}", {}, 501, "Unimplemented"),
    "a sandbox that is not there": (f"/0123456789ab/{READ}", b"{}", {}, 404, "SandboxNotFound"),
    "a time limit that is no number": (f"/{LIST}", b"{}", {"Connect-Timeout-Ms": "1e3"}, 400, "InvalidRequest"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_a_request_that_cannot_be_passed_on_says_why(server, name):
    path, body, headers, status, reason = BAD[name]
    answer = post(server, path, body, headers)
    said = json.loads(answer.read())
    assert (answer.status, said["details"][0]["debug"]["reason"]) == (status, reason)
    assert said["message"].startswith("cannot ")
    assert answer.headers["X-Request-Id"]
    # The control.
    assert post(server, f"/{LIST}", b"{}").status == 200


def post(server, path, body, headers=None, key=None):
    connection = http.client.HTTPConnection("127.0.0.1", server[0], timeout=60)
    fields = {"Content-Type": "application/json", "Authorization": f"Bearer {key or server[1]}", **(headers or {})}
    connection.request("POST", path, body, {name: value for name, value in fields.items() if value})
    return connection.getresponse()


def test_frames_that_break_the_protocol_are_refused(server, sandbox):
    door = Door(*server, "connect+proto")
    frame = FRAME.pack(0, 2) + b"\x0a\x00"
    bad = {
        b"": "unimplemented",
        frame + frame: "unimplemented",
        frame[:-1]: "invalid_argument",
        FRAME.pack(1, 2) + b"\x0a\x00": "invalid_argument",
        FRAME.pack(2, 2) + b"{}": "invalid_argument",
        FRAME.pack(0, 0xFFFFFFFF): "resource_exhausted",
    }
    for body, code in bad.items():
        answer = door.request(FILES["Read"], body, sandbox.sandbox_id)
        assert (answer.status, door.read(FILES["Read"], answer, answer.read()).error[0]) == (200, code)


def test_compressed_requests_are_read_within_the_bound(server, sandbox):
    """As the Connect client on PyPI sends them."""
    zipped = {"Content-Encoding": "gzip"}
    assert post(server, f"/{LIST}", gzip.compress(b"{}"), zipped).status == 200
    framed = Door(*server, "connect+proto")
    request = files.ReadRequest(path=b"data.csv", length=3).SerializeToString()
    for packed, code in ((gzip.compress(request), None), (gzip.compress(b" " * (MOST + 1)), "resource_exhausted")):
        body = FRAME.pack(1, len(packed)) + packed
        answer = framed.request(FILES["Read"], body, sandbox.sandbox_id, {"Connect-Content-Encoding": "gzip"})
        error = framed.read(FILES["Read"], answer, answer.read()).error
        assert (error and error[0]) == code


FOREIGN = {
    "no key": ({"Authorization": ""}, 401, "KeyMissing"),
    "another key": ({"Authorization": f"Bearer {'x' * 43}"}, 401, "KeyInvalid"),
    "the beginning of the key": ({"Authorization": "Bearer {key:.42}"}, 401, "KeyInvalid"),
    "the key as a password": ({"Authorization": "Basic {key}"}, 401, "KeyInvalid"),
    "a key that is not ASCII": ({"Authorization": "Bearer \xe9"}, 401, "KeyInvalid"),
    "the key in a cookie": ({"Authorization": "", "Cookie": "sandfleet_link={key}"}, 401, "KeyMissing"),
    "a host that was made to lead here": ({"Host": "rebound.example.com"}, 403, "ForeignHost"),
    "a host that begins like an address": ({"Host": "127.0.0.1.example.com"}, 403, "ForeignHost"),
    "a host below localhost": ({"Host": "a.localhost"}, 403, "ForeignHost"),
    "a page of another origin": ({"Origin": "https://evil.example.com"}, 403, "ForeignOrigin"),
    "a page without an origin": ({"Origin": "null"}, 403, "ForeignOrigin"),
    "a page of a sandbox": ({"Origin": "http://8000-0123456789ab.localhost:{port}"}, 403, "ForeignOrigin"),
    "an origin that begins like an allowed one": ({"Origin": "https://app.example.com.evil.net"}, 403, "ForeignOrigin"),
}  # fmt: skip


@pytest.mark.parametrize("attack", FOREIGN)
def test_only_callers_with_the_key_from_here_are_let_in(server, attack):
    headers, status, reason = FOREIGN[attack]
    port, key = server
    refused = post(
        server, f"/{LIST}", b"{}", {name: value.format(key=key, port=port) for name, value in headers.items()}
    )
    said = json.loads(refused.read())
    assert (refused.status, said["details"][0]["debug"]["reason"]) == (status, reason)
    assert refused.headers["WWW-Authenticate"] == ("Bearer" if status == 401 else None)
    assert key not in str(said)
    # The control.
    for host in ("localhost", f"127.0.0.1:{port}", f"[::1]:{port}", "192.0.2.1"):
        assert post(server, f"/{LIST}", b"{}", {"Host": host, "Origin": f"http://{host}"}).status == 200


def test_pages_of_an_origin_that_is_allowed_may_call(server):
    page = {"Origin": "https://app.example.com"}
    answer = post(server, f"/{LIST}", b"{}", page)
    assert (answer.status, answer.headers["Access-Control-Allow-Origin"]) == (200, page["Origin"])
    for origin, allowed in ((page["Origin"], page["Origin"]), ("https://evil.example.com", None)):
        connection = http.client.HTTPConnection("127.0.0.1", server[0], timeout=60)
        asks = {"Origin": origin, "Access-Control-Request-Headers": "authorization,content-type"}
        connection.request("OPTIONS", f"/{LIST}", headers=asks)
        before = connection.getresponse()
        assert (before.status, before.headers["Access-Control-Allow-Origin"]) == (204, allowed)
        assert before.headers["Access-Control-Allow-Headers"] == (allowed and "authorization,content-type")


def test_the_key_opens_no_preview_and_a_link_no_call(server, sandbox):
    preview = f"8000-{sandbox.sandbox_id}.localhost"
    assert post(server, f"/{LIST}", b"{}", {"Host": preview}).status == 403
    token = urlsplit(sandbox.get_url(8000)).query.partition("=")[2]
    assert post(server, f"/{LIST}", b"{}", key=token).status == 401


async def test_calls_that_run_are_told_that_the_server_ends(address, sandbox, monkeypatch):
    servers, made = [], server_module._Server
    monkeypatch.setattr(server_module, "_Server", lambda *parts: servers.append(made(*parts)) or servers[0])
    monkeypatch.setattr(server_module, "_LAST_WORDS", server_module._DRAIN)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        serving = asyncio.ensure_future(server_module.serve(listener, b"", "k" * 32, frozenset(), None))
        door = Door(listener.getsockname()[1], "k" * 32, "connect+json")
        cell = execute(uuid.uuid4().hex, "print('begun', flush=True)\nwhile True: pass", context_id="ending")
        create = [interpreter.CreateContextRequest(context_id="ending")]
        await asyncio.to_thread(Grpc(address).call, CELLS["CreateContext"], create, sandbox.sandbox_id)
        answer = await asyncio.to_thread(door.request, CELLS["Execute"], door.body([cell]), sandbox.sandbox_id)
        servers[0].should_exit = True
        outcome = door.read(CELLS["Execute"], answer, await asyncio.to_thread(answer.read))
        assert outcome.error == ("unavailable", "Draining", True, "cannot go on with the call: the server ends")
        await serving


def test_an_answer_says_when_to_come_back():
    """As the fleet says it, in the header and in the detail."""
    detail = common.ErrorDetail(reason="QueueFull", retryable=True, retry_after={"nanos": 1})
    failure = Failure.of("RESOURCE_EXHAUSTED", "cannot claim: the queue is full", detail)
    assert (failure.status, dict(failure.fields)[b"retry-after"]) == (429, b"1")
    assert b"retry-after" not in dict(Failure("resource_exhausted", "").fields)


def test_no_answer_of_a_stream_can_be_taken_for_a_failure():
    """Plain JSON ends a stream that has failed with a line that has `error` alone."""
    streams = [method for service in services().values() for method in service.methods if method.server_streaming]
    assert len(streams) > 15
    assert [method.full_name for method in streams if "error" in method.output_type.fields_by_name] == []


def described(server):
    connection = http.client.HTTPConnection("127.0.0.1", server[0], timeout=60)
    connection.request("GET", "/openapi.json", headers={"Authorization": f"Bearer {server[1]}"})
    return json.loads(connection.getresponse().read())


@pytest.mark.parametrize("name", CALLS)
def test_requests_and_answers_are_as_the_openapi_document_says(server, sandbox, name):
    method, requests, is_executors = CALLS[name]
    where = f"/{method.containing_service.full_name}/{method.name}"
    document = described(server)
    post = document["paths"][f"/{{sandbox_id}}{where}" if is_executors else where]["post"]
    door = Door(*server, "json")
    body = door.body(requests(uuid.uuid4().hex))
    answer = door.request(method, body, sandbox.sandbox_id if is_executors else "")
    kind = "200" if answer.status == 200 else "default"
    (schema, *_) = [one["schema"] for one in post["responses"][kind]["content"].values()]
    sent = post["requestBody"]["content"]["application/json"]["schema"]
    for text, shape in ((body, sent), (answer.read(), schema)):
        for line in text.splitlines():
            jsonschema.validate(json.loads(line), {**shape, "components": document["components"]})


def test_the_openapi_document_has_each_call_and_leads_nowhere_else(server):
    document = described(server)
    methods = [method for service in services().values() for method in service.methods]
    both = [method for method in methods if method.client_streaming and method.server_streaming]
    assert len(document["paths"]) == len(methods) - len(both) > 90
    text = json.dumps(document)
    names = set(re.findall(r'"#/components/schemas/([^"]+)"', text))
    assert names <= document["components"]["schemas"].keys()
    with pytest.raises(jsonschema.ValidationError):
        shape = {
            "$ref": "#/components/schemas/sandfleet_api.fleet.v1.ListRequest",
            "components": document["components"],
        }
        jsonschema.validate({"pages": 1}, shape)

"""`sandfleet serve` in a process of its own, and the two ways to call an RPC: by gRPC and through its door."""

import base64
import http.client
import json
import struct
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import unquote

import grpc
from google.protobuf import json_format
from google.protobuf.message_factory import GetMessageClass
from sandfleet_api.executor.v1 import common_pb2 as common
from sandfleet_api.fleet.v1 import fleet_pb2, fleet_pb2_grpc

PATIENCE = 60
FRAME = struct.Struct(">BI")


@contextmanager
def serving(*words):
    """(the process, its port, its key)"""
    command = [sys.executable, "-m", "sandfleet", "serve", "--port", "0", "--json", *words]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        says = json.loads(process.stdout.readline())
        yield process, int(says["address"].rpartition(":")[2]), says.get("key")
    finally:
        process.kill()
        process.wait()


@dataclass(frozen=True)
class Outcome:
    """What a call has answered, and how it has failed: (code, reason, retryable, message)."""

    messages: tuple
    error: tuple | None = None


def outcome(messages, code="", text="", detail=None):
    if not code:
        return Outcome(tuple(messages))
    detail = detail or common.ErrorDetail()
    return Outcome(tuple(messages), (code, detail.reason, detail.retryable, detail.message or text))


class Grpc:
    """Calls past the door, as the client makes them."""

    def __init__(self, address):
        self.channel = grpc.insecure_channel(address)

    def call(self, method, requests, sandbox_id="", timeout=PATIENCE):
        channel, metadata = self.channel, ()
        if sandbox_id:
            request = fleet_pb2.GetRequest(sandbox_id=sandbox_id, with_access=True)
            access = fleet_pb2_grpc.FleetServiceStub(self.channel).Get(request).access
            channel, metadata = grpc.insecure_channel(access.address), [("authorization", f"Bearer {access.token}")]
        answers = channel.stream_stream(
            f"/{method.containing_service.full_name}/{method.name}",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=GetMessageClass(method.output_type).FromString,
        )(iter(requests), metadata=metadata, timeout=timeout)
        messages = []
        try:
            messages.extend(answers)
        except grpc.RpcError as error:
            told = [value for key, value in error.trailing_metadata() if key == "sandfleet-error-bin"]
            detail = common.ErrorDetail.FromString(told[0]) if told else None
            return outcome(messages, error.code().name.lower(), error.details(), detail)
        return outcome(messages)


class Door:
    """Calls through the door in one form: `json`, `proto`, `connect+json`, `connect+proto`, `grpc-web+proto`.

    `events` are server-sent events, as the answer to `json`.
    """

    def __init__(self, port, key, form):
        self.port = port
        self.key = key
        self.form = form
        self.codec = "proto" if form.endswith("proto") else "json"

    def request(self, method, body, sandbox_id="", headers=None):
        """The answer to a body; the connection is `answer.connection`."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        kind = "json" if self.form == "events" else self.form
        fields = {"Authorization": f"Bearer {self.key}", "Content-Type": f"application/{kind}", **(headers or {})}
        if self.form == "events":
            fields["Accept"] = "text/event-stream"
        path = f"/{sandbox_id}/" if sandbox_id else "/"
        connection.request("POST", f"{path}{method.containing_service.full_name}/{method.name}", body, fields)
        answer = connection.getresponse()
        answer.connection = connection
        return answer

    def call(self, method, requests, sandbox_id="", timeout=None):
        headers = {} if timeout is None else {"Connect-Timeout-Ms": str(int(timeout * 1000))}
        answer = self.request(method, self.body(requests), sandbox_id, headers)
        return self.read(method, answer, answer.read())

    def body(self, requests):
        parts = [self.write(request) for request in requests]
        return b"".join(FRAME.pack(0, len(part)) + part for part in parts) if self.is_framed else b"\n".join(parts)

    @property
    def is_framed(self):
        return "+" in self.form

    def write(self, message):
        return (
            message.SerializeToString()
            if self.codec == "proto"
            else json_format.MessageToJson(message, 0).replace("\n", "").encode()
        )

    def read(self, method, answer, body):
        if answer.status != 200:
            return failed([], json.loads(body))
        kind = GetMessageClass(method.output_type)
        parts, error = list(self.parts(method, body)), None
        if (
            self.is_framed
            or self.form == "events"
            or (parts and method.server_streaming and set(json.loads(parts[-1][1])) == {"error"})
        ):
            *parts, (_, error) = parts
        messages = [
            kind.FromString(part) if self.codec == "proto" else json_format.Parse(part, kind()) for _, part in parts
        ]
        if error and self.form.startswith("grpc-web"):
            return trailed(messages, dict(line.split(": ", 1) for line in error.decode().splitlines()))
        return (
            failed(messages, json.loads(error)["error"])
            if error and "error" in json.loads(error)
            else outcome(messages)
        )

    def parts(self, method, body):
        """(whether it is the end, the bytes)"""
        if self.form == "events":
            for event in body.decode().removesuffix("\n\n").split("\n\n"):
                name, _, data = event.rpartition("data: ")
                yield name == "event: end\n", data.encode()
        elif not self.is_framed:
            yield from (
                (False, part)
                for part in (body.split(b"\n") if method.server_streaming else [body])
                if part or self.codec == "proto"
            )
        else:
            while body:
                flags, size = FRAME.unpack_from(body)
                yield flags != 0, body[FRAME.size : FRAME.size + size]
                body = body[FRAME.size + size :]


def failed(messages, error):
    """Of Connect's error; what is for people says the same as what is for programs."""
    detail = common.ErrorDetail()
    for one in error.get("details", ()):
        assert one["type"] == "sandfleet_api.executor.v1.ErrorDetail"
        detail = common.ErrorDetail.FromString(base64.b64decode(one["value"] + "=="))
        assert json_format.ParseDict(one["debug"], common.ErrorDetail()) == detail
    code = {"canceled": "cancelled"}.get(error["code"], error["code"])
    return outcome(messages, code, error["message"], detail)


def trailed(messages, trailers):
    code = int(trailers["grpc-status"])
    if not code:
        return outcome(messages)
    name = next(each.name.lower() for each in grpc.StatusCode if each.value[0] == code)
    detail = common.ErrorDetail.FromString(base64.b64decode(trailers["sandfleet-error-bin"]))
    return outcome(messages, name, unquote(trailers["grpc-message"]), detail)

"""How a call stands in HTTP: Connect, gRPC-Web, or plain JSON with lines or server-sent events. Pure."""

from __future__ import annotations

import base64
import json
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import quote

from google.protobuf import json_format
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import DecodeError, Message

from sandfleet._wire import api

# Bytes of one request message: the same as other servers of Connect take.
MOST_MESSAGE = 4 * 1024 * 1024
_PREFIX = struct.Struct(">BI")
_ZIPPED, _END, _TRAILERS = 0x01, 0x02, 0x80
# For zlib: a stream with the head of gzip.
_GZIP = 31
# Connect's specification names these; the other codes are 500.
_STATUSES = {
    "canceled": 499,
    "invalid_argument": 400,
    "deadline_exceeded": 504,
    "not_found": 404,
    "already_exists": 409,
    "permission_denied": 403,
    "resource_exhausted": 429,
    "failed_precondition": 400,
    "aborted": 409,
    "out_of_range": 400,
    "unimplemented": 501,
    "unavailable": 503,
    "unauthenticated": 401,
}


class Failure(Exception):
    """A call that failed, in the words of Connect; `status` takes the place of the code's."""

    def __init__(self, code: str, message: str, reason: str = "", *, status: int = 0, retryable: bool = False) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.detail = api.common.ErrorDetail(reason=reason, message=message, retryable=retryable)
        self.status = status or _STATUSES.get(code, 500)

    @classmethod
    def of(cls, code: str, message: str, detail: api.common.ErrorDetail) -> Failure:
        """Make one of a server's own code and detail."""
        failure = cls({"CANCELLED": "canceled"}.get(code, code.lower()), message)
        failure.detail.CopyFrom(detail)
        return failure

    @property
    def fields(self) -> list[tuple[bytes, bytes]]:
        """The headers: of what form the body is, when to come back, and how to be let in."""
        fields = [(b"content-type", b"application/json")]
        if self.code == "unauthenticated":
            fields.append((b"www-authenticate", b"Bearer"))
        if self.detail.HasField("retry_after"):
            pause = self.detail.retry_after
            fields.append((b"retry-after", b"%d" % max(1, pause.seconds + bool(pause.nanos))))
        return fields

    def as_json(self) -> dict[str, object]:
        """Return Connect's error; `debug` has the detail for people."""
        error: dict[str, object] = {"code": self.code, "message": self.message}
        if self.detail.reason:
            value = base64.b64encode(self.detail.SerializeToString()).rstrip(b"=").decode()
            debug = json_format.MessageToDict(self.detail, always_print_fields_with_no_presence=True)
            error["details"] = [{"type": self.detail.DESCRIPTOR.full_name, "value": value, "debug": debug}]
        return error

    @property
    def body(self) -> bytes:
        """The error as a body of its own."""
        return json.dumps(self.as_json()).encode() + b"\n"

    def as_trailers(self) -> bytes:
        """Return the trailers of gRPC-Web."""
        name = "CANCELLED" if self.code == "canceled" else self.code.upper()
        number = api.grpc.StatusCode[name].value[0]
        detail = base64.b64encode(self.detail.SerializeToString()).decode()
        lines = [f"grpc-status: {number}", f"grpc-message: {quote(self.message)}", f"sandfleet-error-bin: {detail}"]
        return "".join(f"{line}\r\n" for line in lines).encode()


class Form:
    """One message is the whole body, both ways; subclasses have streams."""

    # A failure before the first message has a status of its own, and Connect's error as its body.
    has_status = True
    # Messages of the answer are sent as they come.
    is_stream = False

    def __init__(self, codec: str, content_type: str, encoding: str = "") -> None:
        self._codec = codec
        if encoding not in ("", "identity", "gzip"):
            raise Failure(
                "unimplemented", f"cannot read the encoding {encoding!r}: send gzip or identity", "Compressed"
            )
        self._is_zipped = encoding == "gzip"
        # Headers of the answer.
        self.fields = [(b"content-type", content_type.encode())]
        self._body = bytearray()

    def messages(self, data: bytes, *, is_last: bool) -> Iterator[bytes]:
        """Take bytes of the request's body, and yield the messages that are whole now. Raises Failure."""
        self._body += data
        if len(self._body) > MOST_MESSAGE:
            raise _too_large()
        if is_last:
            yield self._unzipped(self._body) if self._is_zipped else bytes(self._body)

    @staticmethod
    def _unzipped(data: bytes | bytearray) -> bytes:
        """Return what gzip has made smaller, within the bound. Raises Failure."""
        stream = zlib.decompressobj(wbits=_GZIP)
        try:
            text = stream.decompress(data, MOST_MESSAGE + 1)
        except zlib.error as error:
            raise Failure("invalid_argument", f"cannot read the request: {error}", "InvalidRequest") from None
        if len(text) > MOST_MESSAGE:
            raise _too_large()
        if not stream.eof or stream.unused_data:
            raise Failure("invalid_argument", "cannot read the request: it is no whole gzip", "InvalidRequest")
        return text

    def decoded(self, data: bytes, kind: type[Message]) -> Message:
        """Read a request. Raises Failure."""
        try:
            if self._codec == "proto":
                return kind.FromString(data)
            return json_format.Parse(data.decode(), kind())
        except (DecodeError, json_format.ParseError, ValueError, RecursionError) as error:
            why = " ".join(str(error).split())[:500]
            raise Failure("invalid_argument", f"cannot read the request: {why}", "InvalidRequest") from None

    def encoded(self, message: Message) -> bytes:
        """Write an answer."""
        if self._codec == "proto":
            return message.SerializeToString()
        return json_format.MessageToJson(message, indent=None).encode()

    def message(self, data: bytes) -> bytes:
        """Return a message of the answer as it stands in its body."""
        return data

    def end(self, failure: Failure | None) -> bytes:  # noqa: ARG002  # an answer that is whole has no end of its own
        """Return what ends the body of an answer that has begun."""
        return b""


class Frames(Form):
    """Each message has a flag and its length before it; the last frame tells how the call has ended."""

    has_status = False
    is_stream = True

    def messages(self, data: bytes, *, is_last: bool) -> Iterator[bytes]:
        self._body += data
        while len(self._body) >= _PREFIX.size:
            flags, size = _PREFIX.unpack_from(self._body)
            if size > MOST_MESSAGE:
                raise _too_large()
            if len(self._body) < _PREFIX.size + size:
                break
            frame = bytes(self._body[_PREFIX.size : _PREFIX.size + size])
            del self._body[: _PREFIX.size + size]
            if flags not in (0, _ZIPPED) or (flags and not self._is_zipped):
                why = "a message has flags that its call has not announced"
                raise Failure("invalid_argument", f"cannot read the request: {why}", "InvalidRequest")
            yield self._unzipped(frame) if flags else frame
        if is_last and self._body:
            raise Failure("invalid_argument", "cannot read the request: it ends within a message", "InvalidRequest")

    def message(self, data: bytes) -> bytes:
        return _PREFIX.pack(0, len(data)) + data

    def end(self, failure: Failure | None) -> bytes:
        text = json.dumps({"error": failure.as_json()} if failure else {}).encode()
        return _PREFIX.pack(_END, len(text)) + text


class WebFrames(Frames):
    """gRPC-Web's frames: the last has trailers."""

    def end(self, failure: Failure | None) -> bytes:
        text = failure.as_trailers() if failure else b"grpc-status: 0\r\n"
        return _PREFIX.pack(_TRAILERS, len(text)) + text


class Lines(Form):
    """The answers are a line of JSON each. A line with `error` alone ends an answer that has failed."""

    is_stream = True

    def message(self, data: bytes) -> bytes:
        return data + b"\n"

    def end(self, failure: Failure | None) -> bytes:
        return self.message(json.dumps({"error": failure.as_json()}).encode()) if failure else b""


class Events(Lines):
    """The answers are server-sent events; the last has the name `end`."""

    def message(self, data: bytes) -> bytes:
        return b"data: " + data + b"\n\n"

    def end(self, failure: Failure | None) -> bytes:
        return b"event: end\n" + self.message(json.dumps({"error": failure.as_json()} if failure else {}).encode())


class RequestLines(Form):
    """The requests are a line of JSON each, and the answer is one message."""

    def messages(self, data: bytes, *, is_last: bool) -> Iterator[bytes]:
        *lines, rest = (bytes(self._body) + data).split(b"\n")
        self._body = bytearray(rest)
        if max(map(len, (rest, *lines))) > MOST_MESSAGE:
            raise _too_large()
        yield from filter(bytes.strip, [*lines, rest] if is_last else lines)


@dataclass(frozen=True, slots=True)
class Wish:
    """The headers of a request that say how its call is written."""

    content_type: str
    accept: str
    # How the body is compressed and, in streams, its messages.
    body_encoding: str
    message_encoding: str


def form(method: MethodDescriptor, wish: Wish) -> Form:
    """Return how a call is written. Raises Failure where this server cannot read it."""
    kind = wish.content_type.partition(";")[0].strip().lower()
    family, _, codec = kind.removeprefix("application/").partition("+")
    if family == "grpc-web" and codec in ("", "proto", "json"):
        return WebFrames(codec or "proto", kind, wish.message_encoding)
    is_stream = method.client_streaming or method.server_streaming
    if kind in ("application/connect+json", "application/connect+proto") and is_stream:
        return Frames(codec, kind, wish.message_encoding)
    if kind == "application/proto" and not is_stream:
        return Form("proto", kind, wish.body_encoding)
    if kind != "application/json":
        takes = "application/connect+json or +proto, or application/json" if is_stream else "application/json or /proto"
        message = f"cannot read a request of the type {kind!r}: {method.full_name} takes {takes}"
        raise Failure("invalid_argument", message, "InvalidRequest", status=415)
    if method.client_streaming:
        return RequestLines("json", kind)
    if not method.server_streaming:
        return Form("json", kind, wish.body_encoding)
    if "text/event-stream" in wish.accept:
        return Events("json", "text/event-stream", wish.body_encoding)
    return Lines("json", "application/x-ndjson", wish.body_encoding)


def _too_large() -> Failure:
    message = f"cannot read a request message of more than {MOST_MESSAGE} bytes: send it in pieces"
    return Failure("resource_exhausted", message, "RequestTooLarge")

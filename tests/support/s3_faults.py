"""An HTTP proxy before an S3 server that fails as a test tells it: for each request it may meet, one of FAULTS."""

import contextlib
import re
import socket
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from urllib.parse import urlsplit

FAULTS = ("error", "slow", "reset", "reply lost", "cut upload", "changed upload", "changed download", "cut download")
_ERROR = b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
# Seconds; longer than the clients of these tests wait.
_SLOW = 1.5


@dataclass
class Rule:
    """`count` requests that the pattern finds in "METHOD path" have the fault; `after`: the first of them do not."""

    fault: str
    pattern: re.Pattern[str]
    count: int
    after: int
    met: int = field(default=0)

    def hits(self, line: str) -> bool:
        if self.pattern.search(line) is None:
            return False
        self.met += 1
        return self.after < self.met <= self.after + self.count


class FaultyProxy:
    def __init__(self, target: str) -> None:
        parts = urlsplit(target)
        self._target = parts.hostname, parts.port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.endpoint = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._rules: list[Rule] = []
        self._lock = threading.Lock()
        # Called with each "METHOD path" before it is forwarded.
        self.before: Callable[[str], None] = lambda line: None
        threading.Thread(target=self._accept, daemon=True).start()

    def fail(self, fault: str, pattern: str, *, count: int = 1, after: int = 0) -> None:
        assert fault in FAULTS
        with self._lock:
            self._rules.append(Rule(fault, re.compile(pattern), count, after))

    def heal(self) -> None:
        with self._lock:
            self._rules.clear()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, contextlib.suppress(OSError, EOFError), socket.create_connection(self._target) as server:
            reading, answers = client.makefile("rb"), server.makefile("rb")
            while self._one(client, reading, server, answers):
                pass

    def _one(self, client: socket.socket, reading, server: socket.socket, answers) -> bool:
        head = _head(reading)
        method, path, _ = head.split(b" ", 2)
        line = f"{method.decode()} {path.decode()}"
        self.before(line)
        with self._lock:
            fault = next((rule.fault for rule in self._rules if rule.hits(line)), "")
        if fault == "reset":
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            return False
        if _says(head, b"expect"):
            client.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
            head = re.sub(rb"(?i)\r\nexpect:[^\r]*", b"", head)
        body = reading.read(int(_says(head, b"content-length") or 0))
        if fault == "error":
            client.sendall(_ERROR)
            return False
        if fault == "slow":
            time.sleep(_SLOW)
        if fault == "cut upload":
            server.sendall(head + body[: len(body) // 2])
            return False
        server.sendall(head + (_changed(body) if fault == "changed upload" else body))
        return _answer(client, answers, method == b"HEAD", fault)


def _answer(client: socket.socket, answers, is_head: bool, fault: str) -> bool:
    head = _head(answers)
    while head.startswith(b"HTTP/1.1 100"):
        head = _head(answers)
    if _says(head, b"transfer-encoding"):
        body = _chunked(answers)
    else:
        body = b"" if is_head else answers.read(int(_says(head, b"content-length") or 0))
    if fault == "reply lost":
        return False
    if fault == "cut download":
        client.sendall(head + body[: len(body) // 2])
        return False
    client.sendall(head + (_changed(body) if fault == "changed download" else body))
    return _says(head, b"connection").lower() != b"close"


def _chunked(answers) -> bytes:
    body = b""
    while True:
        line = answers.readline()
        body += line
        size = int(line.split(b";")[0], 16)
        body += answers.read(size + 2)
        if not size:
            return body


def _head(stream) -> bytes:
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        line = stream.readline()
        if not line:
            raise EOFError
        head += line
    return head


def _says(head: bytes, name: bytes) -> bytes:
    found = re.search(rb"(?im)^" + name + rb":\s*([^\r\n]*)", head)
    return found[1] if found else b""


def _changed(body: bytes) -> bytes:
    return body[:-1] + bytes([body[-1] ^ 1]) if body else body

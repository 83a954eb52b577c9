"""A web application for sandboxes: the tests of previews ask it over HTTP/1.1 and a WebSocket."""

import base64
import hashlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
go = threading.Event()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self, body, *fields):
        self.send_response(200)
        for name, value in (("Content-Length", str(len(body))), *fields):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        match self.path.partition("?")[0]:
            case "/ws":
                self.websocket()
            case "/stream":
                go.clear()
                self.send_response(200)
                self.end_headers()
                self.wfile.write(b"first\n")
                go.wait(60)
                self.wfile.write(b"last\n")
                self.close_connection = True
            case "/go":
                go.set()
                self.answer(b"")
            case "/cookies":
                pairs = ["a=1; Domain=localhost; Path=/", "b=2; domain=.localhost", "c=3; HttpOnly", "sandfleet_link=x"]
                self.answer(b"", *(("Set-Cookie", pair) for pair in pairs), ("X-Mine", "1"), ("Keep-Alive", "max=9"))
            case "/cut":
                self.send_response(200)
                self.send_header("Content-Length", "100")
                self.end_headers()
                self.wfile.write(b"part")
                self.close_connection = True
            case "/huge-head":
                self.answer(b"", *((f"X-{n}", "x" * 4000) for n in range(40)))
            case _:
                self.answer(json.dumps([self.path, self.headers.items()]).encode())

    def do_POST(self):
        seen, size = hashlib.sha256(), 0
        for data in self.body():
            seen.update(data)
            size += len(data)
        self.answer(json.dumps([size, seen.hexdigest()]).encode())

    def body(self):
        if self.headers.get("Transfer-Encoding") == "chunked":
            while left := int(self.rfile.readline(), 16):
                yield self.rfile.read(left)
                self.rfile.readline()
        else:
            left = int(self.headers.get("Content-Length", 0))
            while left and (data := self.rfile.read(min(left, 1 << 16))):
                left -= len(data)
                yield data

    def websocket(self):
        accept = base64.b64encode(hashlib.sha1(self.headers["Sec-WebSocket-Key"].encode() + GUID).digest()).decode()
        self.send_response(101)
        for name, value in (("Upgrade", "websocket"), ("Connection", "Upgrade"), ("Sec-WebSocket-Accept", accept)):
            self.send_header(name, value)
        self.end_headers()
        self.close_connection = True
        while head := self.rfile.read(2):
            size = head[1] & 127
            mask, data = self.rfile.read(4), self.rfile.read(size)
            data = bytes(byte ^ mask[n % 4] for n, byte in enumerate(data))
            self.wfile.write(bytes([head[0], size]) + data)

    def log_message(self, *_):
        pass


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", 8000), Handler).serve_forever()

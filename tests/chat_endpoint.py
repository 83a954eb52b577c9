"""A local server that speaks the chat completions protocol, and says what a test tells it to."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self


class Endpoint(ThreadingHTTPServer):
    """Speaks the chat completions protocol: each request gets the next of `replies` (status, headers, body)."""

    daemon_threads = True
    thread: threading.Thread

    def __enter__(self) -> Self:
        self.thread = threading.Thread(target=self.serve_forever, args=(0.01,))
        self.thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.shutdown()
        self.thread.join()
        self.server_close()

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.replies: list[tuple[int, dict[str, str], bytes]] = []
        self.requests: list[tuple[str, dict[str, str], dict[str, Any]]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1"

    def say(self, text: str, finish: str = "stop") -> None:
        choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": finish}
        usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
        reply = {"id": "x", "object": "chat.completion", "model": "tiny-1", "choices": [choice], "usage": usage}
        self.replies.append((200, {}, json.dumps(reply).encode()))

    def refuse(self, status: int, message: str = "no", **headers: str) -> None:
        body = json.dumps({"error": {"message": message, "type": "x"}}).encode()
        self.replies.append((status, {name.replace("_", "-"): value for name, value in headers.items()}, body))


class Handler(BaseHTTPRequestHandler):
    server: Endpoint

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.requests.append((self.path, dict(self.headers), body))
        status, headers, reply = self.server.replies.pop(0)
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(reply)))
        self.end_headers()
        self.wfile.write(reply)

    def do_GET(self) -> None:
        self.do_POST()

    def log_message(self, *_args: object) -> None:
        pass

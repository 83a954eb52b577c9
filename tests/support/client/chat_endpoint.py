"""A local server that speaks the chat completions protocol, streamed or not, and says what a test tells it to."""

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple, Self


class Answer(NamedTuple):
    """What the endpoint answers. A streamed one is lost after `lost_after` events, when that is given."""

    status: int
    headers: dict[str, str]
    body: bytes
    lost_after: int | None = None


class Endpoint(ThreadingHTTPServer):
    """Speaks the chat completions protocol: each request gets the next of `replies` (status, headers, body).

    Where there are none, `answers` says what is answered to a request's body. A reply that says something is streamed
    where the request asks for it, unless it names its own content type.
    """

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
        self.replies: list[tuple[int, dict[str, str], bytes] | Answer] = []
        self.requests: list[tuple[str, dict[str, str], dict[str, Any]]] = []
        self.answers: Callable[[dict[str, Any]], str] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1"

    def say(
        self,
        text: str | None,
        finish: str = "stop",
        *,
        thinking: str = "",
        calls: tuple[tuple[str, dict[str, Any]], ...] = (),
        lost_after: int | None = None,
    ) -> None:
        """Answer with a text, thinking and calls of functions (name, arguments)."""
        self.replies.append(self._said(text, finish, thinking=thinking, calls=calls, lost_after=lost_after))

    def next_to(self, body: dict[str, Any]) -> Answer:
        """The answer to a request."""
        if not self.replies and self.answers is not None:
            return self._said(self.answers(body))
        return Answer(*self.replies.pop(0))

    @staticmethod
    def _said(
        text: str | None,
        finish: str = "stop",
        *,
        thinking: str = "",
        calls: tuple[tuple[str, dict[str, Any]], ...] = (),
        lost_after: int | None = None,
    ) -> Answer:
        made = [
            {"id": f"call_{n}", "type": "function", "function": {"name": name, "arguments": json.dumps(given)}}
            for n, (name, given) in enumerate(calls)
        ]
        message: dict[str, Any] = {"role": "assistant", "content": text}
        message |= ({"tool_calls": made} if made else {}) | ({"reasoning_content": thinking} if thinking else {})
        choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if made else finish}
        usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
        reply = {"id": "x", "object": "chat.completion", "model": "tiny-1", "choices": [choice], "usage": usage}
        return Answer(200, {}, json.dumps(reply).encode(), lost_after)

    def refuse(self, status: int, message: str = "no", code: str | None = None, **headers: str) -> None:
        body = json.dumps({"error": {"message": message, "type": "x", "code": code}}).encode()
        self.replies.append((status, {name.replace("_", "-"): value for name, value in headers.items()}, body))


class Handler(BaseHTTPRequestHandler):
    server: Endpoint

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.requests.append((self.path, dict(self.headers), body))
        answer = self.server.next_to(body)
        plain = "Content-Type" in answer.headers
        if body.get("stream") and not plain and (chunks := list(_chunks(answer))):
            usage = bool((body.get("stream_options") or {}).get("include_usage"))
            self._stream([chunk for chunk in chunks if usage or "usage" not in chunk], answer.lost_after)
            return
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        self.wfile.write(answer.body)

    def do_GET(self) -> None:
        self.do_POST()

    def log_message(self, *_args: object) -> None:
        pass

    def _stream(self, chunks: list[dict[str, Any]], lost_after: int | None) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.end_headers()
        self.wfile.write(b": keep-alive\r\n\r\n")
        for chunk in chunks[:lost_after]:
            self.wfile.write(f"data: {json.dumps(chunk)}\n\n".encode())
            self.wfile.flush()
        if lost_after is None:
            self.wfile.write(b"data: [DONE]\n\n")


def _chunks(answer: Answer) -> Iterator[dict[str, Any]]:
    """A reply in one piece as the chunks of a stream, word by word; none for what says nothing."""
    try:
        reply = json.loads(answer.body)
        choice = reply["choices"][0]
        message = choice["message"]
    except (ValueError, KeyError, IndexError, TypeError):
        return
    for delta in _deltas(message):
        yield {"model": reply.get("model"), "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
    yield {"choices": [{"index": 0, "delta": {}, "finish_reason": choice.get("finish_reason")}]}
    yield {"choices": [], "usage": reply.get("usage")}


def _deltas(message: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield {"role": "assistant", "content": ""}
    for word in (message.get("reasoning_content") or "").split(" "):
        yield {"reasoning_content": word + " "} if word else {}
    text = message.get("content") or ""
    for start in range(0, len(text), 5):
        yield {"content": text[start : start + 5]}
    for index, call in enumerate(message.get("tool_calls") or []):
        function = call["function"]
        yield {
            "tool_calls": [{"index": index, "id": call["id"], "function": {"name": function["name"], "arguments": ""}}]
        }
        for start in range(0, len(function["arguments"]), 7):
            piece = function["arguments"][start : start + 7]
            yield {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}

"""A model's API in OpenAI's form, and a client of it that does what the package `openai` does.

The API needs Python's own library alone: a pod gets this file.
"""

import http.server
import json
import threading
from collections.abc import Iterator
from typing import Any

CHAT, MODELS = "/v1/chat/completions", "/v1/models"


class Chat(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # What the keys begin with that the API takes.
    keys = ""
    # A client has asked for the models since its stream has begun.
    has_asked = threading.Event()

    def chat(self) -> None:
        """Answers with the last message. A refusal echoes the key, as those of real ones do."""
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        shown = self.headers.get("Authorization", "")
        if not shown.startswith(f"Bearer {self.keys}"):
            self._json(401, {"error": {"message": f"Incorrect API key provided: {shown}", "code": "invalid_api_key"}})
            return
        words = asked["messages"][-1]["content"]
        about = {"id": "chatcmpl-1", "created": 1, "model": asked["model"]}
        if asked.get("stream"):
            self.events(_chunks(about, words, self.has_asked))
            return
        choice = {"index": 0, "message": {"role": "assistant", "content": words}, "finish_reason": "stop"}
        self._json(200, {**about, "object": "chat.completion", "choices": [choice]})

    def models(self) -> None:
        self.has_asked.set()
        self._json(200, {"object": "list", "data": []})

    def events(self, texts: Iterator[str]) -> None:
        """Server-sent events, each flushed by itself."""
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for text in texts:
            event = f"data: {text}\n\n"
            self.wfile.write(f"{len(event):x}\r\n{event}\r\n".encode())
        self.wfile.write(b"0\r\n\r\n")

    def _json(self, status: int, answer: dict[str, Any]) -> None:
        data = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def _chunks(about: dict[str, Any], words: str, has_asked: threading.Event) -> Iterator[str]:
    """A word at a time. A client gets the second only when it has read the first, and has asked for the models."""
    has_asked.clear()
    for number, word in enumerate(words.split()):
        if number == 1 and not has_asked.wait(20):
            return
        choice = {"index": 0, "delta": {"content": word}, "finish_reason": None}
        yield json.dumps({**about, "object": "chat.completion.chunk", "choices": [choice]})
    yield "[DONE]"


# Both are code of a session. A program in front of them says BASE, as the variable OPENAI_BASE_URL does.
CLIENT = """
import json, os, urllib.error, urllib.request
def opened(path, **body):
    head = {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"], "Content-Type": "application/json"}
    data = json.dumps(body).encode() if body else None
    return urllib.request.urlopen(urllib.request.Request(BASE + path, data, head), timeout=30)
def chat(words, **more):
    return opened("/chat/completions", model="m", messages=[{"role": "user", "content": words}], **more)
def streamed(words):
    with chat(words, stream=True) as answer:
        for line in answer:
            if (text := line.decode().strip().removeprefix("data: ")) and text != "[DONE]":
                yield json.loads(text)["choices"][0]["delta"]["content"]
"""
TALK = f"""{CLIENT}
try:
    print(json.load(chat("hello there"))["choices"][0]["message"]["content"])
    for word in streamed("one by one"):
        opened("/models").close()
        print(word)
except urllib.error.HTTPError as error:
    print(error.code, json.load(error)["error"]["message"])
"""
ANSWERED = "hello there\none\nby\none\n"


def refused(key: str) -> str:
    """What it prints where the API does not take the key, which is covered."""
    return f"401 Incorrect API key provided: Bearer {'*' * len(key)}\n"

"""The program of a pod that sandboxes reach by name: a page, packages, a repository, and APIs with keys.

It has nothing but Python's own library: the pod gets this file and that of the API in OpenAI's form.
"""

import base64
import functools
import hashlib
import http.server
import ssl
import sys
import threading

from support.client.chat import CHAT, MODELS, Chat

PORT, TLS_PORT = 8080, 8443
# An index of Python, a registry of npm, and repositories of git.
FILES = ("/simple/", "/npm/", "/git/")


class Host(Chat, http.server.SimpleHTTPRequestHandler):
    """In the pod: `/` is a page, FILES are files, and `/v1/` is an API that knows keys by their digests alone, but for
    the one in OpenAI's form.
    """

    keys = "canary-"
    # As servers in earnest do: a body would wait up to 40 ms until its head is acknowledged.
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        if self.path.startswith(FILES):
            super().do_GET()
        elif self.path == MODELS:
            self.models()
        else:
            self._answer(200, "hello")

    def do_POST(self) -> None:
        if self.path == CHAT:
            self.chat()
            return
        self.rfile.read(int(self.headers.get("Content-Length", "0")))
        shown = self.headers.get("Authorization", "")
        # The API echoes what it was shown, as careless ones do.
        self._answer(200, f"{digest(shown)} {shown}")

    def _answer(self, status: int, text: str) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: object) -> None:
        """No header gets into a log."""


def digest(shown: str) -> str:
    """Of a value of the header Authorization: its digest stands for a key in what the host says."""
    words = shown.partition(" ")[2]
    if shown.startswith("Basic "):
        words = base64.b64decode(words).decode().rpartition(":")[2]
    return hashlib.sha256(words.encode()).hexdigest()


def serve(folder: str, tls: str) -> None:
    """The pod's program; it does not return."""
    handler = functools.partial(Host, directory=folder)
    secure = http.server.ThreadingHTTPServer(("", TLS_PORT), handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(f"{tls}/server.pem")
    secure.socket = context.wrap_socket(secure.socket, server_side=True)
    threading.Thread(target=secure.serve_forever).start()
    http.server.ThreadingHTTPServer(("", PORT), handler).serve_forever()


if __name__ == "__main__":
    serve(*sys.argv[1:])

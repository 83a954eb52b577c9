"""A small internet on loopback: a package index, a git repository and an API, as servers of the test."""

import contextlib
import http.server
import subprocess
import threading
from pathlib import Path

from support.wheels import wheel


class _Handler(http.server.SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        answer = f"{self.headers['Host']} {self.headers.get('Authorization', '-')} {body.decode()}".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_):
        """Tests read the answers."""


def index(folder, name):
    """A page of a package index with one wheel, `name` 1.0, which says "out there"."""
    project = Path(folder) / "simple" / name
    project.mkdir(parents=True)
    file = f"{name}-1.0-py3-none-any.whl"
    (project / file).write_bytes(wheel(name, "1.0", value="out there"))
    (project / "index.html").write_text(f'<a href="{file}">{file}</a>')


def repository(folder, name):
    """A git repository with one file, which any server of files serves."""
    work = Path(folder) / f"{name}.work"
    git = ["git", "-c", "user.name=t", "-c", "user.email=t@example.com", "-C", str(work)]
    subprocess.run(["git", "init", "-q", str(work)], check=True)
    (work / "README").write_text("cloned\n")
    for words in (["add", "."], ["commit", "-q", "-m", "First"]):
        subprocess.run([*git, *words], check=True)
    bare = Path(folder) / f"{name}.git"
    subprocess.run(["git", "clone", "-q", "--bare", str(work), str(bare)], check=True)
    subprocess.run(["git", "-C", str(bare), "update-server-info"], check=True)


@contextlib.contextmanager
def serving(folder, tls=None):
    """The port at which the folder is served on loopback; with `tls` a context of a server."""

    def handler(*args):
        return _Handler(*args, directory=str(folder))

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1]
        server.shutdown()

"""A small internet on loopback: package indexes, git repositories, an API and streams, as servers of the test."""

import base64
import contextlib
import hashlib
import http.server
import io
import json
import os
import struct
import subprocess
import tarfile
import threading
import zipfile
from pathlib import Path

from support.client.chat import CHAT, MODELS, Chat
from support.wheels import sdist, wheel

GIT_ROOT, PACKAGES = "/git/", "/npm/"
# RFC 6455, 1.3: what a server of WebSocket adds to the client's key.
WEBSOCKET = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


class _Handler(Chat, http.server.SimpleHTTPRequestHandler):
    # The password that git's server asks for; empty: it asks for none.
    key = ""

    def do_GET(self):
        if self.path.startswith(GIT_ROOT):
            self._git()
        elif self.path.startswith(PACKAGES) and not self.path.endswith(".tgz"):
            self._package()
        elif self.path == "/cargo/config.json":
            self._answer(200, json.dumps({"dl": f"{self._root()}/cargo/{{crate}}.crate"}).encode())
        elif self.path == "/endless":
            self._endless()
        elif self.path.startswith("/events?"):
            self.events(map(str, range(int(self.path.partition("?")[2]))))
        elif self.path == MODELS:
            self.models()
        elif self.headers.get("Upgrade") == "websocket":
            self._websocket()
        else:
            super().do_GET()

    def do_POST(self):
        if self.path.startswith(GIT_ROOT):
            self._git()
            return
        if self.path == CHAT:
            self.chat()
            return
        body = self.rfile.read(int(self.headers["Content-Length"]))
        answer = f"{self.headers['Host']} {self.headers.get('Authorization', '-')} {body.decode()}".encode()
        self._answer(200, answer)

    def _answer(self, status, data, **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _git(self):
        """git's own program answers, once the password is the key."""
        scheme, _, words = self.headers.get("Authorization", "").partition(" ")
        shown = base64.b64decode(words).decode() if scheme == "Basic" else ""
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        if self.key and shown.rpartition(":")[2] != self.key:
            self._answer(401, b"", WWW_Authenticate='Basic realm="git"')
            return
        path, _, query = self.path.removeprefix(GIT_ROOT[:-1]).partition("?")
        told = {
            "GIT_PROJECT_ROOT": self.directory,
            "GIT_HTTP_EXPORT_ALL": "1",
            "REMOTE_USER": "me",
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "REQUEST_METHOD": self.command,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "CONTENT_LENGTH": str(len(body)),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            "GIT_CONFIG_COUNT": "1",
            "GIT_CONFIG_KEY_0": "safe.directory",
            "GIT_CONFIG_VALUE_0": "*",
        }
        done = subprocess.run(
            ["git", "http-backend"], input=body, capture_output=True, env={**os.environ, **told}, check=True
        )
        head, _, data = done.stdout.partition(b"\r\n\r\n")
        said = dict(line.split(": ", 1) for line in head.decode().split("\r\n"))
        status = int(said.pop("Status", "200").split()[0])
        self._answer(status, data, **said)

    def _package(self):
        """What a registry of npm says of a package: its only version, and where its archive is, on this very host."""
        name = self.path.removeprefix(PACKAGES)
        archive = (Path(self.directory) / "npm" / f"{name}-1.0.0.tgz").read_bytes()
        where = f"{self._root()}{PACKAGES}{name}-1.0.0.tgz"
        self._answer(200, registry_page(name, archive, where), Content_Type="application/json")

    def _root(self):
        """The address of this server, as its client names it."""
        scheme = "https" if hasattr(self.connection, "version") else "http"
        return f"{scheme}://{self.headers['Host']}"

    def _endless(self):
        """Says that much is to come, and a few bytes of it, until its client has gone."""
        self.send_response(200)
        self.send_header("Content-Length", "1000000")
        self.end_headers()
        self.wfile.write(b"begun")
        self.rfile.read(1)
        self.close_connection = True

    def _websocket(self):
        """Echoes text messages until the client closes."""
        key = self.headers["Sec-WebSocket-Key"].encode()
        accepted = base64.b64encode(hashlib.sha1(key + WEBSOCKET).digest()).decode()
        self.send_response(101)
        for name, value in (("Upgrade", "websocket"), ("Connection", "Upgrade"), ("Sec-WebSocket-Accept", accepted)):
            self.send_header(name, value)
        self.end_headers()
        while (first := self.rfile.read(2)) and first[0] & 15 == 1:
            size = first[1] & 127
            if size == 126:
                (size,) = struct.unpack("!H", self.rfile.read(2))
            mask, data = self.rfile.read(4), self.rfile.read(size)
            text = bytes(byte ^ mask[place % 4] for place, byte in enumerate(data))
            length = bytes([size]) if size < 126 else b"\x7e" + struct.pack("!H", size)
            self.wfile.write(b"\x81" + length + text)
        self.close_connection = True

    def log_message(self, *_):
        """Tests read the answers."""


def index(folder, name):
    """A page of a package index with one wheel, `name` 1.0, which says "out there"."""
    project = Path(folder) / "simple" / name
    project.mkdir(parents=True)
    file = f"{name}-1.0-py3-none-any.whl"
    (project / file).write_bytes(wheel(name, "1.0", value="out there"))
    (project / "index.html").write_text(f'<a href="{file}">{file}</a>')


def source(folder, name):
    """A page of a package index with one source distribution, `name` 1.0, which says "built here"."""
    project = Path(folder) / "simple" / name
    project.mkdir(parents=True)
    (project / f"{name}-1.0.tar.gz").write_bytes(sdist(name, "1.0", value="built here"))


def registry_page(name, archive, where):
    """The JSON by which a registry of npm says of a package that its only version is the archive at this URL."""
    digest = base64.b64encode(hashlib.sha512(archive).digest()).decode()
    version = {"name": name, "version": "1.0.0", "dist": {"tarball": where, "integrity": f"sha512-{digest}"}}
    return json.dumps({"name": name, "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": version}}).encode()


def node_package(folder, name):
    """A package of npm with one module, which says "out there"."""
    files = {"package.json": json.dumps({"name": name, "version": "1.0.0"}), "index.js": 'module.exports = "out there"'}
    (Path(folder) / "npm").mkdir(exist_ok=True)
    with tarfile.open(Path(folder) / "npm" / f"{name}-1.0.0.tgz", "w:gz") as archive:
        _put(archive, {f"package/{path}": text for path, text in files.items()})


def go_module(folder, name):
    """A module of Go, `name` v1.0.0, as a module proxy at /go serves it."""
    versions = Path(folder) / "go" / name / "@v"
    versions.mkdir(parents=True)
    (versions / "v1.0.0.info").write_text('{"Version": "v1.0.0"}')
    (versions / "v1.0.0.mod").write_text(f"module {name}\n")
    with zipfile.ZipFile(versions / "v1.0.0.zip", "w") as archive:
        archive.writestr(f"{name}@v1.0.0/go.mod", f"module {name}\n")
        archive.writestr(f"{name}@v1.0.0/lib.go", "package lib\n")


def crate(folder, name):
    """A sparse index of cargo at /cargo with one crate, whose function `value` says "out there"."""
    root = Path(folder) / "cargo"
    (place := root / name[:2] / name[2:4]).mkdir(parents=True)
    manifest = f'[package]\nname = "{name}"\nversion = "1.0.0"\nedition = "2021"\n'
    code = 'pub fn value() -> &\'static str { "out there" }\n'
    with tarfile.open(file := root / f"{name}.crate", "w:gz") as archive:
        _put(archive, {f"{name}-1.0.0/Cargo.toml": manifest, f"{name}-1.0.0/src/lib.rs": code})
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    version = {"name": name, "vers": "1.0.0", "deps": [], "cksum": digest, "features": {}, "yanked": False}
    (place / name).write_text(json.dumps(version) + "\n")


def maven_artifact(folder, group, name, version):
    """A JAR without classes in the repository of Maven at /maven."""
    (place := Path(folder) / "maven" / group.replace(".", "/") / name / version).mkdir(parents=True)
    about = f"<groupId>{group}</groupId><artifactId>{name}</artifactId><version>{version}</version>"
    pom = f"<project><modelVersion>4.0.0</modelVersion>{about}</project>"
    (place / f"{name}-{version}.pom").write_text(pom)
    with zipfile.ZipFile(place / f"{name}-{version}.jar", "w") as archive:
        archive.writestr("META-INF/MANIFEST.MF", "Manifest-Version: 1.0\n")
    for file in tuple(place.iterdir()):
        (place / f"{file.name}.sha1").write_text(hashlib.sha1(file.read_bytes()).hexdigest())


def r_package(folder, name):
    """A repository of R at /cran with one package, whose function value says "out there"."""
    (sources := Path(folder) / "cran/src/contrib").mkdir(parents=True)
    about = f"Package: {name}\nVersion: 1.0\nLicense: MIT\n"
    more = "Title: T\nDescription: D.\nAuthor: A\nMaintainer: A <a@example.com>\n"
    code = 'value <- function() "out there"\n'
    with tarfile.open(sources / f"{name}_1.0.tar.gz", "w:gz") as archive:
        _put(archive, {f"{name}/DESCRIPTION": about + more, f"{name}/NAMESPACE": "export(value)\n"})
        _put(archive, {f"{name}/R/value.R": code})
    (sources / "PACKAGES").write_text(f"{about}NeedsCompilation: no\n")


def debian_package(folder, name):
    """A flat repository of apt at /deb with one empty package, which is not signed."""
    (work := Path(folder) / f"{name}.deb.work/DEBIAN").mkdir(parents=True)
    about = f"Package: {name}\nVersion: 1.0\nArchitecture: all\nMaintainer: A <a@example.com>\nDescription: D\n"
    (work / "control").write_text(about)
    (root := Path(folder) / "deb").mkdir()
    file = root / f"{name}_1.0_all.deb"
    subprocess.run(["dpkg-deb", "-b", str(work.parent), str(file)], check=True, capture_output=True)
    data = file.read_bytes()
    size = f"Filename: ./{file.name}\nSize: {len(data)}\nSHA256: {hashlib.sha256(data).hexdigest()}\n"
    (root / "Packages").write_text(about + size)


def _put(archive, files):
    """Text files into a tar archive."""
    for path, text in files.items():
        member = tarfile.TarInfo(path)
        member.size = len(text)
        archive.addfile(member, io.BytesIO(text.encode()))


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
def serving(folder, tls=None, key=""):
    """The port at which the folder is served on loopback; with `tls` a context of a server."""

    class Handler(_Handler):
        def __init__(self, *args):
            super().__init__(*args, directory=str(folder))

    Handler.key = Handler.keys = key

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1]
        server.shutdown()

"""Egress by name on one machine: a program in a sandbox, beside the same program that connects directly.

SANDFLEET_BENCH_EGRESS_MB is what is downloaded for throughput and memory (1000).
"""

import asyncio
import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from figures import Figure, progress, quantile
from sandfleet import AsyncFleet, AsyncSandbox, Header
from sandfleet._fleets.embedded import Options, Process

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.client.executors import children
from support.operator.egress_bed import certificate, client_hello

MB = 1_000_000
BULK = int(os.environ.get("SANDFLEET_BENCH_EGRESS_MB", "1000")) * MB
REQUESTS, ROUNDS = 40, 5
IDLE, PER_SESSION = 2000, 125
HOSTS, KEY = "SANDFLEET_EGRESS_HOSTS", "key-of-the-bench"
# Two servers, of HTTP and of HTTPS, which answer a path /N with N bytes; a third one sends bytes without end to each
# connection that has said something.
SERVER = """
import asyncio, ssl, sys
PIECE = bytes(1 << 20)
async def page(reader, writer):
    while head := await reader.readuntil(b"\\r\\n\\r\\n"):
        left = int(head.split()[1].split(b"/")[-1])
        writer.write(b"HTTP/1.1 200 OK\\r\\nContent-Length: %d\\r\\n\\r\\n" % left)
        while left > 0:
            writer.write(PIECE[:left])
            left -= len(PIECE)
            await writer.drain()
async def stream(reader, writer):
    await reader.read(1)
    while True:
        writer.write(PIECE)
        await writer.drain()
def quietly(serve):
    async def served(reader, writer):
        try:
            await serve(reader, writer)
        except (OSError, EOFError):
            pass
        finally:
            writer.close()
    return served
async def main():
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(sys.argv[1])
    servers = [await asyncio.start_server(quietly(serve), "127.0.0.1", 0, ssl=tls, backlog=4096)
               for serve, tls in ((page, None), (page, context), (stream, None))]
    print(*[server.sockets[0].getsockname()[1] for server in servers], flush=True)
    await asyncio.Event().wait()
asyncio.run(main())
"""
# What is measured, as a program of its own: in the sandbox it goes through the proxy, on this machine directly.
PROXY = ("127.0.0.1", 3128)
PROGRAM = """
import json, socket, ssl, sys, time
what, host, port, way, first, count = json.loads(sys.argv[1])
proxied = way[1] == 3128
context = ssl.create_default_context()
context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
def opened():
    sock = socket.create_connection(tuple(way))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock
def tunnel():
    sock = opened()
    if proxied:
        sock.sendall(f"CONNECT {host}:{port} HTTP/1.1\\r\\nHost: {host}\\r\\n\\r\\n".encode())
        said = sock.recv(4096)
        assert b" 200 " in said, said
    return sock
def asked(sock, target, path="/1"):
    sock.sendall(f"GET {target}{path} HTTP/1.1\\r\\nHost: {host}:{port}\\r\\n\\r\\n".encode())
    said = sock.recv(65536)
    assert b" 200 " in said, said
    head, _, body = said.partition(b"\\r\\n\\r\\n")
    while len(body) < 1:
        body += sock.recv(65536)
    return len(body)
def plain():
    with opened() as sock:
        asked(sock, f"http://{host}:{port}" if proxied else "")
def secure():
    with context.wrap_socket(tunnel(), server_hostname=host) as sock:
        asked(sock, "")
def bulk(sock, left):
    start, buffer = time.perf_counter(), bytearray(1 << 20)
    while left > 0:
        got = sock.recv_into(buffer)
        assert got
        left -= got
    return time.perf_counter() - start
if what in ("plain", "secure"):
    samples = []
    for _ in range(count):
        start = time.perf_counter()
        {"plain": plain, "secure": secure}[what]()
        samples.append((time.perf_counter() - start) * 1e3)
elif what == "kept":
    with context.wrap_socket(tunnel(), server_hostname=host) as sock:
        samples = []
        for _ in range(count):
            start = time.perf_counter()
            asked(sock, "")
            samples.append((time.perf_counter() - start) * 1e3)
elif what == "bytes":
    sock = tunnel()
    sock.sendall(bytes.fromhex(first))
    samples = [count / 1e6 / bulk(sock, count)]
else:
    sock = context.wrap_socket(tunnel(), server_hostname=host)
    samples = [count / 1e6 / bulk(sock, asked(sock, "", f"/{count}") and count - 65536)]
print(json.dumps(samples))
"""
DIRECT = "beside the same program of this machine without a proxy"


def figures() -> Iterator[Figure]:
    with tempfile.TemporaryDirectory(prefix="sf-", dir="/tmp") as folder, served(Path(folder)) as (process, ports):
        yield from asyncio.run(measured(process, ports))
    with tempfile.TemporaryDirectory(prefix="sf-", dir="/tmp") as folder:
        progress(f"{IDLE} idle connections")
        yield from asyncio.run(idle(Path(folder)))


@contextmanager
def served(folder: Path) -> Iterator[tuple[Process, list[int]]]:
    """The servers, and a fleet whose egress process knows them as passed.test and keyed.test."""
    _, _, authority = certificate(folder, "passed.test", "keyed.test")
    os.environ[HOSTS] = "passed.test=127.0.0.1,keyed.test=127.0.0.1"
    os.environ["SSL_CERT_FILE"] = str(authority)
    command = [sys.executable, "-c", SERVER, str(folder / "server.pem")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as servers:
        assert servers.stdout
        ports = list(map(int, servers.stdout.readline().split()))
        process = Process(Options(pool_size=1), state_dir=folder / "fleet")
        try:
            yield process, ports
        finally:
            process.stop()
            servers.kill()
            del os.environ[HOSTS], os.environ["SSL_CERT_FILE"]


class Ways:
    """Runs the program in the sandbox and on this machine."""

    def __init__(self, sandbox: AsyncSandbox) -> None:
        self._sandbox = sandbox

    async def proxied(self, what: str, host: str, port: int, count: int) -> list[float]:
        asked = json.dumps([what, host, port, PROXY, client_hello(host).hex(), count])
        done = await self._sandbox.commands.run(["python3", "-c", PROGRAM, asked], timeout=600, check=True)
        found: list[float] = json.loads(done.stdout)
        return found

    async def direct(self, what: str, port: int, count: int) -> list[float]:
        asked = json.dumps([what, "passed.test", port, ("127.0.0.1", port), client_hello("passed.test").hex(), count])
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", PROGRAM, asked, stdout=asyncio.subprocess.PIPE
        )
        found: list[float] = json.loads((await process.communicate())[0])
        return found


async def measured(process: Process, ports: list[int]) -> list[Figure]:
    http, https, endless = ports
    names = [f"passed.test:{port}" for port in ports] + [f"keyed.test:{https}"]
    keys = {"keyed.test": Header("Authorization", "Bearer {key}", key=KEY)}
    async with (
        await AsyncFleet.connect(process.address) as fleet,
        await AsyncSandbox.create(fleet=fleet, egress=names, credentials=keys) as sandbox,
    ):
        ways = Ways(sandbox)
        found = [*await latencies(ways, http, https), *await kept(ways, https)]
        (egress,) = [
            pid for pid in children(process.pid) if b"fleet.egress" in Path(f"/proc/{pid}/cmdline").read_bytes()
        ]
        return [*found, *await throughputs(ways, egress, https, endless)]


async def latencies(ways: Ways, http: int, https: int) -> list[Figure]:
    progress("requests, each on a connection of its own")
    plain, bare, passed, ended, secure = ([] for _ in range(5))
    # By turns, so that all see the same noise.
    for _ in range(ROUNDS):
        plain += await ways.proxied("plain", "passed.test", http, REQUESTS)
        bare += await ways.direct("plain", http, REQUESTS)
        passed += await ways.proxied("secure", "passed.test", https, REQUESTS)
        ended += await ways.proxied("secure", "keyed.test", https, REQUESTS)
        secure += await ways.direct("secure", https, REQUESTS)
    p50 = [quantile(one, 0.5) for one in (plain, bare, passed, secure, ended)]
    added = f"{DIRECT}; added {{:.2f}} ms, ≤ 3"
    return [
        Figure("request of HTTP by name, p50", p50[0], "ms", p50[1], added.format(p50[0] - p50[1])),
        Figure("request of HTTPS by name, p50", p50[2], "ms", p50[3], added.format(p50[2] - p50[3])),
        Figure(
            "request of HTTPS to a host with a key, p50", p50[4], "ms", p50[2], "beside a host without one; ≤ 2 times"
        ),
    ]


async def kept(ways: Ways, https: int) -> list[Figure]:
    progress("requests on one connection")
    passed, ended, secure = [], [], []
    for _ in range(ROUNDS):
        passed += await ways.proxied("kept", "passed.test", https, REQUESTS)
        ended += await ways.proxied("kept", "keyed.test", https, REQUESTS)
        secure += await ways.direct("kept", https, REQUESTS)
    p50 = [quantile(one, 0.5) for one in (passed, secure, ended)]
    note = "beside a host without one; ≤ 2 times"
    return [
        Figure("request on an open connection, p50", p50[0], "ms", p50[1], DIRECT),
        Figure("request on an open connection to a host with a key, p50", p50[2], "ms", p50[0], note),
    ]


async def throughputs(ways: Ways, egress: int, https: int, endless: int) -> list[Figure]:
    progress(f"{BULK // MB} MB through one connection")
    found = []
    for name, what, host, port in (
        ("bytes carried by one connection", "bytes", "passed.test", endless),
        ("download by HTTPS", "download", "passed.test", https),
        ("download by HTTPS from a host with a key", "download", "keyed.test", https),
    ):
        before, peak = memory(egress), asyncio.create_task(highest(egress))
        (ours,) = await ways.proxied(what, host, port, BULK)
        peak.cancel()
        (theirs,) = await ways.direct(what, port, BULK)
        grown = (await peak) - before
        note = f"{DIRECT}; ≥ 150. The egress process had {before:.0f} MB before, and {grown:.1f} MB more at most"
        found.append(Figure(name, ours, "MB/s", theirs, note))
    return found


def memory(pid: int) -> float:
    """Resident, in MB."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / MB


async def highest(pid: int) -> float:
    """The most that the process has had, until the task is cancelled."""
    most = 0.0
    try:
        while True:
            most = max(most, memory(pid))
            await asyncio.sleep(0.02)
    except asyncio.CancelledError:
        return most


async def idle(folder: Path) -> list[Figure]:
    """Tunnels that are open and silent, of 16 sessions, at listeners that executors hand over."""
    accepted: list[asyncio.StreamWriter] = []

    async def connected(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        accepted.append(writer)

    host = await asyncio.start_server(connected, "127.0.0.1", 0, backlog=4096)
    port = host.sockets[0].getsockname()[1]
    path = folder / "egress.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen(1024)
        words = ["-m", "sandfleet_operator.fleet.egress.serve", "--listen-fd", str(listener.fileno())]
        process = await asyncio.create_subprocess_exec(
            sys.executable, *words, "--host", "a.test=127.0.0.1", stdin=-1, stdout=-1, pass_fds=[listener.fileno()]
        )
    assert process.stdin and process.stdout
    await process.stdout.readline()
    sessions = range(IDLE // PER_SESSION)
    for number in sessions:
        allow = {"op": "allow", "session": str(number), "names": [f"a.test:{port}"]}
        process.stdin.write(json.dumps(allow).encode() + b"\n")
    process.stdin.write(b'{"op":"serve"}\n')
    before = memory(process.pid)
    hello = client_hello("a.test")
    handed = [(number, socket.create_server(("127.0.0.1", 0), backlog=PER_SESSION)) for number in sessions]
    controls = [hand(path, str(number), listener) for number, listener in handed]
    places = [listener.getsockname() for _, listener in handed]
    writers = [await silent(place, port, hello) for place in places for _ in range(PER_SESSION)]
    while len(accepted) < IDLE:
        await asyncio.sleep(0.01)
    after = memory(process.pid)
    for writer in (*writers, *accepted, *controls):
        writer.close()
    process.kill()
    await process.wait()
    return [Figure(f"memory with {IDLE} idle connections", after, "MB", before, "beside none; ≤ 300 MB")]


def hand(path: Path, session: str, listener: socket.socket) -> socket.socket:
    """As an executor hands its session's listener over."""
    control = socket.socket(socket.AF_UNIX)
    control.connect(str(path))
    socket.send_fds(control, [json.dumps({"session": session}).encode() + b"\n"], [listener.fileno()])
    return control


async def silent(place: tuple[str, int], port: int, hello: bytes) -> asyncio.StreamWriter:
    reader, writer = await asyncio.open_connection(*place)
    head = f"CONNECT a.test:{port} HTTP/1.1\r\nHost: a.test\r\n\r\n"
    writer.write(head.encode())
    assert b" 200 " in await reader.readuntil(b"\r\n\r\n")
    # As a program does that keeps a connection of TLS.
    writer.write(hello)
    return writer

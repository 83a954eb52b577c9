"""Services as the configuration has them, what they write, what answers a probe, and whose a port is."""

import pytest
from sandfleet_executor.core.config import ExecutorConfig
from sandfleet_executor.core.errors import ConfigError
from sandfleet_executor.core.services import http, parse
from sandfleet_executor.core.services.exits import Facts, judge
from sandfleet_executor.core.services.log import Ring
from sandfleet_executor.core.services.spec import Exec, Http, Probe, Restart, ServiceSpec, Tcp

CONFIG = {
    "sandbox_id": "s",
    "sandbox_uid": "u",
    "workspace": "/workspace",
    "private_dir": "/p",
    "keys_file": "/k",
    "socket": "/s",
}


def test_a_configuration_says_everything_that_the_api_can_say():
    said = [
        {
            "name": "app",
            "command": ["python", "app.py"],
            "cwd": "app",
            "envs": {"A": "1"},
            "readiness": {"http": {"port": 80, "path": "/up", "status": 204}, "interval": 2, "failures": 5},
            "liveness": {"exec": "test -e x", "timeout": 0.5, "successes": 2},
            "restart": "always",
            "backoff": 1,
            "backoff_cap": 9.5,
            "max_failures": 3,
            "after": ["db", "db"],
            "stop_signal": "SIGINT",
            "grace": 0,
        },
        {"name": "db", "command": "db --port 1", "readiness": {"tcp": {"port": 1}}},
    ]
    db, app = parse.services(said, "/workspace")
    assert db == ServiceSpec("db", b"db --port 1", shell=True, cwd=b"/workspace", readiness=Probe(Tcp(1)))
    assert app == ServiceSpec(
        "app",
        b"python\0app.py",
        shell=False,
        cwd=b"/workspace/app",
        envs={"A": "1"},
        readiness=Probe(Http(80, "/up", 204), interval=2, failures=5),
        liveness=Probe(Exec(b"test -e x", shell=True), timeout=0.5, successes=2),
        restart=Restart.ALWAYS,
        backoff=1,
        backoff_cap=9.5,
        max_failures=3,
        after=("db",),
        stop_signal=2,
        grace=0,
    )


@pytest.mark.parametrize(
    ("services", "said"),
    [
        ("db", "no list"),
        ([{"name": "db"}], "a name and a command"),
        ([{"name": "db", "command": "x", "colour": "blue"}], "unknown colour"),
        ([{"name": "a", "command": "x", "after": ["b"]}], "no such service"),
        ([{"name": "a", "command": "x", "readiness": {"tcp": {"port": 1}, "exec": "x"}}], "exactly one"),
        ([{"name": "a", "command": "x", "readiness": {"tcp": {"port": True}}}], "wrong kind"),
        ([{"name": "a", "command": "x", "stop_signal": "SIGFOO"}], "no such signal"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_an_executor_refuses_services_that_cannot_be(services, said):
    with pytest.raises(ConfigError, match=said):
        ExecutorConfig.parse({**CONFIG, "services": services})


def test_a_ring_holds_the_last_bytes_with_their_offsets():
    ring = Ring(4)
    assert ring.read(0, 10) == (0, b"")
    ring.write(b"ab")
    ring.write(b"cdef")
    assert ring.read(0, 10) == (2, b"cdef")
    assert ring.read(4, 1) == (4, b"e")
    assert ring.read(99, 10) == (6, b"")
    assert (ring.first, ring.next) == (2, 6)


def test_a_ring_never_holds_much_more_than_it_may():
    ring = Ring(1000)
    for _ in range(100):
        ring.write(b"x" * 700)
    assert len(ring._held) <= 2700
    assert len(ring.read(0, 10_000)[1]) == 1000


@pytest.mark.parametrize(
    ("text", "lines", "tail"),
    [
        (b"a\nb\nc\n", 1, b"c\n"),
        (b"a\nb\nc", 1, b"c"),
        (b"a\nb\nc\n", 2, b"b\nc\n"),
        (b"a\nb\n", 9, b"a\nb\n"),
        (b"\n\n\n", 2, b"\n\n"),
        (b"", 3, b""),
    ],
)
def test_the_tail_of_a_ring_is_so_many_lines(text, lines, tail):
    ring = Ring()
    ring.write(text)
    assert ring.read(ring.tail(lines), 1000)[1] == tail


@pytest.mark.parametrize(
    ("wanted", "answer", "said"),
    [
        (0, b"HTTP/1.1 200 OK\r\n", ""),
        (0, b"HTTP/1.0 302 Found\r\n", ""),
        (0, b"HTTP/1.1 200\r\n", ""),
        (404, b"HTTP/1.1 404 Not Found\r\n", ""),
        (0, b"HTTP/1.1 404 Not Found\r\n", "with 404, not with 200 to 399"),
        (200, b"HTTP/1.1 204 No\r\n", "with 204, not with 200"),
        (0, b"HTTP/1.1 2000 OK\r\n", "no HTTP"),
        (0, b"HTTP/2 200\r\n", "no HTTP"),
        (0, b"\xff" * 5000, "no HTTP"),
        (0, b"", "without an answer"),
    ],
)
def test_only_a_status_line_that_counts_is_ready(wanted, answer, said):
    trouble = http.trouble(Http(80, "/", wanted), answer)
    assert (said in trouble) if said else trouble == ""


def test_an_answer_is_read_no_further_than_it_says_something():
    assert http.is_whole(b"HTTP/1.1 200 OK\r\n")
    assert not http.is_whole(b"HTTP/1.1 20")
    assert http.is_whole(b"x" * http.MAX_LINE)


@pytest.mark.parametrize(
    ("facts", "reason", "said"),
    [
        (Facts(0), "Completed", "exit code 0"),
        (Facts(3), "ExitCode", "exit code 3"),
        (Facts(137, "SIGKILL"), "Signal", "SIGKILL"),
        (Facts(137, "SIGKILL", memory=True), "MemoryLimit", "256 MiB"),
        (Facts(137, "SIGKILL", session_ended=True), "SessionKilled", "all processes"),
        (Facts(127, failure="No such file: x"), "NotFound", "No such file"),
        (Facts(126, failure="Permission denied"), "NotExecutable", "Permission"),
        (Facts(127), "NotFound", "127"),
        (Facts(0, leftover=2), "Completed", "left 2 processes running"),
    ],
)
def test_what_is_said_of_an_end(facts, reason, said):
    how = judge(facts, 256 << 20, 1.0)
    assert (how.reason, said in how.message, how.at) == (reason, True, 1.0)

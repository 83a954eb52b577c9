"""The command line in a real terminal, on a real sandbox of this machine."""

import contextlib
import fcntl
import json
import os
import pty
import re
import select
import signal
import socket
import struct
import subprocess
import sys
import termios
import time

import pytest
from sandfleet import Fleet, Sandbox
from sandfleet._fleets.embedded import Options, Process

PATIENCE = 60


@pytest.fixture(scope="module")
def fleet():
    # Of its own process: one that this process had would stay for other tests.
    process = Process(Options(pool_size=1))
    with Fleet.connect(process.address) as connected:
        yield connected
    process.stop()


@pytest.fixture(scope="module")
def sandbox(fleet):
    with Sandbox.create(fleet=fleet) as made:
        yield made


class Person:
    """Before a terminal in which a command runs."""

    def __init__(self, *words, rows=24, cols=80):
        self.master, self.slave = pty.openpty()
        self.resize(rows, cols)
        self.modes = termios.tcgetattr(self.slave)
        command = [sys.executable, "-m", "sandfleet", *words]
        self.process = subprocess.Popen(
            command, stdin=self.slave, stdout=self.slave, stderr=self.slave, start_new_session=True,
            env={**os.environ, "TERM": "xterm", "COLUMNS": "", "LINES": ""},
        )  # fmt: skip
        self.seen = b""

    def resize(self, rows, cols):
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))

    def sees(self, pattern):
        until = time.monotonic() + PATIENCE
        while not (found := re.search(pattern, self.seen, re.DOTALL)):
            assert time.monotonic() < until, self.seen
            if select.select([self.master], [], [], 1)[0]:
                self.seen += os.read(self.master, 65536)
        self.seen = self.seen[found.end() :]
        return found

    def types(self, text):
        os.write(self.master, text.encode())

    def ends(self):
        """The exit code. The terminal is as it was."""
        until = time.monotonic() + PATIENCE
        while self.process.poll() is None:
            assert time.monotonic() < until, self.seen
            # The process does not end while its terminal takes no output.
            if select.select([self.master], [], [], 0.05)[0]:
                self.seen += os.read(self.master, 65536)
        assert termios.tcgetattr(self.slave) == self.modes
        return self.process.returncode

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self.master)
        os.close(self.slave)


@contextlib.contextmanager
def person(*words, **options):
    made = Person(*words, **options)
    try:
        yield made
    finally:
        made.close()


def test_a_shell_without_an_id_is_in_a_fresh_sandbox_that_ends_with_it(fleet):
    with person("shell") as one:
        one.sees(rb"\$ ")
        one.types("echo $((6*7))\r")
        one.sees(rb"\r42\r\n")
        one.types("exit 3\r")
        assert one.ends() == 3


def test_a_shell_is_a_terminal_of_the_sandbox_and_ends_with_its_code(sandbox):
    with person("shell", sandbox.sandbox_id, rows=31, cols=101) as one:
        one.sees(rb"\$ ")
        assert termios.tcgetattr(one.slave) != one.modes  # raw, while it runs
        one.types("stty size; echo $TERM; pwd; exit 9\r")
        one.sees(rb"31 101\r\nxterm\r\n/workspace\r\n")
        assert one.ends() == 9


def test_keys_go_to_the_program_and_not_to_the_client(sandbox):
    with person("shell", sandbox.sandbox_id) as one:
        one.sees(rb"\$ ")
        one.types("trap 'echo interrupted' INT; echo re''ady\r")
        one.sees(rb"ready")
        one.types("\x03")
        one.sees(rb"interrupted")
        one.types("\x04")
        assert one.ends() == 130


def test_a_window_that_changes_changes_there(sandbox):
    code = "import os, signal; signal.signal(28, lambda *_: print(*os.get_terminal_size())); print('ready'); input()"
    with person("shell", sandbox.sandbox_id, "--", "python3", "-u", "-c", code) as one:
        one.sees(rb"ready")
        one.resize(40, 120)
        # A terminal's kernel signals its foreground group; this one has none.
        one.process.send_signal(signal.SIGWINCH)
        one.sees(rb"120 40")
        one.types("\r")
        assert one.ends() == 0


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_however_it_is_ended_the_terminal_is_given_back_and_nothing_runs_on(sandbox, number, code):
    with person("shell", sandbox.sandbox_id) as one:
        one.sees(rb"\$ ")
        one.types("trap '' HUP; echo re''ady; sleep 1000\r")
        one.sees(rb"ready")
        one.process.send_signal(number)
        assert one.ends() == code
    assert sandbox.commands.list() == ()


def test_tilde_and_dot_leave(sandbox):
    with person("shell", sandbox.sandbox_id) as one:
        one.sees(rb"\$ ")
        one.types("\r~.")
        assert one.ends() == 1
    assert sandbox.commands.list() == ()


def test_escapes_reach_a_terminal_and_nothing_else(sandbox):
    command = ["shell", sandbox.sandbox_id, "--", "printf", r"\033[31mred\033[0m \033]0;title\007end\n"]
    with person(*command) as one:
        one.sees(rb"\x1b\[31mred\x1b\[0m \x1b\]0;title\x07end")
        assert one.ends() == 0
    done = subprocess.run(
        [sys.executable, "-m", "sandfleet", *command], check=False, capture_output=True, stdin=subprocess.DEVNULL
    )
    assert (done.stdout, done.stderr, done.returncode) == (b"red end\n", b"", 0)


# A title, the clipboard (OSC 52), a cleared screen (with both introducers), a question that the terminal answers.
HOSTILE = "\x1b]0;owned\x07\x1b]52;c;ZWNobw==\x07\x1b[2J\x9b2J\x1b[c\x08"
PAINTED = f"{HOSTILE}\x1b[31mred\x1b[0m"
IN_BASH = "".join(f"\\x{byte:02x}" for byte in PAINTED.encode())
WAYS = {
    "output": ["run", "--sandbox", "{id}", "-c", f"print({PAINTED!r})"],
    "a result": ["run", "--sandbox", "{id}", "-c", f"type('A', (), {{'__repr__': lambda self: {PAINTED!r}}})()"],
    "a traceback": ["run", "--sandbox", "{id}", "-c", f"raise ValueError({PAINTED!r})"],
    "a message of the end": ["run", "--sandbox", "{id}", "-c", f"import sys; sys.exit({PAINTED!r})"],
    "a script in bash": ["run", "--sandbox", "{id}", "--language", "bash", "-c", f"printf '{IN_BASH}'"],
    "a command": ["exec", "{id}", "--", "python3", "-c", f"print({PAINTED!r})"],
    "a log": ["logs", "{id}", "painter"],
}


def shown_to_a_person(sandbox, way, *options):
    """All that the terminal gets."""
    words = [each.replace("{id}", sandbox.sandbox_id) for each in WAYS[way]]
    if way == "a log" and not any(one.name == "painter" for one in sandbox.services.list()):
        sandbox.services.start("painter", ["python3", "-c", f"print({PAINTED!r}, flush=True); input()"])
    with person(words[0], *options, *words[1:]) as one:
        one.ends()
        while select.select([one.master], [], [], 0.2)[0]:
            one.seen += os.read(one.master, 65536)
        return one.seen.decode()


@pytest.mark.attack("writes escape sequences to a person's terminal", "text and colours alone")
@pytest.mark.parametrize("way", WAYS)
def test_a_sandbox_shows_a_person_text_and_colours_alone(sandbox, way):
    seen = shown_to_a_person(sandbox, way)
    assert "\x1b[31mred\x1b[0m" in seen
    rest = re.sub(r"\x1b\[[0-9;]*m", "", seen)
    assert not set(rest) & set("\x1b\x07\x08\x9b"), rest


@pytest.mark.control("writes escape sequences to a person's terminal")
@pytest.mark.parametrize("way", WAYS)
def test_raw_output_is_as_it_was_written(sandbox, way):
    assert HOSTILE in shown_to_a_person(sandbox, way, "--raw")


def test_a_script_can_be_piped_in(sandbox):
    done = subprocess.run(
        [sys.executable, "-m", "sandfleet", "shell", sandbox.sandbox_id],
        input=b"echo $((6 * 7)); [ -t 0 ] && echo terminal\nexit 3\n",
        check=False,
        capture_output=True,
        timeout=PATIENCE,
    )
    assert b"\n42\nterminal\n" in done.stdout
    assert done.returncode == 3


def test_the_end_of_piped_input_is_ctrl_d(sandbox):
    command = [sys.executable, "-m", "sandfleet", "shell", sandbox.sandbox_id, "--", "sh", "-c", "cat; echo over"]
    done = subprocess.run(command, check=False, input=b"line\n", capture_output=True, timeout=PATIENCE)
    assert done.stdout.endswith(b"line\nover\n")
    assert done.returncode == 0


def test_exec_in_a_missing_sandbox_ends_with_255(sandbox):
    command = [sys.executable, "-m", "sandfleet", "shell", "nowhere"]
    done = subprocess.run(command, check=False, capture_output=True, stdin=subprocess.DEVNULL, text=True)
    assert done.returncode == 255
    assert done.stderr.startswith("sandfleet: cannot ")


SERVER = "import socket; s = socket.create_server(('127.0.0.1', {port}))\nwhile True: c, _ = s.accept(); c.sendall(b'{port}'); c.close()"


def forward(sandbox, *words):
    command = [sys.executable, "-m", "sandfleet", "forward", *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def fetch(address):
    host, port = address.split(":")
    with socket.create_connection((host, int(port)), PATIENCE) as one:
        return one.recv(100)


def test_ports_are_forwarded_until_ctrl_c(sandbox):
    handles = [
        sandbox.commands.run(["python3", "-c", SERVER.format(port=port)], background=True) for port in (8100, 8101)
    ]
    process = forward(sandbox, sandbox.sandbox_id, "8100", "8101:0", "8999")
    lines = [re.fullmatch(r"(127\.0\.0\.1:\d+) -> (\d+)\n", process.stdout.readline()).groups() for _ in range(3)]
    for address, port in lines[:2]:
        for _ in range(2):
            until = time.monotonic() + PATIENCE
            while True:
                # The program may not listen yet.
                with contextlib.suppress(ConnectionResetError):
                    assert fetch(address) == port.encode()
                    break
                assert time.monotonic() < until
    with pytest.raises(ConnectionResetError):
        fetch(lines[2][0])
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert out == ""
    assert "sandfleet: cannot go on with port 8999: no process listens on that port" in err
    with pytest.raises(ConnectionRefusedError):
        fetch(lines[0][0])
    for handle in handles:
        handle.kill()


def test_a_local_port_can_be_chosen_and_has_to_be_free(sandbox):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        process = forward(sandbox, "--json", sandbox.sandbox_id, f"8100:{port}")
        out, err = process.communicate(timeout=PATIENCE)
        assert (process.returncode, err) == (2, "")
        said = json.loads(out)["error"]
        assert said["reason"] == "EADDRINUSE"
        assert said["message"] == f"cannot listen on port {port}: Address already in use"
    process = forward(sandbox, "--json", sandbox.sandbox_id, f"8100:{port}")
    assert json.loads(process.stdout.readline()) == {"port": 8100, "address": f"127.0.0.1:{port}"}
    process.terminate()
    process.communicate(timeout=PATIENCE)
    assert process.returncode == 130


@pytest.mark.parametrize("word", ["x", "0", "65536", "80:x", "80:65536", ":80", "80:-1"])
def test_an_invalid_port_is_wrong_usage(sandbox, word):
    process = forward(sandbox, sandbox.sandbox_id, "--", word)
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 2
    assert "cannot forward" in err


def test_the_end_of_the_sandbox_is_the_end_of_its_forwards(fleet):
    with Sandbox.create(fleet=fleet) as mine:
        process = forward(mine, mine.sandbox_id, "8100")
        process.stdout.readline()
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 3
    assert "sandfleet: cannot " in err


def running(sandbox):
    return [one.execution_id for one in next(iter(sandbox.watch_usage(0.1))).running]


def until_nothing_runs(sandbox):
    until = time.monotonic() + PATIENCE
    while left := running(sandbox):
        assert time.monotonic() < until, left


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("way", ["exec", "run"])
def test_ending_the_local_shell_ends_the_remote_one(sandbox, way, number):
    code = "print('it runs', flush=True)\nwhile True: pass"
    words = {
        "exec": ["sandboxes", "exec", sandbox.sandbox_id, "--", "python3", "-c", code],
        "run": ["run", "--sandbox", sandbox.sandbox_id, "-"],
    }[way]
    process = subprocess.Popen(
        [sys.executable, "-m", "sandfleet", *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    process.stdin.write(code)
    process.stdin.close()
    assert process.stdout.readline() == "it runs\n"
    assert running(sandbox)
    process.send_signal(number)
    assert process.wait(PATIENCE) == 130
    process.stdout.close()
    until_nothing_runs(sandbox)


def test_a_shell_without_a_reader_of_its_output_leaves_nothing_running(sandbox):
    words = [sys.executable, "-m", "sandfleet", "shell", sandbox.sandbox_id, "--", "yes"]
    process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout.readline().strip() == b"y"
    assert running(sandbox)
    process.stdout.close()
    assert process.wait(PATIENCE) == 1
    assert process.stderr.read() == b""
    process.stderr.close()
    until_nothing_runs(sandbox)


def test_top_shows_usage_as_it_changes_until_ctrl_c(sandbox):
    with person("sandboxes", "top", "--interval", "0.2", sandbox.sandbox_id, cols=140) as one:
        one.sees(rb"nothing runs")
        handle = sandbox.commands.run("head -c 60M /dev/zero | tail -c 60M | (sleep 1000; cat)", background=True)
        # Its line, with the first letters of its id, tens of megabytes and its words.
        one.sees(handle.execution_id[:12].encode() + rb"\s+\S+s\s+\d+\.\d\d\s+[5-9]\d\.\dM[^\n]*sh -c head -c 60M")
        handle.kill()
        one.sees(rb"nothing runs")
        one.process.send_signal(signal.SIGINT)
        assert one.ends() == 0


def test_top_as_json_prints_an_object_a_line_until_the_sandbox_ends(fleet):
    with Sandbox.create(fleet=fleet) as short:
        words = [sys.executable, "-m", "sandfleet", "sandboxes", "top", "--json", "--interval", "0.2", short.sandbox_id]
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as shown:
            assert json.loads(shown.stdout.readline())["executions"] == 0
            short.run_code("1")
            while json.loads(shown.stdout.readline())["executions"] == 0:
                pass
            short.kill()
            shown.stdout.read()
        assert shown.returncode == 0

"""Completion in real shells: keys are typed into a terminal, and the command shows the words that it was given."""

import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sandfleet import Fleet, Sandbox
from sandfleet._fleets import embedded
from support.tools import tool

PATIENCE = 60.0
# What a user has in the file that the shell reads first.
SHELLS = {
    "bash": (["bash", "--norc", "--noprofile", "-i"], 'eval "$(sandfleet completion bash)"'),
    "zsh": (["zsh", "-f", "-i"], 'autoload -Uz compinit && compinit -u -D && eval "$(sandfleet completion zsh)"'),
    "fish": (["fish", "--no-config", "-i"], "sandfleet completion fish | source"),
}
PROGRAM = """\
#!/bin/sh
[ "$1" = completion ] && exec {python} -P -m sandfleet "$@"
printf ran; printf ' <%s>' "$@"; echo .
"""


class Typist:
    """A shell in a terminal, and the keys that are typed into it."""

    def __init__(self, terminal: int) -> None:
        self._terminal = terminal
        self._shown = b""

    def enter(self, line: str, until: str) -> str:
        """Types a line with its Return; what is shown up to the text `until`."""
        os.write(self._terminal, f"{line}\r".encode())
        end, deadline = until.encode(), time.monotonic() + PATIENCE
        while end not in self._shown:
            left = deadline - time.monotonic()
            assert left > 0 and select.select([self._terminal], [], [], left)[0], self._shown.decode(errors="replace")
            self._shown += os.read(self._terminal, 65536)
        said, _, self._shown = self._shown.partition(end)
        return (said + end).decode(errors="replace")

    def words(self, keys: str) -> list[str]:
        """The words that the command gets of these keys."""
        said = self.enter(keys, ">.\r\n").rpartition("ran <")[2]
        return said.removesuffix(">.\r\n").split("> <")


@contextmanager
def typing_into(command: list[str], environment: dict[str, str], folder: Path) -> Iterator[Typist]:
    terminal, theirs = pty.openpty()
    command = ["setsid", "--ctty", *command]
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment, cwd=folder)
    os.close(theirs)
    try:
        yield Typist(terminal)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
        os.close(terminal)


@pytest.fixture(scope="module")
def fleet() -> Iterator[Fleet]:
    # Tests of other files may have begun a fleet of this process, with other options.
    embedded.stop()
    with Fleet.connect(pool_size=1) as made:
        yield made


@pytest.fixture(params=SHELLS)
def shell(request: pytest.FixtureRequest, fleet: Fleet, tmp_path: Path) -> Iterator[Typist]:
    command, start = SHELLS[request.param]
    tool(command[0])
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin/sandfleet"
    program.write_text(PROGRAM.format(python=sys.executable))
    program.chmod(0o755)
    environment = {
        "PATH": f"{program.parent}:{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "TERM": "xterm",
        "LANG": "C.UTF-8",
        "SANDFLEET_ADDRESS": fleet.address,
    }
    with typing_into(command, environment, tmp_path) as typist:
        typist.enter(start, "\n")
        # What is shown while the shell starts is not a word of the command.
        assert typist.words("sandfleet said ready") == ["said", "ready"]
        yield typist


def test_tab_completes_commands_options_values_files_and_ids(shell: Typist, fleet: Fleet, tmp_path: Path) -> None:
    (tmp_path / "script.py").touch()
    (tmp_path / "with space.py").touch()
    with Sandbox.create(fleet=fleet) as sandbox:
        made = sandbox.sandbox_id
        for keys, words in (
            ("sandb\tki\t" + made[:8] + "\t", ["sandboxes", "kill", made]),
            ("kil\t" + made[:8] + "\t", ["kill", made]),
            ("ru\t--lang\tba\tscr\t", ["run", "--language", "bash", "script.py"]),
            ("run with\t--ke\t", ["run", "with space.py", "--keep"]),
            ("pool l\t--js\t", ["pool", "ls", "--json"]),
            ("create --isolation gv\t--mou\t/app", ["create", "--isolation", "gvisor", "--mount", "/app"]),
        ):
            assert shell.words(f"sandfleet {keys}") == words


def test_control_without_the_script_tab_completes_no_command(fleet: Fleet, tmp_path: Path) -> None:
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "TERM": "xterm"}
    with typing_into(SHELLS["bash"][0], environment, tmp_path) as typist:
        said = typist.enter("sandfleet() { printf ran; printf ' <%s>' \"$@\"; echo .; }", "\n")
        assert "sandfleet" in said
        assert typist.words("sandfleet sandb\tkill") == ["sandbkill"]

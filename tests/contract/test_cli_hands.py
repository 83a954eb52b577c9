"""The command line as people use it, on real sandboxes of this machine."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from sandfleet._fleets.embedded import Options, Process

COMMAND = [sys.executable, "-m", "sandfleet_command"]
PATIENCE = 60


# A job that a script starts in the background ignores Ctrl-C otherwise.
CTRL_C_WORKS = ["env", "--default-signal=INT"]


@pytest.fixture(scope="module")
def environment() -> Iterator[dict[str, str]]:
    fleet = Process(Options(pool_size=1))
    yield {**os.environ, "SANDFLEET_ADDRESS": fleet.address}
    fleet.stop()


def said(environment: dict[str, str], *words: str, given: str = "") -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [*COMMAND, *words], env=environment, input=given, capture_output=True, text=True, timeout=100, check=False
    )


def test_a_script_gets_arguments_and_variables_and_gives_its_exit_code(
    environment: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "a.sh").write_text('echo "$1 $2 $A"\nexit 7\n')
    ended = said(environment, "run", "-e", "A=1=2", str(tmp_path / "a.sh"), "--", "--x", "y z")
    assert (ended.stdout, ended.stderr, ended.returncode) == ("--x y z 1=2\n", "", 7)
    (tmp_path / "b").write_text("#!/usr/bin/env bash\nexit 8\n")
    assert said(environment, "run", str(tmp_path / "b")).returncode == 8
    code = "import os, sys; print(sys.argv, os.environ['A']); sys.exit(5)"
    ended = said(environment, "run", "-c", code, "-e", "A=1", "--", "x", "--help")
    assert (ended.stdout, ended.stderr, ended.returncode) == ("['-c', 'x', '--help'] 1\n", "", 5)
    ended = said(environment, "run", "-", given="import sys; sys.exit('why')")
    assert (ended.stderr, ended.returncode) == ("why\n", 1)


def test_a_script_is_read_as_python_reads_it_and_has_its_file_and_its_input(
    environment: dict[str, str], tmp_path: Path
) -> None:
    code = "import sys; print(sys.argv[1:], open(__file__).read() == open('here/a.py').read(), input('? '), sys.stdin.read())"
    folder = tmp_path / "here"
    folder.mkdir()
    (folder / "a.py").write_text(code)
    with contextlib.chdir(tmp_path):
        ended = said(environment, "run", "here/a.py", given="one\ntwo\nthree")
    assert (ended.stdout, ended.stderr) == ("? [] True one two\nthree\n\n", "")
    (folder / "bom.py").write_bytes(b"\xef\xbb\xbfprint('caf\xc3\xa9')")
    (folder / "latin.py").write_bytes(b"# -*- coding: latin-1 -*-\nprint('caf\xe9')")
    for name in ("bom.py", "latin.py"):
        assert said(environment, "run", str(folder / name)).stdout == "caf\xe9\n"
    (folder / "no.py").write_bytes(b"# coding: klingon\n")
    ended = said(environment, "run", str(folder / "no.py"))
    assert (ended.returncode, "klingon" in ended.stderr) == (2, True)


def test_a_notebook_is_run_and_has_its_outputs_afterwards(environment: dict[str, str], tmp_path: Path) -> None:
    path = tmp_path / "a.ipynb"
    sources = ["import sys\nprint('out'); print('err', file=sys.stderr); 6 * 7", "", "1 / 0", "never"]
    made = [{"cell_type": "code", "source": each, "outputs": [], "metadata": {}} for each in sources]
    made.insert(1, {"cell_type": "markdown", "source": ["Words"], "metadata": {}})
    path.write_text(json.dumps({"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": made}))
    ended = said(environment, "run", str(path))
    assert (ended.stdout, ended.returncode) == ("out\n42\n", 1)
    first, words, _, failed, last = json.loads(path.read_text())["cells"]
    assert [each.get("text") or each["data"]["text/plain"] for each in first["outputs"]] == ["out\n", "err\n", "42"]
    assert (first["execution_count"], first["outputs"][2]["output_type"]) == (1, "execute_result")
    assert (failed["outputs"][0]["ename"], last["outputs"], words["source"]) == ("ZeroDivisionError", [], ["Words"])
    assert list(tmp_path.iterdir()) == [path]
    path.write_text('{"nbformat": 3}')
    ended = said(environment, "run", str(path))
    assert ("it is no notebook of nbformat 4" in ended.stderr, ended.returncode) == (True, 2)


def test_folders_of_the_workspace_are_found_at_other_paths(environment: dict[str, str]) -> None:
    code = "open('/app/x', 'w').write('1'); open('/logs/y', 'w').write('2'); print(open('app/x').read(), open('out/y').read())"
    ended = said(environment, "run", "--mount", "/app", "--mount", "/logs=out", "-c", code)
    assert (ended.stdout.splitlines()[0], ended.stderr, ended.returncode) == ("1 2", "", 0)
    for mount, why, returncode in (
        ("app", "cannot mount 'app': write it like /app or /app=FOLDER", 2),
        ("/app=", "cannot mount '/app=': write it like", 2),
        ("/etc", "cannot mount /etc: /etc belongs to the system", 2),
    ):
        ended = said(environment, "run", "--mount", mount, "-c", "1")
        assert (why in ended.stderr, ended.returncode) == (True, returncode), ended.stderr
    ended = said(environment, "run", "--sandbox", "any", "--mount", "/app", "-c", "1")
    assert ("cannot mount folders in a sandbox that exists" in ended.stderr, ended.returncode) == (True, 2)
    made = said(environment, "create", "--keep", "1m", "--mount", "/app").stdout.strip()
    assert said(environment, "exec", made, "--", "sh", "-c", "cd /app && pwd").stdout == "/app\n"
    said(environment, "kill", made)


PICTURES = """
from IPython.display import Image, SVG, display
display(Image(data=b"\\x89PNG\\r\\n\\x1a\\n", format="png"), SVG("<svg xmlns='http://www.w3.org/2000/svg'/>"))
import os
os.makedirs("made", exist_ok=True)
open("made/new.txt", "w").write(open("given.txt").read().upper())
"""


def test_a_directory_goes_in_and_plots_and_new_files_come_out(environment: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "given.txt").write_text("hello")
    out = tmp_path / "out"
    ended = said(environment, "run", "-c", PICTURES, "--upload", str(tmp_path / "in"), "--output", str(out))
    assert ended.returncode == 0, ended.stderr
    assert sorted(str(path.relative_to(out)) for path in out.rglob("*") if path.is_file()) == [
        "made/new.txt",
        "plot-1.png",
        "plot-2.svg",
    ]
    assert (out / "made/new.txt").read_text() == "HELLO"
    assert (out / "plot-1.png").read_bytes() == b"\x89PNG\r\n\x1a\n"
    assert (
        "2 plots shown; --output DIR saves them"
        in said(environment, "run", "-c", PICTURES, "--upload", str(tmp_path / "in")).stderr
    )


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["run", "-c", "import time\ntry:\n    print('on', flush=True)\n    time.sleep(60)\nfinally:\n    print('bye')"], 130),
        (["run", "--language", "bash", "-c", "trap 'echo bye; exit 4' INT\necho on\nsleep 60 & wait"], 4),
    ],
)  # fmt: skip
def test_the_last_output_after_an_interrupt_is_shown(environment: dict[str, str], words: list[str], code: int) -> None:
    process = subprocess.Popen(
        [*CTRL_C_WORKS, *COMMAND, *words],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "on\n"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=PATIENCE)
    assert (out, process.returncode) == ("bye\n", code)
    assert "Traceback" not in err


# Ctrl-C at the import of a module, as the program's own signal handling sees it.
DURING_IMPORT = """
import signal, sys
wanted = sys.argv.pop()
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == wanted:
            signal.raise_signal(signal.SIGINT)
sys.meta_path.insert(0, Finder())
import sandfleet_command
sys.argv[1:] = ["run", "-c", "1"]
sys.exit(sandfleet_command.main())
"""


@pytest.mark.parametrize(
    "module",
    ["sandfleet", "argparse", "sandfleet.errors", "sandfleet.cli.run", "asyncio", "grpc", "sandfleet._fleets.fleet"],
)
def test_ctrl_c_during_an_import_is_no_traceback(environment: dict[str, str], module: str) -> None:
    ended = subprocess.run(
        [*CTRL_C_WORKS, sys.executable, "-c", DURING_IMPORT, module],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.stdout, ended.stderr) == ("", "")
    # It ends at once, or, if another thread imports, by KeyboardInterrupt.
    assert ended.returncode in (-signal.SIGINT, 130)


def test_a_sandbox_that_is_created_stays_until_it_is_killed(tmp_path: Path) -> None:
    # Short, since paths of sockets are limited.
    state = Path(f"/tmp/sf-{os.getpid()}")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SANDFLEET_")}
    environment["SANDFLEET_STATE"] = str(state)
    (tmp_path / "given.txt").write_text("hello")
    made = said(environment, "create", "--keep", "1h", "-e", "A=7", "--upload", str(tmp_path))
    assert made.returncode == 0, made.stderr
    sandbox = made.stdout.strip()
    try:
        assert re.search(rf"{sandbox} +claimed +\d+ s +in 60 min .* kept ", said(environment, "ls").stdout)
        assert said(environment, "exec", sandbox, "--", "bash", "-c", "cat given.txt; echo $A").stdout == "hello7\n"
        code = "import subprocess; print(subprocess.run(['cat', 'given.txt'], capture_output=True).stdout)"
        assert said(environment, "run", "--sandbox", sandbox, "-c", code).stdout == "b'hello'\n"
        sleeper = subprocess.Popen([*COMMAND, "exec", sandbox, "--", "sleep", "1000"], env=environment)
        until = time.monotonic() + PATIENCE
        # A command that has not begun yet is listed without a PID.
        while not re.search(r" [1-9]\d* +\d+ s +sleep 1000\n", shown := said(environment, "ps", sandbox).stdout):
            assert time.monotonic() < until, shown
        sleeper.terminate()
        assert sleeper.wait(PATIENCE) == 130
    finally:
        assert said(environment, "kill", sandbox).stdout == f"{sandbox} killed\n"
    # Its fleet ends with it.
    until = time.monotonic() + PATIENCE
    while list(state.iterdir()):
        assert time.monotonic() < until
        time.sleep(0.1)
    state.rmdir()


def test_run_keeps_its_sandbox_on_request(environment: dict[str, str]) -> None:
    ran = said(environment, "run", "--keep", "-c", "x = 41")
    found = re.fullmatch(r"sandfleet: sandbox (\S+) stays for 60 min: .*\n", ran.stderr)
    assert found, ran.stderr
    assert said(environment, "run", "--sandbox", found[1], "-c", "x + 1").stdout == "42\n"
    assert said(environment, "kill", found[1]).returncode == 0

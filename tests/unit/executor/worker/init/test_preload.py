"""What a module may do to the spawner that imports it ahead."""

import json
import os
import subprocess
import sys

import pytest
from sandfleet_executor.worker.init import preload

pytestmark = pytest.mark.process

# The spawner's part in a process of its own, with the modules of a folder.
PROGRAM = """
import json, os, signal, sys
from sandfleet_executor.worker.init import preload
sys.path.append(sys.argv[1])
handler = signal.getsignal(signal.SIGCHLD)
sent = os.dup(1)
said = preload.Preload(sys.argv[2:], 300 << 20, lambda header: os.write(sent, json.dumps(header).encode() + b"\\n"))
said.load()
import gc
print(json.dumps({"cwd": os.getcwd(), "home": os.environ["HOME"], "frozen": gc.get_freeze_count() > 0, "due": said.due,
    "same": signal.getsignal(signal.SIGCHLD) == handler, "loaded": [name in sys.modules for name in sys.argv[2:]]}))
"""
MODULES = {
    "good": "import os; where = (os.getcwd(), os.environ['HOME']); print('unheard'); os.write(2, b'unheard')",
    "missing_inside": "import no_such_module_at_all",
    "exits": "raise SystemExit('done')",
    "interrupts": "raise KeyboardInterrupt",
    "long": "raise ValueError('x' * 10_000)",
    "signals": "import signal; signal.signal(signal.SIGCHLD, signal.SIG_IGN)",
    "wanders": "import os; os.chdir('/usr'); os.environ['HOME'] = '/usr'",
    "threads": "import threading, time; threading.Thread(target=time.sleep, args=(60,), daemon=True, name='own').start()",
    "large": "data = bytearray(400 << 20); data[::4096] = b'x' * (100 << 10)",
    "ends": "import os; os._exit(5)",
}


@pytest.fixture
def load(tmp_path):
    for name, text in MODULES.items():
        (tmp_path / f"{name}.py").write_text(text)

    def run(*names):
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, str(tmp_path), *names],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env={**os.environ, "HOME": str(tmp_path)},
            timeout=60,
            check=False,
        )
        assert done.stderr == ""
        return done.returncode, [json.loads(line) for line in done.stdout.splitlines()]

    return run


def test_each_module_is_told_before_and_after_and_prints_nothing(load, tmp_path):
    code, (before, after, *_, left) = load("good", "json")
    assert (code, before) == (0, {"event": "preloading", "module": "good"})
    assert after == {"event": "preloaded", "module": "good", "problem": ""}
    assert left == {
        "cwd": str(tmp_path),
        "home": str(tmp_path),
        "frozen": True,
        "due": False,
        "same": True,
        "loaded": [True, True],
    }


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("not_there", "ModuleNotFoundError: No module named 'not_there'"),
        ("missing_inside", "ModuleNotFoundError: No module named 'no_such_module_at_all'"),
        ("exits", "SystemExit: done"),
        ("interrupts", "KeyboardInterrupt: "),
        ("long", "ValueError: " + "x" * (preload.MAX_PROBLEM - len("ValueError: "))),
        ("signals", ""),
        ("wanders", ""),
    ],
)
def test_what_a_module_raises_or_changes_stops_nothing(load, tmp_path, name, problem):
    code, (_, told, *_, left) = load(name, "good")
    assert (code, told["problem"]) == (0, problem)
    assert (left["cwd"], left["home"], left["same"], left["loaded"][1]) == (str(tmp_path), str(tmp_path), True, True)


@pytest.mark.parametrize(
    ("name", "problem"),
    [("threads", "it starts the thread 'own', and threads cannot be shared"), ("large", "take more than 300 MiB")],
)
def test_a_module_with_which_contexts_cannot_be_forked_ends_the_spawner_and_is_named(load, name, problem):
    code, (*_, told) = load("good", name, "json")
    assert code == preload.EXIT_HARMED
    assert told["module"] == name
    assert problem in told["problem"]


def test_a_module_that_ends_the_spawner_is_known_from_the_word_before(load):
    code, (*_, told) = load("good", "ends")
    assert (code, told) == (5, {"event": "preloading", "module": "ends"})

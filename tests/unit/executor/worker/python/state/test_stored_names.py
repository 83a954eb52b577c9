"""A saved state that an earlier version wrote is restored by the worker of today.

golden/saved.state: the file of an executor before the worker's modules moved into rooms. Its cells: see CELLS.
"""

import json
import os
import pickle
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import sandfleet_executor.worker
from sandfleet_executor.core.session.bwrap import WORKER_PACKAGE
from sandfleet_executor.effects.contexts.state_store import NAMED, StateStore
from sandfleet_executor.worker.base import packets
from sandfleet_executor.worker.python import streams
from sandfleet_executor.worker.python.state import pickles

pytestmark = pytest.mark.process

GOLDEN = Path(__file__).parent / "golden/saved.state"
CELLS = """
import collections.abc, json as j, os, random
import numpy as np

number, text, nested, numbers = 1, "text", [1, {"x": (2.5, None)}], {1, 2}
alias = nested
array = np.arange(10_000)

def even(n): return n == 0 or odd(n - 1)
def odd(n): return n != 0 and even(n - 1)

def counter():
    count = 0
    def up():
        nonlocal count
        count += number
        return count
    return up

up = counter()
up()

class Point:
    def __init__(self, x, y=2): self.x, self.y = x, y
    def doubled(self): return Point(2 * self.x, 2 * self.y)
    def __repr__(self): return f"Point({self.x}, {self.y})"

point = Point(1)
ask = input
unsaved = open("/dev/null")
os.environ["GOLDEN"] = "set"
os.chdir("/tmp")
random.seed(7)
"""
NAMES = ["collections", "j", "os", "random", "np", "number", "text", "nested", "numbers", "alias", "array"]
# Their byte code is of the Python that wrote the state.
CODE_NAMES = ["even", "odd", "counter", "up", "Point", "point", "ask"]
RESTORE = """
import json, socket, sys
sys.path.append(sys.argv[1])
from _sandfleet_worker.python import streams
from _sandfleet_worker.python.state import restore
namespace = {"__name__": "__main__", "__builtins__": __builtins__}
restore.restore(socket.socket(fileno=int(sys.argv[2])), namespace, int(sys.argv[3]), int(sys.argv[4]))
answers = [repr(eval(line, namespace)) for line in sys.stdin.read().splitlines()]
print(json.dumps(answers))
"""


class Restored:
    """The events of a process of today that restores the state, and its answers to expressions."""

    def __init__(self, folder: Path, questions: list[str]) -> None:
        store = StateStore(folder / "states")
        path = folder / "states/variables" / NAMED / "golden.state"
        path.parent.mkdir(parents=True)
        path.write_bytes(GOLDEN.read_bytes())
        self.manifest, self._file = store.read(NAMED, "golden")
        (folder / WORKER_PACKAGE).symlink_to(Path(sandfleet_executor.worker.__file__).parent)
        self._ours, theirs = packets.pair()
        sending = threading.Thread(target=self._send)
        sending.start()
        arguments = [str(folder), str(theirs.fileno()), str(self.manifest.records), str(self.manifest.memo)]
        ended = subprocess.run(
            [sys.executable, "-s", "-P", "-c", RESTORE, *arguments],
            input="\n".join(questions),
            capture_output=True,
            text=True,
            check=False,
            pass_fds=[theirs.fileno()],
        )
        theirs.close()
        sending.join()
        assert ended.returncode == 0, ended.stderr
        self.answers = json.loads(ended.stdout)
        self.words = list(self._words())
        self._ours.close()

    def _send(self) -> None:
        with os.fdopen(self._file, "rb") as file:
            while data := file.read(packets.MAX_PACKET - packets.PREFIX.size):
                self._ours.sendall(packets.encode(None, data))

    def _words(self):
        while data := self._ours.recv(packets.MAX_PACKET + 1):
            yield packets.decode(data).header

    def named(self, event: str) -> list[str]:
        return [word["name"] for word in self.words if word["event"] == event]


def test_values_of_an_earlier_version_are_restored(tmp_path):
    questions = {
        "(number, text, nested, numbers)": "(1, 'text', [1, {'x': (2.5, None)}], {1, 2})",
        "alias is nested": "True",
        "(int(array.sum()), array.flags.writeable, np.__name__)": "(49995000, True, 'numpy')",
        "(j.dumps([1]), collections.abc.Sized.__name__)": "('[1]', 'Sized')",
        "(os.environ['GOLDEN'], os.getcwd())": "('set', '/tmp')",
        "random.random()": "0.32383276483316237",
    }
    restored = Restored(tmp_path, list(questions))
    assert restored.answers == list(questions.values())
    assert set(NAMES) <= set(restored.named("restored"))
    assert [item.name for item in restored.manifest.unsaved] == ["unsaved"]


@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="the byte code in the state is Python 3.11's")
def test_functions_and_classes_of_an_earlier_version_are_restored(tmp_path):
    questions = {
        "(even(10), odd(10))": "(True, False)",
        # Its variable of the same cell is the one of the namespace.
        "even.__globals__ is globals()": "True",
        "(up(), counter()())": "(2, 1)",
        "(point.doubled(), type(point) is Point)": "(Point(2, 4), True)",
        # Its state has the name `refuse_input`.
        "ask.__name__": "'read_input'",
    }
    restored = Restored(tmp_path, list(questions))
    assert restored.answers == list(questions.values())
    assert set(CODE_NAMES) <= set(restored.named("restored"))
    assert restored.named("unrestored") == []


@pytest.mark.parametrize(("function", "module"), [(pickles.live_namespace, "pickles"), (streams.read_input, "streams")])
def test_states_name_the_workers_functions_as_they_always_did(function, module):
    assert function.__module__ == f"sandfleet_executor.worker.{module}"
    assert pickle.loads(pickle.dumps(function)) is function

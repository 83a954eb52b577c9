"""kubectl's port-forward as a child program: shared by the process, replaced after its end, and never left behind."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sandfleet._fleets import port_forward
from sandfleet.errors import UnavailableError
from support.client.fake_kubectl import Kubectl

pytestmark = pytest.mark.process

ADDRESS = "127.0.0.1:40001"
# A program that forwards, says so, and waits.
PROGRAM = """
import sys, time
from sandfleet._fleets import port_forward
print(port_forward.address(sys.argv[1], "ns", "pod/one", 8443), flush=True)
if sys.argv[2] == "forked":
    import os
    if os.fork():
        os._exit(0)
    sys.stdout.close()
time.sleep(60)
"""


@pytest.fixture
def kubectl(tmp_path: Path) -> Iterator[Kubectl]:
    yield Kubectl(tmp_path)
    port_forward.stop()


def lives(process: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False


def until(check: Callable[[], bool], seconds: float = 10.0) -> None:
    deadline = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def forward(kubectl: Kubectl, port: int = 8443) -> str:
    return port_forward.address(str(kubectl.program), "ns", "pod/one", port)


def test_all_of_a_process_share_one_for_each_port(kubectl: Kubectl) -> None:
    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(lambda _: forward(kubectl), range(8))) == {ADDRESS}
    assert kubectl.asked() == [["port-forward", "--namespace", "ns", "--address", "127.0.0.1", "pod/one", ":8443"]]
    assert port_forward.target_of(ADDRESS) == "pod/one"
    kubectl.say(**{"port-forward": {"address": "127.0.0.1:40002"}})
    assert forward(kubectl, 8444) == "127.0.0.1:40002"
    assert (port_forward.target_of("127.0.0.1:40002"), port_forward.target_of("127.0.0.1:1")) == ("pod/one", "")


def test_one_that_has_ended_is_replaced(kubectl: Kubectl) -> None:
    forward(kubectl)
    first = kubectl.forwarding()
    os.kill(first, signal.SIGKILL)
    kubectl.say(**{"port-forward": {"address": "127.0.0.1:40002"}})
    until(lambda: forward(kubectl) == "127.0.0.1:40002")
    assert kubectl.forwarding() != first
    assert port_forward.target_of(ADDRESS) == ""


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"error": 'error: pods "pod" is forbidden: cannot create resource'}, 'failed: error: pods "pod" is forbidden'),
        ({"seconds": 0}, "failed: error: lost connection to pod"),
    ],
)
def test_a_failure_has_kubectls_words(kubectl: Kubectl, said: dict, why: str) -> None:
    kubectl.say(**{"port-forward": said})
    with pytest.raises(UnavailableError, match="^cannot connect: `.*kubectl port-forward --namespace ns .*` " + why):
        forward(kubectl)


def test_one_that_never_listens_is_ended(kubectl: Kubectl, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(port_forward, "_START_TIMEOUT", 1.0)
    kubectl.say(**{"port-forward": {}})
    with pytest.raises(UnavailableError, match="does not listen after 1 s"):
        forward(kubectl)
    until(lambda: not lives(kubectl.forwarding()))


def test_a_program_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match=r"none: (not found|No such file)"):
        port_forward.address(str(tmp_path / "none"), "ns", "pod/one", 1)


def test_a_line_for_each_connection_does_not_hold_it_up(kubectl: Kubectl) -> None:
    kubectl.say(**{"port-forward": {"address": ADDRESS, "connections": 20_000}})
    forward(kubectl)
    until((kubectl.program.parent / "told").exists)


def test_it_ends_when_it_is_stopped(kubectl: Kubectl) -> None:
    forward(kubectl)
    assert lives(kubectl.forwarding())
    port_forward.stop()
    until(lambda: not lives(kubectl.forwarding()))


@pytest.mark.parametrize(("how", "end"), [("plain", signal.SIGKILL), ("plain", signal.SIGTERM), ("forked", 0)])
def test_it_ends_with_its_process_however_that_ends(kubectl: Kubectl, how: str, end: int) -> None:
    """A fork that outlives the process does not hold it."""
    command = [sys.executable, "-c", PROGRAM, str(kubectl.program), how]
    with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) as process:
        assert process.stdout
        assert process.stdout.readline().decode().strip() == ADDRESS
        child = kubectl.forwarding()
        if end:
            assert lives(child)
            process.send_signal(end)
        process.wait(60)
        until(lambda: not lives(child))
        if how == "forked":
            os.killpg(process.pid, signal.SIGKILL)

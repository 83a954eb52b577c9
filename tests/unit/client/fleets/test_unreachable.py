"""An address that no fleet serves: an error in words, and never an empty fleet."""

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from sandfleet import Fleet, Sandbox
from sandfleet._fleets.connection import FleetConnection
from sandfleet._fleets.fleet import AsyncFleet
from sandfleet.cli import main
from sandfleet.errors import UnavailableError

pytestmark = pytest.mark.process

WHYS = {"missing": "no server is there", "refusing": "no server is there", "silent": "nothing answers there for 0.3 s"}


@pytest.fixture(params=WHYS)
def nowhere(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """An address; `silent` is a server that takes connections and says nothing."""
    monkeypatch.setattr(FleetConnection, "patience", 0.3)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        if request.param == "silent":
            listener.listen()
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        if request.param == "missing":
            address = f"unix:{tmp_path}/none.sock"
        monkeypatch.setenv("SANDFLEET_ADDRESS", address)
        request.node.why = f"cannot reach the fleet at {address}: {WHYS[request.param]}"
        yield address


async def test_a_connection_is_refused_at_once(nowhere: str, request: pytest.FixtureRequest) -> None:
    with pytest.raises(UnavailableError) as refused:
        await AsyncFleet.connect(nowhere)
    assert (refused.value.message, refused.value.reason) == (request.node.why, "FleetUnreachable")


@pytest.mark.parametrize(
    "call",
    [
        Fleet.connect,
        Sandbox.list,
        lambda: Sandbox.connect("s-1"),
        lambda: Sandbox.create(max_wait=5),
    ],
    ids=["Fleet.connect", "list", "connect", "create"],
)
def test_every_call_says_so(nowhere: str, request: pytest.FixtureRequest, call) -> None:
    with pytest.raises(UnavailableError) as refused:
        call()
    assert refused.value.message == request.node.why


def test_the_command_line_ends_with_3(
    nowhere: str, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["sandboxes", "ls"]) == 3
    assert capsys.readouterr() == ("", f"sandfleet: {request.node.why}\n")
    assert main(["sandboxes", "ls", "--json"]) == 3
    assert json.loads(capsys.readouterr().out)["error"]["reason"] == "FleetUnreachable"

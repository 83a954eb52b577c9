"""`sandfleet top` without an id, on the fleets of one machine, which come and go with their programs."""

import json
from collections.abc import Iterator

import pytest
from sandfleet import _portal as portal
from sandfleet._fleets import discovery
from sandfleet.cli import main, sandboxes
from sandfleet.cli.fleets import live
from sandfleet.errors import UnavailableError
from sandfleet.testing import FakeFleet
from sandfleet_api.fleet.v1 import fleet_pb2

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[FakeFleet]]:
    """Fleets of two programs."""
    for name in ("SANDFLEET_ADDRESS", "SANDFLEET_FLEET"):
        monkeypatch.delenv(name, raising=False)
    made = [FakeFleet(sandbox_id="one"), FakeFleet(sandbox_id="two")]
    for fake in made:
        portal.run(fake.__aenter__())
        for _ in range(3):
            pools = [fleet_pb2.Pool(pool_id="python", target_warm=2, warm=1)]
            fake.answer_call("ListPools", fleet_pb2.ListPoolsResponse(pools=pools))
            fake.answer_call("ListQueues", fleet_pb2.ListQueuesResponse())
            listed = [fleet_pb2.Sandbox(sandbox_id=fake.sandbox_id, state=fleet_pb2.SANDBOX_STATE_CLAIMED)]
            fake.answer_call("List", fleet_pb2.ListResponse(sandboxes=listed))
    owners = dict(zip((fake.address for fake in made), ("train.py (7)", "serve.py (8)"), strict=True))
    monkeypatch.setattr(discovery, "addresses", lambda: [*owners])
    monkeypatch.setattr(sandboxes, "client_of", lambda address: owners[address])
    yield made
    for fake in made:
        portal.run(fake.__aexit__(None, None, None))


def test_rows_of_several_fleets_say_whose_they_are(here: list[FakeFleet], capsys: Capture) -> None:
    assert main(["top", "--count", "1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "sessions 2"
    assert [line.split()[0] for line in lines[2:5]] == ["WHOSE", "train.py", "serve.py"]


def test_a_fleet_that_ends_leaves_the_screen_and_the_others_stay(
    here: list[FakeFleet], capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Its socket stays where it was, as after a kill.
    monkeypatch.setattr(live.time, "sleep", lambda _: portal.run(here[0].leave()))
    assert main(["top", "--count", "2", "--json"]) == 0
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert (first["sessions"], first["owners"]) == (2, ["train.py (7)", "serve.py (8)"])
    assert (second["sessions"], second["owners"], len(second["pools"])) == (1, ["serve.py (8)"], 1)


def test_without_any_fleet_it_says_so_and_not_what_kubectl_says(
    here: list[FakeFleet], capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: object) -> None:
        raise UnavailableError("cannot connect: kubectl: The connection to the server localhost:8080 was refused")

    monkeypatch.setattr(discovery, "addresses", list)
    monkeypatch.setattr(live.pool, "connect", refuse)
    assert main(["top", "--count", "1"]) == 3
    told = capsys.readouterr().err
    assert "none runs on this machine" in told
    assert "8080" not in told

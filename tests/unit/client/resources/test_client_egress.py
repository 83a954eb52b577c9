"""What a client knows of a sandbox's way out, and how it waits for it."""

from collections.abc import AsyncIterator

import pytest
from sandfleet import AsyncSandbox
from sandfleet._fleets.fleet import AsyncFleet
from sandfleet.testing import FakeFleet, Hangs
from sandfleet.values.sandbox import EgressState
from sandfleet_api.fleet.v1 import fleet_pb2


@pytest.fixture
async def fake() -> AsyncIterator[FakeFleet]:
    async with FakeFleet() as made:
        yield made


@pytest.fixture
async def sandbox(fake: FakeFleet) -> AsyncIterator[AsyncSandbox]:
    async with await AsyncFleet.connect(fake.address) as fleet, await AsyncSandbox.create(fleet=fleet) as made:
        yield made


def gets(fake: FakeFleet, *known: fleet_pb2.EgressStatus) -> None:
    """Say what the next looks at the sandbox find."""
    for one in known:
        sandbox = fleet_pb2.Sandbox(sandbox_id="team/one", egress=one)
        fake.answer_call("Get", fleet_pb2.GetResponse(sandbox=sandbox))


def known(state: str, reason: str) -> fleet_pb2.EgressStatus:
    return fleet_pb2.EgressStatus(state=fleet_pb2.EgressState.Value(f"EGRESS_STATE_{state}"), reason=reason)


ASKING = known("OPENING", "Asking")


@pytest.mark.parametrize(
    ("found", "is_open"),
    [
        ([known("OPEN", "Answered")], True),
        # A fleet that has just taken over knows nothing yet.
        ([fleet_pb2.EgressStatus(), ASKING, ASKING, known("OPEN", "Answered")], True),
        ([ASKING, known("OPENING", "NoAnswer")], False),
        ([known("OPENING", "NotProbeable")], False),
        ([known("DENIED", "NothingAllowed")], False),
    ],
)
async def test_egress_is_waited_for_until_more_is_not_going_to_be_known(
    fake: FakeFleet, sandbox: AsyncSandbox, found: list[fleet_pb2.EgressStatus], is_open: bool
) -> None:
    gets(fake, *found)
    assert await sandbox.wait_for_egress(30.0) is is_open
    assert len(fake.called("Get")) == len(found)


async def test_a_wait_for_egress_has_an_end(fake: FakeFleet, sandbox: AsyncSandbox) -> None:
    gets(fake, *[ASKING] * 20)
    assert not await sandbox.wait_for_egress(0.2)
    # One whose answer does not come in time, too.
    fake.fail("Get", Hangs())
    assert not await sandbox.wait_for_egress(0.2)


async def test_info_has_the_state_of_the_sandboxs_egress(fake: FakeFleet, sandbox: AsyncSandbox) -> None:
    said = known("OPEN", "Answered")
    said.message = "answered: name resolution"
    said.since.FromSeconds(1_700_000_000)
    gets(fake, said)
    egress = (await sandbox.get_info()).egress
    assert (egress.state, egress.message) == (EgressState.OPEN, "answered: name resolution")
    assert egress.since is not None
    assert egress.since.timestamp() == 1_700_000_000
    assert (await sandbox.get_info()).egress.state is EgressState.UNKNOWN

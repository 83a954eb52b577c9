"""How long reviews of tokens and permissions are remembered."""

import asyncio

import jwt
import pytest
from sandfleet_operator.api.errors import FleetError
from sandfleet_operator.cluster import reviews as module
from sandfleet_operator.cluster.reviews import ALLOWED, MAX_REMEMBERED, REFUSED, REMEMBERED, Caller, Reviews
from sandfleet_operator.plan.lanes import Bounds
from support.fleet.on_kubernetes import Kube


async def test_accepted_tokens_are_remembered_for_a_minute_and_rights_are_not():
    now, kube = [1000.0], Kube()
    reviews = Reviews(kube, lambda: now[0])
    kube.knows("t", "alice")
    for moment, asked in ((1000, 1), (1059, 1), (1061, 2), (900, 3)):
        now[0] = float(moment)
        assert (await reviews.authenticate("t")).username == "alice"
        assert len(kube.reviews) == asked
    kube.tokens.clear()
    now[0] += 61
    with pytest.raises(FleetError, match="invalid bearer token"):
        await reviews.authenticate("t")


async def test_a_token_is_not_remembered_beyond_its_own_end():
    now, kube = [1000.0], Kube()
    reviews = Reviews(kube, lambda: now[0])
    token = jwt.encode({"exp": 1010}, "x" * 32, algorithm="HS256")
    kube.knows(token, "alice")
    await reviews.authenticate(token)
    kube.tokens.clear()
    now[0] = 1009.0
    await reviews.authenticate(token)
    now[0] = 1010.0
    with pytest.raises(FleetError, match="invalid bearer token"):
        await reviews.authenticate(token)


async def test_a_refused_token_is_asked_about_once_in_some_seconds():
    now, kube = [1000.0], Kube()
    reviews = Reviews(kube, lambda: now[0])
    for moment, asked in ((1000.0, 1), (1004.9, 1), (1005.0, 2), (900.0, 3)):
        now[0] = moment
        with pytest.raises(FleetError, match="invalid bearer token"):
            await reviews.authenticate("t0")
        assert len(kube.reviews) == asked
    kube.knows("t0", "alice")
    now[0] += REFUSED
    assert (await reviews.authenticate("t0")).username == "alice"


@pytest.mark.slow
async def test_what_is_remembered_is_bounded():
    kube = Kube()
    reviews = Reviews(kube, lambda: 1000.0)
    for number in range(MAX_REMEMBERED + 5):
        kube.knows(f"t{number}", "alice")
        await reviews.authenticate(f"t{number}")
        with pytest.raises(FleetError, match="invalid bearer token"):
            await reviews.authenticate(f"bad{number}")
    assert len(reviews._known) == len(reviews._bad) == MAX_REMEMBERED


class SlowKube(Kube):
    """An API server that answers when it is told."""

    def __init__(self):
        super().__init__()
        self.gate, self.under_way = asyncio.Event(), []

    async def create(self, obj):
        self.under_way.append(obj["spec"]["token"])
        await self.gate.wait()
        return await super().create(obj)


@pytest.mark.parametrize("is_bounded", [True, False])
async def test_a_flood_of_unknown_tokens_leaves_room_for_those_that_were_accepted(monkeypatch, is_bounded):
    if not is_bounded:
        # The control.
        monkeypatch.setattr(module, "BOUNDS", Bounds(total=64, per_namespace=64, per_node=64))
    now, kube = [1000.0], SlowKube()
    reviews = Reviews(kube, lambda: now[0])
    kube.knows("good", "alice")
    kube.gate.set()
    await reviews.authenticate("good")
    kube.gate.clear()
    kube.under_way.clear()
    now[0] += REMEMBERED + 1
    flood = [asyncio.create_task(reviews.authenticate(f"bad{number}")) for number in range(200)]
    await asyncio.sleep(0.01)
    again = [asyncio.create_task(reviews.authenticate("good")) for _ in range(5)]
    await asyncio.sleep(0.01)
    assert ("good" in kube.under_way, len(kube.under_way) < 64) == (is_bounded, is_bounded)
    kube.gate.set()
    assert {one.username for one in await asyncio.gather(*again)} == {"alice"}
    refused = await asyncio.gather(*flood, return_exceptions=True)
    assert {one.problem.reason for one in refused} == {"TokenInvalid"}


async def test_a_right_to_a_whole_namespace_is_asked_for_once_and_holds_for_every_name_until_it_is_forgotten():
    now, kube = [1000.0], Kube()
    reviews, alice = Reviews(kube, lambda: now[0]), Caller("alice")
    kube.allowed.add(("alice", "delete", "team-a", ""))
    for number in range(100):
        await reviews.authorize(alice, "delete", "team-a", f"s{number}")
    assert len(kube.reviews) == 1
    for other in ({"namespace": "team-b"}, {"verb": "get"}, {"caller": Caller("bob")}, {"subresource": "connect"}):
        asked = {"caller": alice, "verb": "delete", "namespace": "team-a", "name": "s1", **other}
        with pytest.raises(FleetError, match="may not"):
            await reviews.authorize(**asked)
    kube.allowed.clear()
    now[0] += ALLOWED
    with pytest.raises(FleetError, match="may not"):
        await reviews.authorize(alice, "delete", "team-a", "s1")


async def test_a_right_to_one_name_is_a_right_to_that_name_alone():
    now, kube = [1000.0], Kube()
    reviews, alice = Reviews(kube, lambda: now[0]), Caller("alice")
    kube.allowed.add(("alice", "delete", "team-a", "mine"))
    for _ in range(5):
        await reviews.authorize(alice, "delete", "team-a", "mine")
    assert len(kube.reviews) == 2
    for name in ("yours", ""):
        with pytest.raises(FleetError, match="may not"):
            await reviews.authorize(alice, "delete", "team-a", name)
    # What was refused is asked for again, and may be granted at any moment.
    kube.allowed.add(("alice", "delete", "team-a", "yours"))
    await reviews.authorize(alice, "delete", "team-a", "yours")
    kube.allowed.add(("alice", "delete", "team-a", ""))
    await reviews.authorize(alice, "delete", "team-a", "")


async def test_a_right_holds_for_what_the_authenticator_has_said_of_the_caller():
    kube = Kube()
    reviews = Reviews(kube, lambda: 1000.0)
    kube.allowed.add(("alice", "delete", "team-a", ""))
    narrow, wide = (Caller("alice", extra={"scopes": (scope,)}) for scope in ("read", "all"))
    for caller, asked in ((wide, 1), (wide, 1), (narrow, 2), (Caller("alice"), 3)):
        await reviews.authorize(caller, "delete", "team-a", "one")
        assert len(kube.reviews) == asked

"""Who loses the right to connect: how long the tokens live that are out by then."""

import time

import pytest
from contract import test_fleet_kubernetes_claims as claims
from contract.test_fleet_kubernetes_claims import ALICE, allow, claimed, refusal, request
from sandfleet_api.fleet.v1 import fleet_pb2
from sandfleet_executor.core.access.token_claims import TokenError
from sandfleet_executor.effects.access.tokens import TokenVerifier
from sandfleet_operator.cluster import reviews
from sandfleet_operator.executors.contact import Contacts
from sandfleet_operator.executors.pod_client import PodExecutors

world = claims.world


def gives_access(message, seen=()):
    """Whether a message of this kind may have a way to run code in it."""
    inner = [one.message_type for one in message.fields if one.message_type and one.message_type.full_name not in seen]
    return message.name == "Access" or any(gives_access(one, (*seen, message.full_name)) for one in inner)


async def test_who_loses_the_right_to_connect_calls_no_executor_15_minutes_later(world, monkeypatch, tmp_path):
    """However long the lease is: each way to another token asks for the right, and the last one has ended by then."""
    real = PodExecutors(Contacts(world.signing, time.time), world.signing, world.running._store, 50051)
    world.running.pretended.caller_token = real.caller_token
    asked = request()
    asked.lease.FromSeconds(86400)
    bound = await claimed(world, asked)
    name, uid = bound.sandbox.sandbox_id, bound.sandbox.sandbox_uid
    allow(world, name, "get")
    get = fleet_pb2.GetRequest(sandbox_id=name, with_access=True)
    last = (await world.stub.Get(get, metadata=ALICE)).access.token
    remembered = reviews.ALLOWED
    monkeypatch.setattr(reviews, "ALLOWED", 0.0)
    world.kube.allowed -= {one for one in world.kube.allowed if "connect" in one[1]}
    ways = {
        "Claim": world.stub.Claim(asked, metadata=ALICE),
        "Get": world.stub.Get(get, metadata=ALICE),
        "Renew": world.stub.Renew(fleet_pb2.RenewRequest(sandbox_id=name), metadata=ALICE),
        "Resume": world.stub.Resume(fleet_pb2.ResumeRequest(sandbox_id=name), metadata=ALICE),
    }
    methods = fleet_pb2.DESCRIPTOR.services_by_name["FleetService"].methods
    assert ways.keys() == {one.name for one in methods if gives_access(one.output_type)}
    for way in ways.values():
        code, said = await refusal(way)
        assert (code, "codesandboxes/connect" in said) == ("PERMISSION_DENIED", True)
    (tmp_path / "keys.json").write_text(world.signing.material.public_keys(time.time()))
    now = [time.time()]
    verifier = TokenVerifier(tmp_path / "keys.json", uid, lambda: now[0])
    assert verifier.verify(last, "interpreter").holder == "alice"
    now[0] += 15 * 60 - remembered
    with pytest.raises(TokenError, match="expired"):
        verifier.verify(last, "interpreter")

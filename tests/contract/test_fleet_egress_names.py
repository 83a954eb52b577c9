"""Hosts by name over the fleet's port on Kubernetes: what claims may ask for, what pods are told, what is shown."""

from dataclasses import replace

import pytest
from contract.test_fleet_kubernetes_claims import ALICE, RIGHTS, allow, claimed, refusal, request
from sandfleet_api.fleet.v1 import egress_pb2, fleet_pb2
from sandfleet_api.fleet.v1.egress_pb2_grpc import EgressProcessServiceStub, EgressServiceStub
from sandfleet_api.fleet.v1.fleet_pb2_grpc import FleetServiceStub
from sandfleet_api.fleet.v1.gateway_pb2 import SignRequest
from sandfleet_api.fleet.v1.gateway_pb2_grpc import GatewayIdentityServiceStub
from sandfleet_operator.api.kube import CODE_SANDBOX, Ref
from sandfleet_operator.api.settings import EgressByName
from sandfleet_operator.fleet.kubernetes.reviews.desk import ReviewDesk
from sandfleet_operator.fleet.kubernetes.serve import Options, listen
from sandfleet_operator.plan.pods import names
from support.fleet.on_kubernetes import SYSTEM, Kube, World, new_signing
from support.kubernetes import world as kubernetes_world
from support.kubernetes.world import pool_object, template_object

PROCESS = (("authorization", "Bearer egress"),)
BY_NAME = EgressByName(service="egress:3129", address="127.0.0.9:3129", sets={"python": ("packages.example.com",)})
LIST = {"names": [{"host": "*.example.org"}], "sets": ["python"]}


class Cluster(kubernetes_world.World):
    settings = replace(kubernetes_world.SETTINGS, egress=BY_NAME)


@pytest.fixture
async def world():
    kube = Kube()
    async with Cluster(cluster=kube.cluster) as cluster:
        await cluster.add(template_object(egress=LIST), pool_object())
        signing, running = await new_signing(kube), await cluster.fleet()
        options = Options(namespace=SYSTEM, settings=cluster.settings, identity="f", host="127.0.0.1", port=0)
        desk = ReviewDesk(kube, running, signing, lambda: 1)
        server, port = await listen(kube, signing, options, running, board=desk.board)
        made = World(kube, signing, port)
        made.cluster, made.running = cluster, running
        channel = made.channel()
        made.stub, made.egress = FleetServiceStub(channel), EgressServiceStub(channel)
        made.process, made.identity = EgressProcessServiceStub(channel), GatewayIdentityServiceStub(channel)
        kube.knows("alice", "alice")
        kube.knows("egress", "egress")
        kube.allowed |= {("alice", *right) for right in RIGHTS} | {("egress", "create/egress", SYSTEM, "")}
        yield made
        for channel in made.channels:
            await channel.close()
        await server.stop(0)


async def told(world, bound):
    """What an egress process is told of the pod of the claim."""
    uid = bound.sandbox.sandbox_uid
    pod = next(one for one in world.cluster.pods() if one["metadata"]["uid"] == uid)["metadata"]
    asked = egress_pb2.EgressPod(uid=uid, name=f"{pod['namespace']}/{pod['name']}")
    said = await world.process.Exchange(egress_pb2.ExchangeRequest(pods=[asked]), metadata=PROCESS)
    return [(one.sandbox_id, list(one.names)) for one in said.sessions]


async def test_a_claim_has_the_templates_list_or_a_narrower_one(world):
    bound = await claimed(world)
    assert bound.egress == fleet_pb2.EGRESS_STATE_OPEN
    assert bound.sandbox.egress.reason == "ByName"
    assert await told(world, bound) == [(bound.sandbox.sandbox_id, ["*.example.org", "packages.example.com"])]
    narrow = await claimed(world, request("r2", egress_names=["a.example.org:443"]))
    assert await told(world, narrow) == [(narrow.sandbox.sandbox_id, ["a.example.org:443"])]
    none = await claimed(world, request("r3", egress=fleet_pb2.EGRESS_NONE))
    assert await told(world, none) == [(none.sandbox.sandbox_id, [])]


async def test_a_claims_list_is_that_of_its_object(world):
    bound = await claimed(world, request(egress_names=["a.example.org:443"]))
    ref = Ref(CODE_SANDBOX, *bound.sandbox.sandbox_id.split("/"))
    await world.cluster.until(lambda: world.running.object_of(bound.sandbox.sandbox_id) is not None)
    written = (await world.kube.get(ref))["spec"]["egress"]
    assert written == {"names": [{"host": "a.example.org", "ports": [443]}]}
    assert await told(world, bound) == [(bound.sandbox.sandbox_id, ["a.example.org:443"])]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"egress_names": ["a.example.com"]}, "the template does not allow a.example.com"),
        ({"egress_names": ["a.example.org:22"]}, "the template does not allow a.example.org:22"),
        ({"egress_names": ["127.0.0.1"]}, "no address"),
        (
            {"egress_names": ["a.example.org"], "credentials": [fleet_pb2.EgressCredential(host="a.example.org", value="secret12")]},
            "Secrets that the template names",
        ),
    ],
)  # fmt: skip
async def test_a_claim_for_more_is_refused_in_words(world, fields, words):
    code, message = await refusal(world.stub.Claim(request(**fields), metadata=ALICE))
    assert code == "INVALID_ARGUMENT"
    assert words in message


async def test_a_list_is_changed_and_shown(world):
    bound = await claimed(world)
    name = bound.sandbox.sandbox_id
    asked = egress_pb2.SetEgressRequest(sandbox_id=name, names=["b.example.org"])
    assert (await refusal(world.egress.SetEgress(asked, metadata=ALICE)))[0] == "PERMISSION_DENIED"
    allow(world, name, "patch", "get")
    await world.egress.SetEgress(asked, metadata=ALICE)
    await world.cluster.until(lambda: world.running.object_of(name).spec.egress is not None)
    assert await told(world, bound) == [(name, ["b.example.org"])]
    row = egress_pb2.EgressRow(sandbox_id=name, host="c.example.org", port=443, reason="NotListed", connections=2)
    await world.process.Exchange(egress_pb2.ExchangeRequest(rows=[row]), metadata=PROCESS)
    said = await world.egress.GetEgress(egress_pb2.GetEgressRequest(sandbox_id=name), metadata=ALICE)
    assert list(said.names) == ["b.example.org"]
    assert [(one.host, one.reason, one.connections) for one in said.hosts] == [("c.example.org", "NotListed", 2)]
    more = egress_pb2.SetEgressRequest(sandbox_id=name, names=["b.example.com"])
    code, message = await refusal(world.egress.SetEgress(more, metadata=ALICE))
    assert (code, "does not allow b.example.com" in message) == ("INVALID_ARGUMENT", True)


async def test_only_the_egress_process_asks_and_gets_its_certificate(world):
    asked = egress_pb2.ExchangeRequest(pods=[egress_pb2.EgressPod(uid="u", name="team/p")])
    assert list((await world.process.Exchange(asked, metadata=PROCESS)).sessions) == []
    assert (await refusal(world.process.Exchange(asked, metadata=ALICE)))[0] == "PERMISSION_DENIED"
    sign = SignRequest(signing_request_pem=b"none", component="egress")
    assert (await refusal(world.identity.Sign(sign, metadata=ALICE)))[0] == "PERMISSION_DENIED"
    # What comes behind the right: no request.
    assert (await refusal(world.identity.Sign(sign, metadata=PROCESS)))[0] == "INVALID_ARGUMENT"
    other = SignRequest(signing_request_pem=b"none", component="fleet")
    assert "no component" in (await refusal(world.identity.Sign(other, metadata=PROCESS)))[1]


async def test_pods_of_a_template_with_hosts_are_told_the_way(world):
    (pod, *_) = world.cluster.pods()
    (config,) = [one["value"] for one in pod["spec"]["containers"][0]["env"] if one["name"].endswith("CONFIG")]
    meta = pod["metadata"]
    assert f'"egress_address": "{BY_NAME.address}", "egress_pod": "{meta["namespace"]}/{meta["name"]}"' in config
    assert names.EGRESS_SECRETS not in meta["annotations"]

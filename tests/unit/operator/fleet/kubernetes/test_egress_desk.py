"""What the fleet says to egress processes about the session of a pod, and what it keeps of their reports."""

import itertools

import pytest
from sandfleet_api.fleet.v1 import egress_pb2 as pb
from sandfleet_operator.api.kube import CODE_SANDBOX, POD, SANDBOX_TEMPLATE
from sandfleet_operator.api.settings import EgressByName, Settings
from sandfleet_operator.api.values import Claim, Isolation, RequestKey, Sandbox, State
from sandfleet_operator.cluster.store import Store
from sandfleet_operator.executors.authority import Authority
from sandfleet_operator.executors.session_authority import session_authority
from sandfleet_operator.fleet.kubernetes.egress_desk import EgressDesk
from sandfleet_operator.plan.pods import names
from sandfleet_operator.plan.pods.podspec import PodState
from sandfleet_operator.telemetry.egress_metrics import EgressMetrics
from sandfleet_operator.telemetry.metrics import exposition
from support.operator.builders import IMAGE
from support.operator.crd_strategies import an_object

SETTINGS = Settings(
    control_plane_namespace="sandfleet-system",
    allowed_images=(IMAGE,),
    egress=EgressByName(service="egress:3129", address="127.0.0.9:3129"),
)
TOKEN = {"host": "api.example.com", "secretRef": {"name": "api", "key": "token"}, "env": "TOKEN"}
VERSIONS = itertools.count(1)


class Credentials:
    authority = Authority.new(0.0)


@pytest.fixture
def world():
    return World()


class World:
    def __init__(self):
        self.store, self.young, self.records = Store(), {}, []
        self.desk = EgressDesk(
            self.store, SETTINGS, Credentials(), self.young.get, write=self.records.append, clock=lambda: 1000.0
        )

    def put(self, kind, obj, **meta):
        obj["metadata"] |= {"resourceVersion": str(next(VERSIONS)), **meta}
        self.store.put(kind, obj)

    def template(self, **egress):
        self.put(SANDBOX_TEMPLATE, an_object("SandboxTemplate", {"image": IMAGE, "egress": egress}, "python"), uid="t")

    def sandbox(self, **spec):
        said = {"templateRef": {"name": "python"}, **spec}
        self.put(CODE_SANDBOX, an_object("CodeSandbox", said), uid="object")

    def pod(self, owner="object", state=PodState.CLAIMED):
        labels = {names.STATE: state.value, names.SANDBOX: "demo"}
        owners = [{"kind": "CodeSandbox", "name": "demo", "uid": owner, "apiVersion": "sandfleet.io/v1alpha1"}]
        meta = {"name": "pod", "namespace": "team-a", "labels": labels, "annotations": {}}
        self.put(
            POD, {"metadata": meta, "spec": {}, "status": {}}, uid="pod-uid", ownerReferences=owners if owner else []
        )

    def said(self, name="team-a/pod", uid="pod-uid"):
        return self.desk.session(pb.EgressPod(name=name, uid=uid))


def test_a_pod_has_the_list_of_its_template_and_follows_it(world):
    world.template(names=[{"host": "a.example.org"}, {"host": "b.example.org", "ports": [8443]}])
    world.sandbox()
    world.pod()
    assert (world.said().sandbox_id, list(world.said().names)) == (
        "team-a/demo",
        ["a.example.org", "b.example.org:8443"],
    )
    world.template(names=[{"host": "c.example.org"}])
    assert list(world.said().names) == ["c.example.org"]


def test_a_sandbox_of_its_own_list_has_that_and_one_that_lists_more_has_nothing(world):
    world.template(names=[{"host": "*.example.org"}])
    world.pod()
    world.sandbox(egress={"names": [{"host": "a.example.org"}]})
    assert list(world.said().names) == ["a.example.org"]
    world.sandbox(egress={"names": [{"host": "a.example.com"}]})
    assert list(world.said().names) == []
    world.sandbox(egress={})
    assert list(world.said().names) == []


@pytest.mark.parametrize(
    ("asked", "state"),
    [
        ({"uid": "another"}, PodState.CLAIMED),
        ({"name": "team-b/pod"}, PodState.CLAIMED),
        ({"name": "nonsense"}, PodState.CLAIMED),
        ({}, PodState.WARM),
        ({}, PodState.RETIRING),
    ],
)
def test_what_is_no_session_of_that_pod_has_no_list(world, asked, state):
    world.template(names=[{"host": "a.example.org"}])
    world.sandbox()
    world.pod()
    assert world.said() is not None
    world.pod(state=state)
    assert world.said(**asked) is None


def test_a_pod_that_only_names_a_sandbox_has_nothing(world):
    """Labels alone do not make a pod that of a sandbox."""
    world.template(names=[{"host": "a.example.org"}])
    world.sandbox()
    world.pod(owner="")
    assert list(world.said().names) == []


def test_a_young_claim_has_the_list_that_it_asked_for(world):
    world.template(names=[{"host": "*.example.org"}])
    world.pod(owner="")
    key = RequestKey("holder", "request", "team-a/python")
    claim = Claim(key=key, pool="team-a/python", egress=False, egress_names=("a.example.org:443",))
    world.young["team-a/pod"] = Sandbox(
        sandbox_id="team-a/pod", sandbox_uid="team-a/pod", pool="team-a/python", template="python", workspace_id="", state=State.CLAIMED,
        created=0.0, started=0.0, isolation=Isolation.GVISOR, claim=claim,
    )  # fmt: skip
    assert list(world.said().names) == ["a.example.org:443"]


def test_secrets_are_told_by_name_and_each_session_has_an_authority_of_its_own(world):
    world.template(names=[{"host": "api.example.com"}], credentials=[TOKEN])
    world.sandbox()
    world.pod()
    (secret,) = world.said().secrets
    assert (secret.namespace, secret.secret, secret.key, secret.env) == ("team-a", "api", "token", "TOKEN")
    assert secret.format == "{key}"
    assert world.said().authority.startswith(b"-----BEGIN PRIVATE KEY")
    # Egress processes ask once a second: it is not signed anew for each question.
    assert world.said().authority == world.said().authority
    one, same, other = (session_authority(Credentials.authority, uid, 1000.0).both for uid in ("a", "a", "b"))
    private = [pem.partition(b"-----BEGIN CERTIFICATE")[0] for pem in (one, same, other)]
    assert private[0] == private[1] != private[2]
    world.template(names=[{"host": "api.example.com"}])
    assert (list(world.said().secrets), world.said().authority) == ([], b"")


def test_a_session_whose_requests_are_read_has_an_authority_without_secrets(world):
    world.template(names=[{"host": "a.example.org", "methods": ["GET"], "ports": [443, 8443], "paths": ["/v1/*"]}])
    world.sandbox()
    world.pod()
    assert list(world.said().names) == ["GET a.example.org:443,8443/v1/*"]
    assert world.said().authority.startswith(b"-----BEGIN PRIVATE KEY")


def test_what_was_reached_is_kept_by_sandbox_and_recorded(world):
    row = pb.EgressRow(sandbox_id="team-a/demo", host="a.example.org", port=443, connections=2, open=1, sent_bytes=3)
    refused = pb.EgressRow(sandbox_id="team-a/demo", host="b.example.org", port=443, reason="NotListed", connections=1)
    measured = EgressMetrics()
    world.desk.measure = measured.heard
    world.desk.heard([row, refused, row])
    text = exposition(measured.families())
    assert 'sandfleet_egress_connections_total{reason="Reached"} 4' in text
    assert 'sandfleet_egress_connections_total{reason="NotListed"} 1' in text
    assert 'sandfleet_egress_bytes_total{direction="sent"} 6' in text
    assert [(one.host, one.connections, one.open) for one in world.desk.reports("team-a/demo")] == [
        ("b.example.org", 1, 0), ("a.example.org", 4, 2),
    ]  # fmt: skip
    assert [(one.namespace, one.sandbox, one.reason) for one in world.records] == [
        ("team-a", "demo", ""), ("team-a", "demo", "NotListed"), ("team-a", "demo", ""),
    ]  # fmt: skip
    assert world.desk.reports("team-a/other") == ()

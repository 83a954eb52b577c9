"""What executors say of services becomes what a status can hold, whatever it is."""

import re

from crd_schemas import SCHEMAS, nodes
from hypothesis import given
from hypothesis import strategies as st
from sandfleet_api.executor.v1 import service_pb2 as pb
from sandfleet_operator.api.parse import status_json
from sandfleet_operator.api.resources import SandboxStatus, ServiceState
from sandfleet_operator.effects.servicelist import services_of

FIELDS = {path: schema for path, schema in nodes(SCHEMAS["CodeSandbox"]) if path.startswith("status.services")}


def said(name="db", state=pb.SERVICE_STATE_READY, **changes):
    return pb.Service(name=name, state=state, from_template=True, **changes)


def test_a_service_of_the_template_is_taken_with_what_lasts():
    (found,) = services_of([said(reason="NotReady", message="no answer", restarts=3, ports=[443, 80], pid=7)])
    assert (found.name, found.state, found.reason, found.message) == ("db", ServiceState.READY, "NotReady", "no answer")
    assert (found.restarts, found.ports) == (3, (80, 443))


def test_what_the_session_declared_is_its_own_affair():
    own = pb.Service(name="own", state=pb.SERVICE_STATE_READY)
    assert [one.name for one in services_of([own, said()])] == ["db"]


def test_what_writes_on_terminals_and_over_lines_is_taken_out():
    (found,) = services_of([said(message="a\x1b[2Jb\n\tc\u202ed" + "é" * 999)])
    assert found.message.startswith("a?[2Jb c?dé")
    assert len(found.message) == 256


def test_what_a_newer_executor_says_is_unknown():
    (found,) = services_of([said(state=99, reason="not one word")])
    assert (found.state, found.reason) == (ServiceState.UNKNOWN, "")


SAID = st.builds(
    pb.Service,
    name=st.sampled_from(["db", "web", "", ".x", "a" * 65, "ü"]) | st.text(max_size=5),
    state=st.integers(0, 20),
    reason=st.text(max_size=80) | st.sampled_from(["CrashLoop", "A" * 65]),
    message=st.text(max_size=300) | st.just("x" * 5000),
    restarts=st.integers(0, (1 << 32) - 1),
    ports=st.lists(st.integers(0, (1 << 32) - 1), max_size=30),
    from_template=st.booleans(),
)


@given(st.lists(SAID, max_size=40))
def test_whatever_is_said_the_api_server_takes_it(given_):
    """One field that it refused would hold up the whole status."""
    written = status_json(SandboxStatus(services=services_of(given_)))["services"] or []
    assert len(written) <= FIELDS["status.services"]["maxItems"]
    assert len({one["name"] for one in written}) == len(written)
    for one in written:
        assert one["state"] in FIELDS["status.services[].state"]["enum"]
        for field in ("name", "reason", "message"):
            schema = FIELDS[f"status.services[].{field}"]
            assert len(one.get(field, "")) <= schema["maxLength"]
            assert field not in one or re.search(schema.get("pattern", ""), one[field])
        assert one["name"]
        assert 0 <= one["restarts"] < 1 << 31
        ports = one.get("ports", [])
        assert len(set(ports)) == len(ports) <= FIELDS["status.services[].ports"]["maxItems"]
        assert all(1 <= port <= 65535 for port in ports)

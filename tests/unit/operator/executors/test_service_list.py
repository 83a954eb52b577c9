"""Any report of services becomes values that a status can hold."""

import re

from hypothesis import given
from hypothesis import strategies as st
from sandfleet_api.executor.v1 import service_pb2 as pb
from sandfleet_operator.api.kinds.sandbox import SandboxStatus, ServiceState, status_json
from sandfleet_operator.executors.service_list import services_of
from support.operator.crd_schemas import SCHEMAS, nodes

FIELDS = {path: schema for path, schema in nodes(SCHEMAS["CodeSandbox"]) if path.startswith("status.services")}


def said(name="db", state=pb.SERVICE_STATE_READY, **changes):
    return pb.Service(name=name, state=state, from_template=True, **changes)


def test_a_templates_service_is_read_with_its_lasting_values():
    (found,) = services_of([said(reason="NotReady", message="no answer", restarts=3, ports=[443, 80], pid=7)])
    assert (found.name, found.state, found.reason, found.message) == ("db", ServiceState.READY, "NotReady", "no answer")
    assert (found.restarts, found.ports) == (3, (80, 443))


def test_services_of_the_session_are_left_out():
    own = pb.Service(name="own", state=pb.SERVICE_STATE_READY)
    assert [one.name for one in services_of([own, said()])] == ["db"]


def test_control_characters_and_line_breaks_are_removed():
    (found,) = services_of([said(message="a\x1b[2Jb\n\tc\u202ed" + "é" * 999)])
    assert found.message.startswith("a?[2Jb c?dé")
    assert len(found.message) == 256


def test_a_newer_executors_states_are_unknown():
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
def test_the_api_server_accepts_any_report(given_):
    """One refused field would block the whole status."""
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

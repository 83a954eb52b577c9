"""The targets that an egress list gives to probe, and what the results prove."""

import pytest
from sandfleet_operator.api.kinds.template import Egress, EgressRule, Port
from sandfleet_operator.api.settings import Settings
from sandfleet_operator.plan.pods.egress_probe import (
    MAX_TARGETS,
    NAME_SERVERS,
    ReachState,
    Target,
    after,
    at_first,
    at_last,
    targets,
)
from sandfleet_operator.plan.pods.networkpolicy import _opening

SETTINGS = Settings(control_plane_namespace="system", blocked_cidrs=("10.9.0.0/16",))
HOST, SIX = "203.0.113.7", "2001:db8::7"


def opens(*rules, dns=False):
    return Egress(tuple(rules), dns=dns)


def a_rule(cidr=f"{HOST}/32", *ports, excluded=()):
    return EgressRule(cidr, excluded, ports)


def tcp(port, end=0):
    return Port("TCP", port, end)


CASES = [
    ("nothing", opens(), (), ReachState.DENIED, "NothingAllowed"),
    ("names", opens(dns=True), (NAME_SERVERS,), ReachState.OPENING, "Asking"),
    ("names before hosts", opens(a_rule(f"{HOST}/32", tcp(80)), dns=True), (NAME_SERVERS,), ReachState.OPENING, "Asking"),
    ("a host's port", opens(a_rule(f"{HOST}/32", tcp(443))), (Target(HOST, 443),), ReachState.OPENING, "Asking"),
    ("of IPv6", opens(a_rule(f"{SIX}/128", tcp(443))), (Target(SIX, 443),), ReachState.OPENING, "Asking"),
    ("written without a prefix", opens(a_rule(HOST, tcp(1))), (Target(HOST, 1),), ReachState.OPENING, "Asking"),
    ("a range by its first port", opens(a_rule(f"{HOST}/32", tcp(8000, 8999))), (Target(HOST, 8000),), ReachState.OPENING, "Asking"),
    ("the same twice", opens(a_rule(HOST, tcp(1)), a_rule(HOST, tcp(1), tcp(2))), (Target(HOST, 1), Target(HOST, 2)), ReachState.OPENING, "Asking"),
    ("a host beside a network", opens(a_rule("198.51.100.0/24"), a_rule(HOST, tcp(1))), (Target(HOST, 1),), ReachState.OPENING, "Asking"),
    ("a network", opens(a_rule("198.51.100.0/24", tcp(443))), (), ReachState.OPENING, "NotProbeable"),
    ("a host on every port", opens(a_rule(HOST)), (), ReachState.OPENING, "NotProbeable"),
    ("a host on all of TCP", opens(a_rule(HOST, tcp(0))), (), ReachState.OPENING, "NotProbeable"),
    ("a host's UDP port", opens(a_rule(HOST, Port("UDP", 53))), (), ReachState.OPENING, "NotProbeable"),
    ("what the installation blocks", opens(a_rule("10.9.1.1/32", tcp(443))), (), ReachState.DENIED, "NothingAllowed"),
    ("metadata beside a network", opens(a_rule("169.254.169.254/32", tcp(80)), a_rule("8.8.8.0/24")), (), ReachState.OPENING, "NotProbeable"),
    ("what it excludes itself", opens(a_rule(HOST, tcp(80), excluded=(f"{HOST}/32",))), (), ReachState.DENIED, "NothingAllowed"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("wanted", "asked", "state", "reason"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_probe_targets_and_the_state_before_probing(wanted, asked, state, reason):
    assert targets(wanted, SETTINGS) == asked
    found = at_first(wanted, SETTINGS)
    assert (found.state, found.reason) == (state, reason)
    assert found.message


@pytest.mark.parametrize("wanted", [case[1] for case in CASES], ids=[case[0] for case in CASES])
def test_it_is_denied_exactly_where_the_policy_opens_nothing(wanted):
    assert (at_first(wanted, SETTINGS).state is ReachState.DENIED) == (not _opening({}, wanted, SETTINGS)["egress"])


def test_few_targets_of_a_long_list_are_probed():
    wanted = opens(*(a_rule(f"203.0.113.{n}/32", tcp(443)) for n in range(60)))
    assert targets(wanted, SETTINGS) == tuple(Target(f"203.0.113.{n}", 443) for n in range(MAX_TARGETS))


ASKED = (Target(HOST, 443), Target(SIX, 80), NAME_SERVERS)


@pytest.mark.parametrize(
    ("reached", "message"),
    [
        ((True, True, True), f"answered: {HOST}:443, [{SIX}]:80, name resolution"),
        ((False, True, False), f"answered: [{SIX}]:80"),
        ((False, False, False), None),
        # The number of results is wrong.
        ((), None),
        ((True,), None),
        ((True,) * 1000, None),
    ],
)
def test_one_answer_proves_egress_and_none_does_not(reached, message):
    found = after(ASKED, reached)
    assert (found.message if found else None) == message
    assert found is None or (found.state, found.reason) == (ReachState.OPEN, "Answered")


def test_the_last_state_names_the_targets_or_the_failure():
    silent, failed = at_last(ASKED, ""), at_last(ASKED, "cannot reach the executor")
    assert {(one.state, one.reason) for one in (silent, failed)} == {(ReachState.OPENING, "NoAnswer")}
    assert f"no answer from {HOST}:443, [{SIX}]:80, name resolution" in silent.message
    assert failed.message == "cannot know whether it is open: cannot reach the executor"

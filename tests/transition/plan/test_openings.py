"""A sandbox that policies of others open says so, and is not handed out where its template demands closure."""

from dataclasses import replace

import pytest
from sandfleet_operator.api.conditions import ConditionType, Reason
from sandfleet_operator.api.kinds.template import NetworkClosure
from sandfleet_operator.plan.pods import names
from sandfleet_operator.plan.sandbox.actions import CreatePod, Greet
from sandfleet_operator.plan.sandbox.status import condition
from transition.builders import TEMPLATE, actions, observed, on_record, planned, policies, ready, true, without_pod

OPEN = {"podSelector": {}, "policyTypes": ["Egress"], "egress": [{}]}
REQUIRED = replace(TEMPLATE, spec=replace(TEMPLATE.spec, network_closure=NetworkClosure.REQUIRED))


def opened(seen, *extra, **changes):
    return replace(seen, policies={**policies(), **dict.fromkeys(extra or ("allow-all",), OPEN)}, **changes)


def isolated(made):
    one = condition(made.status, ConditionType.ISOLATED)
    return (one.status, one.reason, one.message)


def test_isolated_is_false_with_the_names_and_the_sandbox_stays_ready():
    made = planned(opened(observed(), "allow-b", "allow-a"))
    assert isolated(made) == ("False", "OpenedByOthers", "opened by NetworkPolicies allow-a, allow-b")
    assert (ready(made), actions(made)) == ("Ready", [])


@pytest.mark.parametrize(
    "spec",
    [
        {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]},
        {**OPEN, "podSelector": {"matchLabels": {"app": "web"}}},
        {**OPEN, "podSelector": {"matchExpressions": [{"key": names.COMPONENT, "operator": "DoesNotExist"}]}},
    ],
)
def test_a_policy_that_opens_nothing_here_changes_nothing(spec):
    made = planned(replace(observed(), policies={**policies(), "others": spec}))
    assert isolated(made)[:2] == ("True", "Isolated")


def test_the_proof_is_kept_while_the_sandbox_is_opened():
    """Another operator, which has greeted no executor, neither greets again nor forgets."""
    seen = opened(observed())
    later = replace(seen, sandbox=on_record(seen), contact=None)
    made = planned(later)
    assert (isolated(made)[1], ready(made), actions(made)) == ("OpenedByOthers", "Ready", [])
    closed = planned(replace(later, policies=policies()))
    assert "Isolated" in true(closed)
    assert actions(closed) == []


def test_an_opened_sandbox_of_a_deleted_template_still_says_so():
    seen = opened(observed())
    made = planned(replace(seen, sandbox=on_record(seen), template=None))
    assert isolated(made)[1] == "OpenedByOthers"


def test_where_the_template_demands_closure_an_opened_sandbox_is_not_ready():
    made = planned(opened(observed(), template=REQUIRED))
    assert (ready(made), actions(made)) == ("OpenedByOthers", [])
    assert "Ready" in true(planned(replace(observed(), template=REQUIRED)))


def test_where_the_template_demands_closure_no_pod_is_created_and_no_session_begun():
    cold = planned(opened(without_pod(), template=REQUIRED))
    assert ready(cold) == Reason.OPENED_BY_OTHERS.value
    assert not any(isinstance(one, CreatePod) for one in cold.actions)
    started = replace(without_pod(), pod=observed().pod)
    assert any(isinstance(one, Greet) for one in planned(replace(started, template=REQUIRED)).actions)
    made = planned(opened(started, template=REQUIRED))
    assert not any(isinstance(one, Greet) for one in made.actions)
    assert ready(made) == Reason.OPENED_BY_OTHERS.value


def test_a_policy_with_a_name_of_another_sandbox_is_one_of_others():
    made = planned(opened(observed(), names.own_policy("other")))
    assert isolated(made)[1] == "OpenedByOthers"

"""Policies of others: which of them open a pod, and what is remembered of them."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sandfleet_operator.api.settings import Settings
from sandfleet_operator.plan.pods import names
from sandfleet_operator.plan.pods.networkpolicy import default_deny
from sandfleet_operator.plan.pods.openings import MAX_SELECTOR, is_ours, kept, listed, opened, openers, selects

POD = {**names.own_labels(), "app": "web", "tier": "back"}
EVERYTHING = {"podSelector": {}, "policyTypes": ["Ingress", "Egress"], "ingress": [{}], "egress": [{}]}


def policy(spec, name="others", **metadata):
    meta = {"namespace": "team-a", "name": name, "uid": "u", "resourceVersion": "1", **metadata}
    return {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": meta, "spec": spec}


def term(operator, key="app", *values):
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


@pytest.mark.parametrize(
    ("selector", "holds"),
    [
        ({}, True),
        ({"matchLabels": {"app": "web", "tier": "back"}}, True),
        ({"matchLabels": {"app": "web", "tier": "front"}}, False),
        ({"matchLabels": {"other": ""}}, False),
        (term("In", "app", "db", "web"), True),
        (term("In", "app", "db"), False),
        (term("In", "other", ""), False),
        (term("NotIn", "app", "web"), False),
        (term("NotIn", "app", "db"), True),
        (term("NotIn", "other", "db"), True),
        (term("Exists", "app"), True),
        (term("Exists", "other"), False),
        (term("DoesNotExist", "app"), False),
        (term("DoesNotExist", "other"), True),
        # How a policy leaves out sandboxes, as the runbook says.
        (term("NotIn", names.COMPONENT, names.SANDBOX_COMPONENT), False),
        ({"matchLabels": {"app": "web"}, **term("In", "tier", "front")}, False),
        # Of a Kubernetes to come: it may select the pod.
        (term("Resembles", "app", "web"), True),
    ],
)
def test_a_selector_selects_as_in_kubernetes(selector, holds):
    assert selects(selector, POD) is holds


@pytest.mark.parametrize(
    ("spec", "directions"),
    [
        (EVERYTHING, ("Ingress", "Egress")),
        ({"policyTypes": ["Ingress", "Egress"]}, ()),
        ({"policyTypes": ["Ingress"], "ingress": []}, ()),
        ({"policyTypes": ["Ingress"], "ingress": [{}], "egress": [{}]}, ("Ingress",)),
        ({"policyTypes": ["Egress"], "ingress": [{}], "egress": [{}]}, ("Egress",)),
        # The API server fills in the types; an object of the watch has them.
        ({"ingress": [{}]}, ("Ingress",)),
        ({"egress": [{}]}, ("Egress",)),
        ({}, ()),
    ],
)
def test_a_policy_opens_the_directions_in_which_it_has_rules(spec, directions):
    assert opened(spec) == directions
    shown = kept(policy({"podSelector": {}, **spec}))
    assert (opened(shown["spec"]) if shown else ()) == directions


def test_a_label_that_is_not_known_yet_may_match():
    by_sandbox = {"matchLabels": {names.SANDBOX: "mine"}}
    assert not selects(by_sandbox, POD)
    assert selects(by_sandbox, POD, frozenset({names.SANDBOX}))
    assert not selects({**by_sandbox, **term("In", "app", "db")}, POD, frozenset({names.SANDBOX}))


def test_the_expected_policies_are_no_openers():
    found = {"b": EVERYTHING, "a": EVERYTHING, names.DEFAULT_DENY: EVERYTHING}
    assert openers(found, POD, [names.DEFAULT_DENY]) == ("a", "b")


def test_a_message_names_a_few_policies_and_counts_the_rest():
    assert listed(("a",)) == "a"
    assert listed(tuple("abcde")) == "a, b, c and 2 more"


def test_only_policies_of_the_control_plane_are_kept_whole():
    deny = default_deny("team-a", Settings(control_plane_namespace="system"))
    assert is_ours(deny)
    assert kept(deny) is deny
    # A name alone, or labels alone, make no policy of ours.
    assert not is_ours(policy(EVERYTHING, names.DEFAULT_DENY))
    assert not is_ours(policy(EVERYTHING, labels=names.own_labels()))
    shown = kept(policy(EVERYTHING, labels={"much": "x" * 60}, annotations={"more": "y" * 10_000}))
    assert shown is not None
    assert len(json.dumps(shown)) < 300


def test_a_selector_that_is_too_long_counts_as_selecting_everything():
    long = {**EVERYTHING, "podSelector": term("In", "app", *(f"value-{number}" for number in range(MAX_SELECTOR)))}
    assert openers({"long": long}, POD, ()) == ()
    shown = kept(policy(long))
    assert shown is not None
    assert openers({"long": shown["spec"]}, POD, ()) == ("long",)


WORDS = st.sampled_from(["app", "tier", names.COMPONENT, "web", "back", names.SANDBOX_COMPONENT])
TERMS = st.builds(
    lambda key, operator, values: {"key": key, "operator": operator, "values": values},
    WORDS,
    st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist"]),
    st.lists(WORDS, max_size=3),
)
SELECTORS = st.fixed_dictionaries(
    {}, optional={"matchLabels": st.dictionaries(WORDS, WORDS, max_size=2), "matchExpressions": st.lists(TERMS, max_size=3)}
)  # fmt: skip
SPECS = st.fixed_dictionaries(
    {"podSelector": SELECTORS},
    optional={
        "policyTypes": st.lists(st.sampled_from(["Ingress", "Egress"]), min_size=1, unique=True),
        "ingress": st.lists(st.just({}), max_size=2),
        "egress": st.lists(st.just({}), max_size=2),
    },
)


@given(SPECS, st.dictionaries(WORDS, WORDS, max_size=4))
def test_what_is_kept_of_a_policy_says_the_same_as_all_of_it(spec, labels):
    shown = kept(policy(spec))
    whole = openers({"one": spec}, labels, ())
    assert (openers({"one": shown["spec"]}, labels, ()) if shown else ()) == whole

"""The policy on the control plane's own pods, as the API server in memory has it: what it refuses, and what passes."""

import pytest
from sandfleet_operator.api.kube import POD, Forbidden, Ref
from sandfleet_operator.fleet.kubernetes.service_place import LEADS
from sandfleet_operator.plan.pods import names
from support.fakes.kube_admission import only_sandboxes
from support.kubernetes.own_pods import ATTACKS, RUNTIME, pod

ADMIT = only_sandboxes({"fleet"}, {RUNTIME})
REF = Ref(POD, "team", "one")
OWN = names.own_labels()


@pytest.mark.parametrize("spec", ATTACKS.values(), ids=ATTACKS)
def test_the_control_plane_makes_no_pod_that_is_more_than_a_sandbox(spec):
    with pytest.raises(Forbidden):
        ADMIT("fleet", REF, None, pod("team", OWN, **spec))
    # The control: the policy speaks of the release's accounts alone.
    ADMIT("tenant", REF, None, pod("team", OWN, **spec))


def test_a_sandbox_passes_but_without_its_label_or_in_namespaces_of_kubernetes_it_does_not():
    ADMIT("fleet", REF, None, pod("team", OWN))
    for ref, labels in ((REF, {}), (Ref(POD, "kube-system", "one"), OWN)):
        with pytest.raises(Forbidden):
            ADMIT("fleet", ref, None, pod(ref.namespace, labels))


@pytest.mark.parametrize("home", ["sandfleet", "kube-system"])
def test_the_leader_marks_its_own_pod_for_the_service_wherever_it_is(home):
    admit, own = only_sandboxes({"fleet"}, {RUNTIME}, home), Ref(POD, home, "fleet-0")
    theirs = pod(home, {}, runtimeClassName=None, automountServiceAccountToken=True)
    marked = pod(home, {LEADS: "true"}, runtimeClassName=None, automountServiceAccountToken=True)
    admit("fleet", own, theirs, marked)
    with pytest.raises(Forbidden):
        admit("fleet", own, None, marked)
    with pytest.raises(Forbidden):
        admit("fleet", Ref(POD, "kube-public", "one"), theirs, marked)


def test_the_spec_of_a_pod_stays():
    theirs = pod("team", {}, hostNetwork=True)
    ADMIT("fleet", REF, theirs, {**theirs, "metadata": {"labels": {"a": "b"}}})
    with pytest.raises(Forbidden):
        ADMIT("fleet", REF, theirs, pod("team", {}, hostNetwork=True, containers=[{"image": "mine"}]))

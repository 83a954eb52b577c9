"""Paths of the Kubernetes API and its errors."""

import pytest
from sandfleet_operator.api.kube import (
    CODE_SANDBOX,
    KINDS,
    NODE,
    POD,
    AlreadyExists,
    Conflict,
    Expired,
    Forbidden,
    Invalid,
    Kind,
    KubeError,
    NotFound,
    Ref,
    ServerError,
    TooManyRequests,
    collection,
    failure,
    kind_of,
    path,
    ref_of,
)


@pytest.mark.parametrize(
    ("ref", "subresource", "where"),
    [
        (Ref(POD, "a", "b"), "", "/api/v1/namespaces/a/pods/b"),
        (Ref(POD, "a", "b"), "status", "/api/v1/namespaces/a/pods/b/status"),
        (Ref(NODE, "", "b"), "", "/api/v1/nodes/b"),
        (Ref(CODE_SANDBOX, "a", "b.c"), "", "/apis/sandfleet.io/v1alpha1/namespaces/a/codesandboxes/b.c"),
    ],
)
def test_an_object_has_a_path(ref, subresource, where):
    assert path(ref, subresource) == where


def test_a_kind_has_a_path_in_a_namespace_and_over_all_of_them():
    assert collection(CODE_SANDBOX, "a") == "/apis/sandfleet.io/v1alpha1/namespaces/a/codesandboxes"
    assert collection(CODE_SANDBOX) == "/apis/sandfleet.io/v1alpha1/codesandboxes"


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a?watch=1", "a#", "%2e%2e", "a\n", "a\0"])
def test_a_name_never_leads_to_the_path_of_something_else(name):
    for ref in (Ref(POD, "a", name), Ref(POD, name, "b"), Ref(NODE, "", name)):
        with pytest.raises(ValueError, match="cannot address"):
            path(ref)


def test_a_kind_without_namespaces_has_none():
    with pytest.raises(ValueError, match="they have none"):
        path(Ref(NODE, "a", "b"))


def test_an_object_says_what_it_is():
    sandbox = {
        "apiVersion": "sandfleet.io/v1alpha1",
        "kind": "CodeSandbox",
        "metadata": {"namespace": "a", "name": "b"},
    }
    assert ref_of(sandbox) == Ref(CODE_SANDBOX, "a", "b")
    assert [kind_of({"apiVersion": kind.api_version, "kind": kind.kind}) for kind in KINDS] == list(KINDS)
    with pytest.raises(ValueError, match="cannot tell what kind v1, Pods is"):
        kind_of({"apiVersion": "v1", "kind": "Pods"})
    thing = Kind("example.org", "v1", "things", "Thing")
    assert kind_of({"apiVersion": "example.org/v1", "kind": "Thing"}, (*KINDS, thing)) == thing


@pytest.mark.parametrize(
    ("status", "reason", "error", "unsettled"),
    [
        (404, "NotFound", NotFound, False),
        (409, "AlreadyExists", AlreadyExists, False),
        (409, "Conflict", Conflict, False),
        (410, "Expired", Expired, False),
        (410, "Gone", Expired, False),
        (422, "Invalid", Invalid, False),
        (403, "Forbidden", Forbidden, False),
        (429, "TooManyRequests", TooManyRequests, False),
        (500, "InternalError", ServerError, True),
        (503, "ServiceUnavailable", ServerError, True),
        (504, "Timeout", ServerError, True),
        (400, "BadRequest", KubeError, False),
        (401, "Unauthorized", KubeError, False),
    ],
)
def test_each_refusal_has_its_error(status, reason, error, unsettled):
    raised = failure("get a pod", status, {"reason": reason, "message": "so it is"})
    assert type(raised) is error
    assert (raised.status, raised.reason, raised.unsettled) == (status, reason, unsettled)
    assert str(raised) == raised.message == "cannot get a pod: so it is"


@pytest.mark.parametrize(
    ("status", "error"),
    [(404, NotFound), (409, Conflict), (410, Expired), (429, TooManyRequests), (502, ServerError), (418, KubeError)],
)
def test_a_refusal_without_a_word_is_told_by_its_status(status, error):
    raised = failure("get a pod", status, {})
    assert type(raised) is error
    assert str(raised) == f"cannot get a pod: the API server answered {status}"

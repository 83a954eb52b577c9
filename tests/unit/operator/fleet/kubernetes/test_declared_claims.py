"""What a CodeSandbox of a pool asks the fleet for."""

import pytest
from sandfleet_operator.api.kinds.sandbox import code_sandbox
from sandfleet_operator.api.limits import Limits
from sandfleet_operator.fleet.kubernetes.declared_claims import claim_of
from support.operator.crd_strategies import an_object


@pytest.mark.parametrize(
    ("said", "limits"),
    [
        ({}, Limits()),
        ({"maxTimeoutSeconds": 0}, Limits()),
        ({"maxTimeoutSeconds": 60, "processes": 8}, Limits(max_timeout=60.0, processes=8)),
    ],
)
def test_no_longest_timeout_is_the_template_s_in_its_claim(said, limits):
    made = an_object(
        "CodeSandbox", {"templateRef": {"name": "python"}, "poolRef": {"name": "fast"}, "executionLimits": said}
    )
    made["metadata"]["uid"] = "u1"
    assert claim_of(code_sandbox(made), "").limits == limits

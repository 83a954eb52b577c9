"""Any course of events on operator and fleet together. SANDFLEET_EXAMPLES makes the search longer (`make joint`)."""

import os

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from transition.joint.play import faults
from transition.joint.story import PLANS, Story

pytestmark = pytest.mark.slow

EXAMPLES = int(os.environ.get("SANDFLEET_EXAMPLES", "5"))


@settings(
    # The short profile tells the same stories each time.
    derandomize=EXAMPLES <= 5,
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
@given(plan=PLANS, guarded=st.booleans())
def test_promises_are_kept_and_in_the_end_nothing_is_left(plan, guarded):
    assert faults(lambda world: Story(world).run(plan), guarded=guarded) == []

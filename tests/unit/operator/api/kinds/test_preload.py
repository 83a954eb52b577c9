"""Modules that a template has loaded ahead: refused where the executor would refuse them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sandfleet_executor.core.errors import BadRequest
from sandfleet_executor.core.packages import preload as executor
from sandfleet_operator.api.errors import FleetError
from sandfleet_operator.api.kinds.preload import check


def refused(function, modules, error):
    try:
        function(modules)
    except error:
        return True
    return False


NAMES = st.text("ab1_.é \n", max_size=6) | st.sampled_from(["pandas", "matplotlib.pyplot", "m" * 100, "m" * 101])


@given(st.lists(NAMES, max_size=3) | st.just([f"m{number}" for number in range(33)]))
def test_operator_and_executor_take_the_same_modules(modules):
    assert refused(check, modules, FleetError) == refused(executor.check, modules, BadRequest)


def test_the_module_is_named():
    with pytest.raises(FleetError, match=r"cannot preload the modules: 'a b' is no name of a module"):
        check(["pandas", "a b"])

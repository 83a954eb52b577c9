"""Changed copies of values: what `dataclasses.replace` makes, without its cost."""

import dataclasses

import pytest
from sandfleet_operator.api.values import State
from sandfleet_operator.plan.copies import replace
from support.fleet.builders import a_claim, a_sandbox, a_waiting


@pytest.mark.parametrize(
    ("value", "changes"),
    [
        (a_sandbox(State.WARM), {}),
        (a_sandbox(State.WARM), {"state": State.CLAIMED, "claim": a_claim(), "bound": True}),
        (a_waiting(3), {"sandbox_id": "s1", "many": 2}),
        (a_claim(), {"queue": "team"}),
    ],
)
def test_a_changed_copy_is_that_of_dataclasses(value, changes):
    before = dataclasses.replace(value)
    assert replace(value, **changes) == dataclasses.replace(value, **changes)
    assert value == before


def test_a_name_that_is_no_field_is_refused():
    with pytest.raises(KeyError, match="colour"):
        replace(a_sandbox(), colour="red")


@dataclasses.dataclass(frozen=True, slots=True)
class Checked:
    one: int
    two: int

    def __post_init__(self):
        assert self.one < self.two


def test_a_value_that_checks_itself_is_refused():
    with pytest.raises(TypeError, match="__post_init__"):
        replace(Checked(1, 2), one=3)

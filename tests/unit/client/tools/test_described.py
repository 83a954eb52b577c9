"""Tools that describe themselves as those of smolagents do."""

import pytest
from sandfleet import ToolLimits, tool
from sandfleet.errors import InvalidArgument
from sandfleet.tools.declared import tools_of


class Convert:
    """As `smolagents.Tool` and what its decorator makes: `forward` need not say what `inputs` says."""

    name = "convert"
    description = "Convert an amount of euros."
    output_type = "number"
    is_initialized = False

    def __init__(self, **inputs):
        self.inputs = inputs or {
            "to": {"type": "string", "description": "currency", "nullable": True},
            "amount": {"type": "number", "description": "euros"},
        }
        self.prepared = 0

    def setup(self):
        self.prepared += 1
        self.is_initialized = True

    def forward(self, *args, **kwargs):
        assert not args
        return kwargs["amount"] * 2 if kwargs.get("to") else kwargs["amount"]

    def __call__(self, *args, **kwargs):
        raise AssertionError("the tool is called by forward")


def test_a_tool_that_describes_itself_is_shown_as_it_does():
    [made] = tools_of([Convert()])
    assert made.stub == (
        "def convert(amount: float, to: str | None = None) -> float:\n"
        '    """Convert an amount of euros.\n\n    Args:\n        to: currency\n        amount: euros"""'
    )


def test_arguments_are_checked_by_what_it_says_and_it_is_prepared_once():
    given = Convert()
    made = tool(given, limits=ToolLimits(concurrency=1))
    assert given.prepared == 0
    assert [made(**made.bind(each)) for each in ({"amount": "2"}, {"amount": 2, "to": "USD"})] == [2.0, 4.0]
    assert (given.prepared, made.limits.concurrency) == (1, 1)
    for wrong in ({}, {"amount": "two"}, {"amount": 1, "more": 1}, {"amount": 1, "to": 5}):
        with pytest.raises(ValueError, match=r"amount|more|to"):
            made.bind(wrong)


@pytest.mark.parametrize("kind", ["any", "image", ["string", "null"], None])
def test_a_type_that_has_no_name_here_is_not_checked(kind):
    made = tool(Convert(amount={"type": kind, "description": "x", "nullable": True}))
    assert made.bind({"amount": [1]}) == {"amount": [1]}


def test_control_its_class_is_taken_as_a_function():
    with pytest.raises(InvalidArgument, match="cannot be given by a name"):
        tool(Convert)

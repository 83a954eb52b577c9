"""Requests for input of one cell."""

import pytest
from sandfleet_executor.core.contexts.frames import Prompted
from sandfleet_executor.core.executions.events import InputRequest
from sandfleet_executor.effects.executions.inputs import InputNotAskedError, Inputs


@pytest.fixture
def said():
    """What readers are told, and what the interpreter is sent."""
    return [], []


@pytest.fixture
def inputs(said):
    return Inputs(said[0].append, said[1].append, taken=True)


def test_each_request_has_one_answer(inputs, said):
    inputs.ask(Prompted("a", "who? ", password=False))
    with pytest.raises(InputNotAskedError):
        inputs.answer("2", "x")
    assert not inputs.answer("1", "ann")
    with pytest.raises(InputNotAskedError):
        inputs.answer("1", "bob")
    assert said == (
        [InputRequest("1", "who? "), InputRequest("1", settled=True)],
        [{"op": "input", "id": "a", "text": "ann"}],
    )


def test_a_refusal_has_no_text_and_a_password_is_said_to_be_one(inputs, said):
    inputs.ask(Prompted("a", "", password=False))
    assert not inputs.answer("1", None)
    inputs.ask(Prompted("b", "word", password=True))
    assert inputs.answer("2", "secret")
    assert said[1] == [{"op": "input", "id": "a", "text": None}, {"op": "input", "id": "b", "text": "secret"}]


def test_code_that_asks_again_waits_for_the_earlier_line_no_longer(inputs, said):
    inputs.ask(Prompted("a", "", password=False))
    inputs.ask(Prompted("b", "", password=False))
    with pytest.raises(InputNotAskedError):
        inputs.answer("1", "x")
    assert [(each.input_id, each.settled) for each in said[0]] == [("1", False), ("1", True), ("2", False)]


def test_a_cell_whose_caller_answers_none_is_refused_at_once(said):
    inputs = Inputs(said[0].append, said[1].append, taken=False)
    inputs.ask(Prompted("a", "who? ", password=False))
    assert said == ([], [{"op": "input", "id": "a", "text": None}])
    with pytest.raises(InputNotAskedError):
        inputs.answer("1", "x")

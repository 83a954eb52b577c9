"""Requests for input of one cell."""

import pytest
from sandfleet_executor.core.contexts.frames import Prompted
from sandfleet_executor.core.executions.events import InputRequest
from sandfleet_executor.effects.contexts.inputs import Inputs
from sandfleet_executor.effects.executions.execution import Execution, Unrecorded


class Kept(Unrecorded):
    def __init__(self):
        self.events, self.lines = [], []

    def see(self, event):
        self.events.append(event)

    def sent(self, data):
        self.lines.append(data)


@pytest.fixture
async def execution():
    made = Execution("e", 1000)
    made.recording = Kept()
    return made


async def test_each_request_has_one_answer(execution):
    inputs = Inputs(execution, taken=True)
    assert inputs.ask(Prompted("a", "who? ", password=False)) is None
    assert inputs.answer("2", "x") is None
    assert inputs.answer("1", "ann") == {"op": "input", "id": "a", "text": "ann"}
    assert inputs.answer("1", "bob") is None
    assert execution.recording.events == [InputRequest("1", "who? "), InputRequest("1", settled=True)]
    assert execution.recording.lines == [b"ann\n"]


async def test_a_refusal_has_no_text_and_a_password_is_not_recorded(execution):
    inputs = Inputs(execution, taken=True)
    inputs.ask(Prompted("a", "", password=False))
    assert inputs.answer("1", None) == {"op": "input", "id": "a", "text": None}
    inputs.ask(Prompted("b", "word", password=True))
    assert inputs.answer("2", "secret") == {"op": "input", "id": "b", "text": "secret"}
    assert execution.recording.lines == []


async def test_code_that_asks_again_waits_for_the_earlier_line_no_longer(execution):
    inputs = Inputs(execution, taken=True)
    inputs.ask(Prompted("a", "", password=False))
    inputs.ask(Prompted("b", "", password=False))
    assert inputs.answer("1", "x") is None
    assert [(each.input_id, each.settled) for each in execution.recording.events] == [
        ("1", False),
        ("1", True),
        ("2", False),
    ]


async def test_a_cell_whose_caller_answers_none_is_refused_at_once(execution):
    inputs = Inputs(execution, taken=False)
    assert inputs.ask(Prompted("a", "who? ", password=False)) == {"op": "input", "id": "a", "text": None}
    assert (inputs.answer("1", "x"), execution.recording.events) == (None, [])

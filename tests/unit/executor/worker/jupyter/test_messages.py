"""What a Jupyter kernel says of a cell, as frames and output."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sandfleet_executor.worker.jupyter import messages
from sandfleet_executor.worker.jupyter.messages import Cell, Clear, Shown, Text


def said(kind, content, parent="cell"):
    return {"msg_type": kind, "parent_header": {"msg_id": parent}, "content": content}


IDLE = said("status", {"execution_state": "idle"})
OK = said("execute_reply", {"status": "ok"})


def played(*story):
    cell = Cell("cell")
    return cell, [each for message in story for each in cell.take(message)]


def test_a_cell_is_over_when_its_reply_and_its_end_are_there_in_either_order():
    for story in ([OK, IDLE], [IDLE, OK]):
        cell, _ = played(story[0])
        assert not cell.over
        list(cell.take(story[1]))
        assert cell.over
        assert cell.end(interrupted=False) == ("ok", None)


def test_streams_results_and_clears_come_in_their_order():
    _, found = played(
        said("stream", {"name": "stdout", "text": "a"}),
        said("stream", {"name": "stderr", "text": "\ud800"}),
        said("execute_result", {"data": {"text/plain": "2"}}),
        said("clear_output", {"wait": True}),
        said("display_data", {"data": {"image/png": "iVA="}}),
    )
    assert found == [
        Text(1, b"a"),
        Text(2, b"\\ud800"),
        Shown({"event": "result", "main": True, "parts": [{"mime": "text/plain", "size": 1}], "dropped": 0}, b"2"),
        Clear(wait=True),
        Shown({"event": "result", "main": False, "parts": [{"mime": "image/png", "size": 2}], "dropped": 0}, b"\x89P"),
    ]


def test_an_update_names_what_it_replaces_and_is_not_counted_again():
    shown = {"data": {}, "transient": {"display_id": 7}}
    many = [said("update_display_data", shown)] * (messages.MAX_RESULTS + 5)
    cell, found = played(said("display_data", shown), *many)
    assert {(each.header["display_id"], each.header["update"]) for each in found[1:]} == {("7", True)}
    assert (len(found), cell.left_out) == (messages.MAX_RESULTS + 6, 0)


def test_results_and_widgets_above_what_is_taken_are_counted():
    cell, found = played(
        *[said("display_data", {"data": {"text/plain": "x"}})] * (messages.MAX_RESULTS + 3),
        *[said("comm_msg", {})] * 2,
    )
    assert len(found) == messages.MAX_RESULTS
    assert cell.notes() == [
        "3 results dropped: the limit is 1000 a cell",
        "2 messages of widgets dropped: there is no front end",
    ]


@pytest.mark.parametrize(
    ("content", "interrupted", "status", "name"),
    [
        ({"status": "error", "ename": "E", "evalue": "v", "traceback": ["\x1b[31mE\x1b[0m", "v"]}, False, "error", "E"),
        ({"status": "error", "ename": "E"}, True, "interrupted", "Interrupted"),
        ({"status": "aborted"}, False, "error", "Aborted"),
        ({"status": "error", "ename": 3, "traceback": 3}, False, "error", "3"),
    ],
)
def test_a_cell_that_fails_has_an_error(content, interrupted, status, name):
    cell, _ = played(said("execute_reply", content), IDLE)
    found, error = cell.end(interrupted=interrupted)
    assert (found, error["name"]) == (status, name)
    assert "\x1b" not in error["traceback"]


def test_help_that_a_pager_would_show_is_a_result():
    pages = [{"source": "page", "data": {"text/plain": "help"}}, {"source": "set_next_input"}, 3]
    _, found = played(said("execute_reply", {"status": "ok", "payload": pages}))
    assert [each.payload for each in found] == [b"help"]


def test_messages_of_other_cells_are_dropped():
    cell, found = played(*[{**each, "parent_header": {"msg_id": "earlier"}} for each in (OK, IDLE)])
    assert (found, cell.over, cell.begun) == ([], False, False)


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
NAMES = st.sampled_from(
    ["name", "text", "data", "transient", "status", "ename", "evalue", "traceback", "payload", "wait"]
)
KINDS = st.sampled_from(
    [
        "stream",
        "execute_result",
        "display_data",
        "update_display_data",
        "error",
        "execute_reply",
        "status",
        "clear_output",
    ]
)


@given(KINDS, st.dictionaries(NAMES, ANYTHING) | ANYTHING)
def test_whatever_a_kernel_says_becomes_frames_that_json_has(kind, content):
    cell, found = played(said(kind, content))
    _, error = cell.end(interrupted=False)
    for each in found:
        if isinstance(each, Shown):
            json.dumps(each.header)
            assert sum(part["size"] for part in each.header["parts"]) == len(each.payload)
    if error:
        messages.report(error)


@pytest.mark.parametrize(
    ("message", "asked"),
    [
        (said("input_request", {"prompt": "who? ", "password": True}), ("who? ", True)),
        (said("input_request", {"prompt": "\x1b[1mwho?\x1b[0m", "password": "yes"}), ("who?", False)),
        (said("input_request", {"prompt": "x" * 9000}), ("x" * messages.MAX_PROMPT_CHARACTERS, False)),
        (said("input_request", {}), ("", False)),
        (said("input_request", None), ("", False)),
        (said("input_request", {"prompt": "?"}, parent="other"), None),
        (said("stream", {"prompt": "?"}), None),
        ({"content": {}}, None),
    ],
)
def test_a_request_for_input_of_the_cell_has_a_prompt(message, asked):
    assert Cell("cell").asks(message) == asked


@pytest.mark.parametrize("rest", [[OK], [said("execute_reply", {"status": "error", "ename": "KeyboardInterrupt"})]])
def test_a_refused_input_is_the_error_of_its_cell(rest):
    cell = Cell("cell")
    cell.refuse("who? ")
    for each in rest:
        list(cell.take(each))
    status, error = cell.end(interrupted=False)
    assert (status, error["name"]) == ("error", "StdinNotAvailable")
    assert error["value"] == "cannot read input at 'who? ': the caller of this cell gives none"

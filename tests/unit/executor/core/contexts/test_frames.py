"""What an interpreter says is checked: it runs user code."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sandfleet_executor.core.contexts.frames import MAX_FRAMES, MAX_PARTS, MAX_TEXT, MAX_VALUE, BadFrame, Done, parse
from sandfleet_executor.core.executions.events import Error, Frame, Result
from sandfleet_executor.servicers.convert import common as convert

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
FIELDS = [
    "main",
    "parts",
    "dropped",
    "name",
    "value",
    "traceback",
    "frames",
    "status",
    "cpu",
    "peak",
    "written",
    "exit_code",
    "mime",
    "size",
    "line",
]
HEADERS = st.dictionaries(st.sampled_from(FIELDS), JSON).flatmap(
    lambda rest: st.sampled_from(["result", "error", "done", "other", 1, None]).map(
        lambda event: {"event": event, **rest}
    )
)


def result(parts=(), dropped=0, main=True):
    return {"event": "result", "main": main, "parts": [{"mime": m, "size": s} for m, s in parts], "dropped": dropped}


def error(**change):
    good = {"event": "error", "name": "ValueError", "value": "v", "traceback": "t", "frames": []}
    return {**good, **change}


def test_a_result_s_parts_are_cut_from_the_payload():
    said = parse(result([("text/plain", 2), ("image/png", 3)], dropped=7), b"ab\x00\x01\x02")
    assert said == Result((("text/plain", b"ab"), ("image/png", b"\x00\x01\x02")), is_main=True, dropped_bytes=7)


def test_an_error_has_its_frames():
    frames = [{"file": "<cell 1>", "line": 3, "function": "f", "source": "x"}]
    assert parse(error(frames=frames), b"") == Error("ValueError", "v", "t", (Frame("<cell 1>", 3, "f", "x"),))


@pytest.mark.parametrize(
    ("status", "said", "taken"), [("error", 0, 0), ("error", 255, 255), ("ok", 3, 0), ("interrupted", 3, 0)]
)
def test_only_a_cell_that_failed_has_an_exit_code(status, said, taken):
    assert (
        parse({"event": "done", "status": status, "cpu": 0, "peak": 0, "written": 0, "exit_code": said}, b"").exit_code
        == taken
    )


@pytest.mark.parametrize("code", [-1, 256, 1.5, True, "1", None])
def test_an_invalid_exit_code_is_refused(code):
    with pytest.raises(BadFrame):
        parse({"event": "done", "status": "error", "cpu": 0, "peak": 0, "written": 0, "exit_code": code}, b"")


def test_the_end_has_its_figures():
    assert parse({"event": "done", "status": "ok", "cpu": 1, "peak": 5, "written": 7}, b"") == Done("ok", 1.0, 5, 7)


@pytest.mark.parametrize(
    ("header", "payload"),
    [
        ({}, b""),
        ({"event": "root"}, b""),
        ({"event": ["done"]}, b""),
        ({"event": "done"}, b""),
        ({"event": "done", "status": "great", "cpu": 0, "peak": 0, "written": 0}, b""),
        ({"event": "done", "status": ["ok"], "cpu": 0, "peak": 0, "written": 0}, b""),
        ({"event": "done", "status": "ok", "cpu": -1, "peak": 0, "written": 0}, b""),
        ({"event": "done", "status": "ok", "cpu": float("nan"), "peak": 0, "written": 0}, b""),
        ({"event": "done", "status": "ok", "cpu": float("inf"), "peak": 0, "written": 0}, b""),
        ({"event": "done", "status": "ok", "cpu": 10**400, "peak": 0, "written": 0}, b""),
        ({"event": "done", "status": "ok", "cpu": None, "peak": 0, "written": 0}, b""),
        ({"event": "done", "status": "ok", "cpu": 0, "peak": -1, "written": 0}, b""),
        ({"event": "done", "status": "ok", "cpu": 0, "peak": 0, "written": -1}, b""),
        ({"event": "done", "status": "ok", "cpu": 0, "peak": 0}, b""),
        ({"event": "done", "status": "ok", "cpu": 0, "peak": 1 << 64, "written": 0}, b""),
        ({"event": "done", "status": "ok", "cpu": 0, "peak": 1.5, "written": 0}, b""),
        (result([("a/b", 5)]), b"abcd"),
        (result([("a/b", -1)]), b"abcd"),
        (result([("a/b", "1")]), b"abcd"),
        (result([(3, 1)]), b"abcd"),
        (result(dropped=-1), b""),
        ({"event": "result", "main": True, "parts": "abc", "dropped": 0}, b""),
        ({"event": "result", "main": True, "parts": None, "dropped": 0}, b""),
        (error(name=3), b""),
        (error(value=None), b""),
        (error(frames=[1]), b""),
        (error(frames=[{"file": "f", "line": 1 << 40, "function": "f", "source": ""}]), b""),
        (error(frames={"a": 1}), b""),
    ],
)
def test_an_invalid_frame_is_refused(header, payload):
    with pytest.raises(BadFrame, match=r"^cannot read"):
        parse(header, payload)


@given(header=HEADERS | st.dictionaries(st.text(max_size=8), JSON), payload=st.binary(max_size=20))
def test_any_json_is_a_bad_frame_or_a_value_that_fits_the_api(header, payload):
    try:
        said = parse(json.loads(json.dumps(header)), payload)
    except BadFrame:
        return
    if not isinstance(said, Done):
        convert.event(1, said).SerializeToString()


@given(text=st.text(st.characters(), max_size=20))
def test_any_text_fits_the_api_lone_surrogates_too(text):
    said = parse(error(name=text, value=text, traceback=text), b"")
    convert.event(1, said).SerializeToString()


def test_everything_is_bounded():
    assert len(parse(result([("a/b", 0)] * 1000), b"").parts) == MAX_PARTS
    frame = {"file": "f", "line": 1, "function": "f", "source": ""}
    long = parse(error(value="x" * (MAX_TEXT + 1), frames=[frame] * 1000), b"")
    assert (len(long.value), len(long.frames)) == (MAX_TEXT, MAX_FRAMES)
    assert len(parse(error(), b"x" * (MAX_VALUE + 1)).value) == MAX_VALUE


def test_a_value_may_come_as_payload_with_the_count_of_what_is_missing():
    said = parse(error(value="", left_out=7), b"va\xfflue")
    assert (said.value, said.left_out) == ("va\ufffdlue", 7)
    with pytest.raises(BadFrame):
        parse(error(left_out=-1), b"")

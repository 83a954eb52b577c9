"""Frames on a stream socket."""

import socket
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sandfleet_executor.worker.base import frames
from sandfleet_executor.worker.base.frames import Frame, FrameError

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@pytest.fixture
def pair():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


@given(header=st.dictionaries(st.text(max_size=10), JSON, max_size=5), payload=st.binary(max_size=300))
def test_frames_arrive_as_sent(header, payload):
    ours, theirs = socket.socketpair()
    with ours, theirs:
        frames.send(ours, header, payload)
        assert frames.receive(theirs) == Frame(header, payload)


@given(data=st.binary(max_size=200))
def test_any_bytes_give_a_frame_the_end_or_a_frame_error(data):
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.sendall(data)
        ours.close()
        try:
            frame = frames.receive(theirs)
        except FrameError:
            return
        assert frame is None or isinstance(frame.header, dict)


@given(text=st.binary(max_size=60))
def test_any_header_gives_an_object_or_a_frame_error(text):
    try:
        assert isinstance(frames.decode_header(text), dict)
    except FrameError as error:
        assert str(error).startswith("cannot read a frame")


def test_lone_surrogates_survive_a_frame(pair):
    ours, theirs = pair
    frames.send(ours, {"a": "\ud800"})
    assert frames.receive(theirs).header == {"a": "\ud800"}


def test_frames_that_arrive_in_pieces_are_put_together(pair):
    ours, theirs = pair
    data = frames.encode({"a": 1}, b"x" * 100)

    def drip():
        for byte in data:
            ours.send(bytes([byte]))

    sender = threading.Thread(target=drip)
    sender.start()
    assert frames.receive(theirs) == Frame({"a": 1}, b"x" * 100)
    sender.join()


def test_a_prefix_that_was_read_in_part_is_completed(pair):
    ours, theirs = pair
    frames.send(ours, {"a": 1}, b"x")
    begun = theirs.recv(3)
    assert frames.receive_after(theirs, begun) == Frame({"a": 1}, b"x")


@pytest.mark.parametrize("cut", [0, 1, 7, 8, 10])
def test_a_stream_that_ends_inside_a_frame_has_ended(pair, cut):
    ours, theirs = pair
    ours.sendall(frames.encode({"a": 1}, b"xyz")[:cut])
    ours.close()
    assert frames.receive(theirs) is None


@pytest.mark.parametrize(
    "sizes", [(frames.MAX_HEADER_BYTES + 1, 0), (0, frames.MAX_PAYLOAD_BYTES + 1), (2**32 - 1, 2**32 - 1)]
)
def test_sizes_above_the_limit_are_refused_before_reading(pair, sizes):
    ours, theirs = pair
    ours.sendall(frames.PREFIX.pack(*sizes))
    with pytest.raises(FrameError, match="the limit is"):
        frames.receive(theirs)


def test_frames_above_the_limit_are_not_sent():
    frames.encode({}, bytes(frames.MAX_PAYLOAD_BYTES))
    with pytest.raises(FrameError):
        frames.encode({}, bytes(frames.MAX_PAYLOAD_BYTES + 1))
    with pytest.raises(FrameError):
        frames.encode({"a": "x" * frames.MAX_HEADER_BYTES})


@pytest.mark.parametrize("text", [b"", b"1", b"[]", b"null", b'"a"', b"{", b"\xff", b"[" * 100_000, b'{"a":' * 100_000])
def test_headers_other_than_objects_are_refused(text):
    with pytest.raises(FrameError, match="cannot read a frame"):
        frames.decode_header(text)


@given(st.lists(st.binary(max_size=8), max_size=8))
def test_parts_that_were_joined_are_split_again(parts):
    assert frames.split(*frames.joined(parts)) == parts


@pytest.mark.parametrize("sizes", [[2], [4], [-1, 4], [True, 2], ["3"], [1.0, 2], []])
def test_sizes_that_are_not_the_payload_s_are_refused(sizes):
    with pytest.raises(FrameError, match="sizes are wrong"):
        frames.split(sizes, b"abc")

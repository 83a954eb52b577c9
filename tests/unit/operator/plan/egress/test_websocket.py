"""Frames of WebSocket, in whatever pieces they come."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sandfleet_operator.plan.egress.websocket import Frames, NoFrameError


def frame(payload, *, is_client):
    size = len(payload)
    mask = 0x80 if is_client else 0
    if size < 126:
        length = bytes([mask | size])
    elif size < 1 << 16:
        length = bytes([mask | 126]) + size.to_bytes(2)
    else:
        length = bytes([mask | 127]) + size.to_bytes(8)
    return b"\x82" + length + (b"mask" if is_client else b"") + payload


@given(
    sizes=st.lists(st.sampled_from([0, 1, 125, 126, 300, 70_000]), min_size=1, max_size=4),
    steps=st.lists(st.integers(1, 40), min_size=1, max_size=30),
    is_client=st.booleans(),
)
def test_the_end_of_a_frame_is_found_however_its_bytes_come(sizes, steps, is_client):
    follower = Frames(is_client=is_client)
    frames = [frame(bytes(size), is_client=is_client) for size in sizes]
    ends = {sum(map(len, frames[: number + 1])) for number in range(len(frames))}
    data, at = b"".join(frames), 0
    for step in [*steps, len(data)]:
        follower.follow(data[at : at + step])
        at = min(at + step, len(data))
        assert follower.is_between is (at in ends)


@pytest.mark.parametrize("data", [b"GET / HTTP/1.1\r\n", b"\x81\x05", b"\xc1\x85", b"\x83\x85", b"\x16\x03\x01"])
def test_what_is_no_frame_of_a_client_is_refused(data):
    with pytest.raises(NoFrameError):
        Frames(is_client=True).follow(data)

"""Streams of tables: where they end, and what is handed on of one that breaks."""

import asyncio
import contextlib

import grpc
import pytest
from sandfleet_api.executor.v1 import interpreter_pb2 as pb
from sandfleet_executor.core.contexts.tables import Table
from sandfleet_executor.servicers.errors import ApiError
from sandfleet_executor.servicers.tables import PIECES, flowing, pieces

Request = pb.PutTableRequest


def data(*parts):
    return [Request(data=part) for part in parts]


def end(size):
    return Request(end=pb.PutTableEnd(size=size))


async def handed_on(requests, most=100):
    """What comes out, and the error at its end."""

    async def stream():
        for request in requests:
            yield request

    found = []
    try:
        async for piece in pieces(stream(), most):
            found.append(piece)
    except ApiError as error:
        return found, error
    return found, None


async def test_a_whole_stream_is_handed_on():
    assert await handed_on([*data(b"ab", b"", b"c"), end(3)]) == ([b"ab", b"c"], None)
    # What comes after the end is not looked at.
    assert await handed_on([*data(b"ab"), end(2), *data(b"c")]) == ([b"ab"], None)


@pytest.mark.parametrize(
    ("requests", "status", "reason"),
    [
        ([], grpc.StatusCode.CANCELLED, "StreamBroken"),
        (data(b"ab", b"c"), grpc.StatusCode.CANCELLED, "StreamBroken"),
        ([*data(b"ab", b"c"), end(2)], grpc.StatusCode.INVALID_ARGUMENT, "InvalidStream"),
        ([*data(b"ab", b"c"), Request(header=pb.PutTableHeader())], grpc.StatusCode.INVALID_ARGUMENT, "InvalidStream"),
        ([*data(b"ab", b"c"), Request()], grpc.StatusCode.INVALID_ARGUMENT, "InvalidStream"),
        (data(b"ab", b"x" * 100), grpc.StatusCode.RESOURCE_EXHAUSTED, "TooLarge"),
    ],
)
async def test_a_stream_that_breaks_never_gives_its_last_piece(requests, status, reason):
    found, error = await handed_on(requests)
    assert (error.status, error.reason) == (status, reason)
    assert found in ([], [b"ab"])


async def test_pieces_flow_as_fast_as_they_are_taken_and_no_faster():
    made = []

    async def work(hand):
        await hand(Table("pandas", 1, 1, 1))
        for number in range(100):
            made.append(number)
            await hand(bytes([number]))

    found = []
    async for piece in flowing(work):
        found.append(piece)
        await asyncio.sleep(0)
        # One is being handed over, and one has just been made.
        assert len(made) <= len(found) + PIECES + 1
    assert found == [Table("pandas", 1, 1, 1), *(bytes([each]) for each in range(100))]


async def test_what_fails_is_raised_after_what_came_before_it():
    async def work(hand):
        await hand(b"a")
        raise ApiError(grpc.StatusCode.ABORTED, "NoAnswer", "no")

    found = []
    with pytest.raises(ApiError):
        async for piece in flowing(work):
            found.append(piece)
    assert found == [b"a"]


async def test_a_reader_that_goes_away_ends_the_work():
    ended = asyncio.Event()

    async def work(hand):
        try:
            while True:
                await hand(b"a")
        finally:
            ended.set()

    async with contextlib.aclosing(flowing(work)) as flow:
        assert await anext(flow) == b"a"
    assert ended.is_set()

"""What a tunnel sends is what protobuf would write, in pieces that stay within a budget."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from sandfleet_api.fleet.v1 import gateway_pb2 as pb
from sandfleet_operator.fleet.gateway.messages import data_response
from sandfleet_operator.fleet.gateway.tunnels import ALL_PIECES, LARGEST_PIECE, SMALLEST_PIECE, piece_bytes


@given(data=st.binary(min_size=1) | st.integers(1, LARGEST_PIECE).map(bytes))
@example(data=b"x" * 127)
@example(data=b"x" * 128)
@example(data=b"x" * 16_384)
@example(data=b"x" * LARGEST_PIECE)
def test_a_response_with_data_is_written_as_protobuf_writes_it(data):
    assert data_response(memoryview(data)) == pb.TunnelResponse(data=data).SerializeToString()


@given(tunnels=st.integers(0, 10**6))
def test_pieces_are_large_for_few_tunnels_and_share_a_budget_for_many(tunnels):
    piece = piece_bytes(tunnels)
    assert SMALLEST_PIECE <= piece <= LARGEST_PIECE
    assert piece * tunnels <= ALL_PIECES or piece == SMALLEST_PIECE


@pytest.mark.parametrize(("tunnels", "piece"), [(1, 512 << 10), (128, 512 << 10), (256, 256 << 10), (1000, 67_108)])
def test_a_piece_of_so_many_tunnels_is(tunnels, piece):
    assert piece_bytes(tunnels) == piece

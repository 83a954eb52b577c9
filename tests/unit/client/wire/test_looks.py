"""Completions and inspections, as the client has them."""

import pytest
from sandfleet._wire.convert import looks
from sandfleet.values.execution import Completion, Inspection
from sandfleet_api.executor.v1 import common_pb2
from sandfleet_api.executor.v1 import interpreter_pb2 as pb


@pytest.mark.parametrize(
    ("start", "end", "span"), [(2, 5, (2, 5)), (7, 9, (5, 5)), (4, 3, (3, 3)), (2**32 - 1, 2**32 - 1, (5, 5))]
)
def test_a_completion_lies_within_the_code_whatever_an_executor_says(start, end, span):
    answer = pb.CompleteResponse(matches=[".path"], cursor_start=start, cursor_end=end, omitted=3)
    assert looks.completion(answer, "os.pa") == Completion((".path",), *span, 3)


def test_an_inspection_is_text_by_its_type_and_false_where_nothing_was_found():
    part = common_pb2.MimePart(mime_type="text/plain", data=b"\xffsaid")
    found = looks.inspection(pb.InspectResponse(found=True, parts=[part] * 20))
    assert found == Inspection(found=True, parts={"text/plain": "\ufffdsaid"})
    assert (found.text, bool(found)) == ("\ufffdsaid", True)
    assert not looks.inspection(pb.InspectResponse())

"""Where there is no RE2 a search is refused with its reason, and nothing else is."""

import grpc
import pytest
from sandfleet_executor.effects import finding
from sandfleet_executor.servicers.errors import ApiError
from sandfleet_executor.servicers.fileerrors import translated


def test_a_search_says_what_is_missing(monkeypatch):
    monkeypatch.setattr(finding, "re2", None)
    with pytest.raises(ApiError) as caught, translated("search", b"."):
        finding._compile(b"x", regex=False, ignore_case=False)
    assert (caught.value.status, caught.value.reason) == (grpc.StatusCode.FAILED_PRECONDITION, "SearchUnavailable")


def test_control_with_it_a_pattern_is_made():
    with translated("search", b"."):
        assert finding._compile(b"x", regex=False, ignore_case=False)

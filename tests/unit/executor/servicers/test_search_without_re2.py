"""Where there is no RE2 a search is refused with its reason, and nothing else is."""

import grpc
import pytest
from sandfleet_executor.effects.files import search
from sandfleet_executor.servicers.errors import ApiError, translated


def test_a_search_says_what_is_missing(monkeypatch):
    monkeypatch.setattr(search, "re2", None)
    with pytest.raises(ApiError) as caught, translated("search", b"."):
        search._compile(b"x", regex=False, ignore_case=False)
    assert (caught.value.status, caught.value.reason) == (grpc.StatusCode.FAILED_PRECONDITION, "SearchUnavailable")


def test_control_with_it_a_pattern_is_made():
    with translated("search", b"."):
        assert search._compile(b"x", regex=False, ignore_case=False)

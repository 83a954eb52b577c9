"""Enums of the API have their values in Python by name."""

import pytest
from sandfleet import values
from sandfleet._wire.convert import enums
from sandfleet_api.executor.v1 import common_pb2, filesystem_pb2, interpreter_pb2, service_pb2, session_pb2
from sandfleet_api.fleet.v1 import fleet_pb2

# What the API calls unspecified, for some a value of their own.
MEMBERS = [
    (common_pb2.Outcome, values.Outcome, set()),
    (common_pb2.Blame, values.Blame, set()),
    (common_pb2.Stream, values.Stream, set()),
    (session_pb2.Isolation, values.Isolation, {values.Isolation.UNKNOWN}),
    (filesystem_pb2.FileType, values.FileType, set()),
    (filesystem_pb2.FileEventType, values.FileEventType, set()),
    (service_pb2.ServiceState, values.ServiceState, {values.ServiceState.UNKNOWN}),
    (fleet_pb2.EgressState, values.EgressState, {values.EgressState.UNKNOWN}),
    (interpreter_pb2.OnFailure, values.OnFailure, set()),
]


@pytest.mark.parametrize(("wire", "python", "unspecified"), MEMBERS)
def test_every_value_of_the_api_has_its_python_value_by_name(wire, python, unspecified) -> None:
    found = enums.values_of(wire, python)
    assert found.keys() == {number for number in wire.values() if number}
    assert set(found.values()) == set(python) - unspecified
    for number, member in found.items():
        assert wire.Name(number).endswith(f"_{member.name}")


WORDS = [
    (interpreter_pb2.ContextState, ["idle", "busy", "ended"]),
    (session_pb2.InstallState, ["waiting", "installing", "installed", "failed", "not-needed"]),
    (session_pb2.PackageOrigin, ["image", "workspace"]),
    (fleet_pb2.Egress, ["none", "template"]),
    (fleet_pb2.SandboxState, ["starting", "warm", "claimed", "recovering", "ended", "suspended"]),
    (service_pb2.RestartPolicy, ["always", "on-failure", "never"]),
    (filesystem_pb2.SearchStop, ["matches", "time", "size"]),
]


@pytest.mark.parametrize(("wire", "words"), WORDS)
def test_words_of_the_api_stay_what_callers_compare_them_with(wire, words) -> None:
    assert enums.words_of(wire) == dict(enumerate(words, start=1))
    assert enums.numbers_of(wire) == {word: number for number, word in enums.words_of(wire).items()}


def test_reasons_of_the_api_are_camel_case() -> None:
    assert list(enums.reasons_of(filesystem_pb2.ExtractStop).values()) == [
        "InvalidArchive",
        "Truncated",
        "TooManyEntries",
        "TooLarge",
        "CompressionRatio",
        "NoSpace",
    ]

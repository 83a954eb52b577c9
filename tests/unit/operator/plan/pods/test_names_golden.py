"""Names, labels and annotations on stored objects are the same as in an earlier release."""

import json
from pathlib import Path

import pytest
from sandfleet_operator.plan.pods import names

GOLDEN = json.loads((Path(__file__).parent / "golden" / "names.json").read_text())


@pytest.mark.parametrize("function", ["bounded", "class_policy", "own_policy", "workspace_claim_name"])
def test_names_are_those_of_an_earlier_release(function: str) -> None:
    assert {name: getattr(names, function)(name) for name in GOLDEN[function]} == GOLDEN[function]


def test_session_ids_are_those_of_an_earlier_release() -> None:
    assert {name: names.session_id("team-a", name) for name in GOLDEN["session_id"]} == GOLDEN["session_id"]


def test_labels_and_annotations_are_those_of_an_earlier_release() -> None:
    found = {name: getattr(names, name) for name in GOLDEN["constants"]}
    assert {**found, "OWN_LABELS": sorted(found["OWN_LABELS"])} == GOLDEN["constants"]

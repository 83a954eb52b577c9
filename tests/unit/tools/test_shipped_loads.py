"""What the shipped loads come to. A faster engine leaves every wait and share the same.

A change of what the scheduler decides changes these digests: read the new table of `tools/simulate.py` first, then
write the digests that the failures show.
"""

import hashlib
import json
from dataclasses import asdict

import pytest
import yaml
from simulate import shipped, text_of
from simulation.load import read_load, sessions
from simulation.policies import POLICIES
from simulation.replay import replay

RESULTS = {
    ("ci-burst", "fair"): "c2aa5b2b44292c60",
    ("ci-burst", "fifo"): "95c1e99d1c0ed12e",
    ("ci-burst", "priority"): "95c1e99d1c0ed12e",
    ("hostile-tenant", "fair"): "498a09da70549393",
    ("hostile-tenant", "fifo"): "d10596f0ca3737bb",
    ("office-day", "fair"): "715c9afe8d9b600e",
    ("rl-rollout", "fair"): "e1e634b462728d3e",
}


def digest(played):
    """Of all that was recorded, in microseconds."""
    text = json.dumps(asdict(played), sort_keys=True)
    return hashlib.sha256(json.dumps(rounded(json.loads(text))).encode()).hexdigest()[:16]


def rounded(value):
    match value:
        case dict():
            return {key: rounded(one) for key, one in value.items()}
        case list():
            return [rounded(one) for one in value]
        case float():
            return round(value, 6)
        case _:
            return value


def test_each_shipped_load_has_its_result():
    assert sorted(name for name, policy in RESULTS if policy == "fair") == shipped()


@pytest.mark.slow
@pytest.mark.parametrize(("name", "policy"), RESULTS)
def test_a_shipped_load_comes_to_the_same_waits_and_shares(name, policy):
    load = read_load(yaml.safe_load(text_of(name)))
    assert digest(replay(load, sessions(load), POLICIES[policy])) == RESULTS[name, policy]

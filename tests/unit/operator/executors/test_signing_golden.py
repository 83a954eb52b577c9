"""The Secret, published keys and tokens of an earlier release are still read. The keys were made for this test."""

import json
from pathlib import Path

from sandfleet_executor.effects.access.tokens import TokenVerifier
from sandfleet_operator.executors.signing import ca_config_map, read
from sandfleet_operator.plan.pods.podspec import keys_config_map

GOLDEN = json.loads((Path(__file__).parent / "golden" / "signing.json").read_text())
# When the token was issued.
NOW = 1_800_002_000.0


def test_an_earlier_releases_secret_is_read_and_publishes_the_same_keys() -> None:
    material = read(GOLDEN["secret"])
    assert [key.signs_from for key in material.tokens.keys] == [1_800_000_000.0, 1_800_001_300.0]
    published = json.loads(material.public_keys(NOW))["keys"]
    assert material.public_keys(NOW) == read(GOLDEN["secret"]).public_keys(NOW), "a signature is the same each time"
    # Earlier releases published them without.
    for name in ("sandfleet_signature", "sandfleet_end", "sandfleet_dated_signature"):
        assert all(key.pop(name) for key in published)
    assert keys_config_map("team-a", json.dumps({"keys": published})) == GOLDEN["configMap"]
    certificate = material.authority.pem.decode()
    assert ca_config_map("team-a", certificate)["data"] == {"ca.crt": certificate}


def test_an_earlier_releases_token_is_accepted(tmp_path: Path) -> None:
    (tmp_path / "keys.json").write_text(GOLDEN["configMap"]["data"]["keys.json"])
    verified = TokenVerifier(tmp_path / "keys.json", "uid-1", lambda: NOW).verify(GOLDEN["token"], "interpreter")
    assert verified.holder == "h"

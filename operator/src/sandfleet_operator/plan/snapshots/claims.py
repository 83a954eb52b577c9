"""What a session's claim asked for, as text in its snapshot: a fleet that never had the session takes it on with it."""

import json
from dataclasses import asdict, fields
from typing import Any

from sandfleet_operator.api.limits import Limits
from sandfleet_operator.api.values import Claim, Isolation, RequestKey
from sandfleet_operator.plan.snapshots.errors import corrupt

# Beside limits, isolation and labels. What names a place, a gang or a trace is of the old claim alone.
KEPT = (
    "envs",
    "mounts",
    "lease",
    "idle_timeout",
    "queue",
    "priority",
    "egress",
    "egress_names",
    "keep_workspace",
    "on_idle",
    "on_timeout",
    "snapshot_period",
)


def encode_claim(claim: Claim) -> str:
    said = {name: _plain(getattr(claim, name)) for name in KEPT}
    # A snapshot may be taken on elsewhere, and names no folders of the machine there.
    said["mounts"] = {path: folder for path, folder in claim.mounts.items() if not folder.startswith("/")}
    return json.dumps({**said, "isolation": claim.min_isolation.name, "limits": asdict(claim.limits)})


def decode_claim(text: str, *, key: RequestKey, contract: str, labels: dict[str, str]) -> Claim:
    """The claim of a session that is taken on. Empty text: of a snapshot that keeps none. Raises SnapshotError."""
    try:
        said: dict[str, Any] = json.loads(text) if text else {}
        isolation = Isolation[said.pop("isolation", Isolation.NAMESPACE.name)]
        wanted = said.pop("limits", {})
        limits = Limits(**{one.name: wanted[one.name] for one in fields(Limits) if one.name in wanted})
        kept = {name: said[name] for name in KEPT if name in said}
        kept["egress_names"] = tuple(map(str, kept.get("egress_names", ())))
        return Claim(
            key=key, pool=key.pool, contract=contract, labels=labels, limits=limits, min_isolation=isolation, **kept
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise corrupt("what it says of its claim is none") from error


def _plain(value: Any) -> Any:
    return dict(value) if isinstance(value, dict) or hasattr(value, "items") else value

"""Reviews of the sandboxes of this machine: which they are, and who may answer."""

import hmac
import secrets
from pathlib import Path

from sandfleet_operator.api.values import Sandbox, State
from sandfleet_operator.cluster.reviews import Caller
from sandfleet_operator.executors.client import Executors
from sandfleet_operator.executors.reviews import local_way
from sandfleet_operator.fleet import convert
from sandfleet_operator.fleet.reviews.board import Reviewed
from sandfleet_operator.plan.reviews.reasons import ReviewReason
from sandfleet_operator.plan.scheduler.inventory import Inventory

# The name that reviewers of this machine have, and the file with their token.
REVIEWER = "reviewer"
TOKEN_FILE = "reviewer.token"  # noqa: S105 - the file's name


class ReviewerToken:
    """The token of this machine's reviewers. It is another than any agent's, and is in a file of the fleet's owner."""

    def __init__(self, directory: Path) -> None:
        """Raises OSError."""
        self._token = secrets.token_urlsafe(32)
        path = directory / TOKEN_FILE
        path.touch(mode=0o600)
        path.write_text(self._token, encoding="ascii")

    def is_held(self, token: str) -> bool:
        return hmac.compare_digest(token.encode(), self._token.encode())


class LocalReviewed:
    def __init__(self, inventory: Inventory, executors: Executors) -> None:
        self._inventory = inventory
        self._executors = executors

    def find(self, sandbox_id: str) -> Reviewed | None:
        sandbox = self._inventory.get(sandbox_id)
        return None if sandbox is None or sandbox.state is State.ENDED else self._reviewed(sandbox)

    def _reviewed(self, sandbox: Sandbox) -> Reviewed:
        return Reviewed(
            sandbox_id=sandbox.sandbox_id,
            holder=sandbox.claim.key.holder if sandbox.claim else "",
            lease_expires=convert.sandbox_message(sandbox).lease_expires,
            way=local_way(self._executors, sandbox),
        )


def check_reviewer(caller: Caller) -> None:
    """Raises FleetError."""
    if caller.username != REVIEWER:
        why = "the caller has not shown the token of this machine's reviewers"
        raise ReviewReason.NOT_REVIEWER.error(f"cannot review: {why}")

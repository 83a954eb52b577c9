"""Reviews of the sandboxes of this machine: which they are, and who may answer."""

import hmac
import secrets
from collections.abc import Sequence
from pathlib import Path

from sandfleet_operator.api.kinds.template import ReviewRule
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
# What sets a reviewer apart from a user of this machine of the same name.
TOKEN_HOLDER = "reviewer"  # noqa: S105 - a word


class ReviewerTokens:
    """The tokens of this machine's reviewers, each in a file of the fleet's owner. They are no agent's."""

    def __init__(self, directory: Path, names: Sequence[str] = ()) -> None:
        """`names`: reviewers that are told apart; without any there is one. Raises OSError."""
        self._held = {name: secrets.token_urlsafe(32) for name in names or (REVIEWER,)}
        for name, token in self._held.items():
            path = directory / (f"reviewer-{name}.token" if names else TOKEN_FILE)
            path.touch(mode=0o600)
            path.write_text(token, encoding="ascii")

    def holder(self, token: str) -> str:
        """The reviewer who holds the token; empty: none does."""
        return next(
            (name for name, held in self._held.items() if hmac.compare_digest(token.encode(), held.encode())), ""
        )

    def has(self, caller: Caller) -> bool:
        """Whether the caller has shown the token of a reviewer."""
        return caller.uid == TOKEN_HOLDER and caller.username in self._held


class LocalReviewed:
    """`approvals`: how many reviewers have to approve each request; `rules`: which rules approve without them."""

    def __init__(
        self, inventory: Inventory, executors: Executors, approvals: int = 1, rules: Sequence[ReviewRule] = ()
    ) -> None:
        self._inventory = inventory
        self._executors = executors
        self._approvals, self._rules = approvals, rules

    def find(self, sandbox_id: str) -> Reviewed | None:
        sandbox = self._inventory.get(sandbox_id)
        return None if sandbox is None or sandbox.state is State.ENDED else self._reviewed(sandbox)

    def _reviewed(self, sandbox: Sandbox) -> Reviewed:
        return Reviewed(
            sandbox_id=sandbox.sandbox_id,
            holder=sandbox.holder,
            lease_expires=convert.sandbox_message(sandbox).lease_expires,
            way=local_way(self._executors, sandbox),
            approvals=self._approvals,
            rules=self._rules,
        )


def check_reviewer(tokens: ReviewerTokens, caller: Caller) -> None:
    """Raises FleetError."""
    if not tokens.has(caller):
        why = "the caller has not shown the token of one of this machine's reviewers"
        raise ReviewReason.NOT_REVIEWER.error(f"cannot review: {why}")

"""Several approvals of one request: whose count, and for which bytes (pure).

Votes are for the same bytes and for the same state of the sandbox. An edit makes other bytes of the request, so it
takes away the votes for the earlier ones, and is its editor's vote for itself.
"""

import hashlib
from dataclasses import dataclass, replace

from sandfleet_operator.plan.reviews.reasons import ReviewReason

# Approvals that may be demanded.
MAX_APPROVALS = 5


@dataclass(frozen=True, slots=True)
class Vote:
    """What one reviewer has approved. `edit`: what is to run instead; `seen_edit`: the digest of an earlier edit."""

    reviewer: str
    state: int
    edit: bytes = b""
    seen_edit: bytes = b""


@dataclass(frozen=True, slots=True)
class Votes:
    """The approvals that a request has so far. `edit`: what they let run in its place; empty: the request itself."""

    state: int = 0
    edit: bytes = b""
    voters: frozenset[str] = frozenset()

    def cast(self, vote: Vote, state: int) -> "Votes":
        """With one more vote; `state` is the sandbox's now. A second vote of a reviewer counts once.

        Raises FleetError where the reviewer has looked at something else than what would run.
        """
        if vote.state != state:
            raise _changed("the sandbox has let something run since the reviewer looked")
        # Votes for an earlier state are no votes for this one.
        mine = self if self.state == state else Votes(state)
        if vote.edit:
            return Votes(state, vote.edit, frozenset({vote.reviewer}))
        if vote.seen_edit != digest_of(mine.edit):
            raise _changed("another reviewer has edited it since this one looked")
        return replace(mine, voters=mine.voters | {vote.reviewer})


def digest_of(edit: bytes) -> bytes:
    """Of an edit, as reviewers name it; empty where there is none."""
    return hashlib.sha256(edit).digest() if edit else b""


def _changed(why: str) -> Exception:
    return ReviewReason.REVIEW_CHANGED.error(f"cannot answer the review: {why}")

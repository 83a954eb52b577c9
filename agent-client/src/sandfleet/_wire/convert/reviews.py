"""Messages of reviews ↔ values."""

from __future__ import annotations

import hashlib

from sandfleet._wire import api
from sandfleet._wire.convert.common import moment
from sandfleet.values.reviews import Answer, Review


def review(message: api.fleet.Review) -> Review:
    """Read a review."""
    said = message.request
    return Review(
        sandbox_id=message.sandbox_id,
        review_id=said.review_id,
        kind=said.kind,
        content=said.content,
        content_bytes=message.content_bytes,
        settings=said.settings,
        method=said.method,
        context_id=said.context_id,
        execution_id=said.execution_id,
        name=said.name,
        digest=said.digest,
        state=said.state,
        editable=said.editable,
        since=moment(said.since),
        intent=said.intent,
        holder=message.holder,
        approved_before=message.approved_before if message.HasField("approved_before") else None,
        lease_expires=moment(message.lease_expires),
        approvals=max(1, message.approvals),
        approved_by=tuple(message.approved_by),
        edited=message.edit if message.HasField("edit") else None,
    )


def answer(about: Review, said: Answer) -> api.fleet.AnswerReviewRequest:
    """Write an answer to what a reviewer has looked at."""
    request = api.fleet.AnswerReviewRequest(
        sandbox_id=about.sandbox_id, review_id=about.review_id, digest=about.digest, state=about.state
    )
    match said.verb:
        case "approve":
            request.approve.SetInParent()
            if about.edited is not None:
                request.seen_edit = hashlib.sha256(about.edited).digest()
        case "edit":
            request.edit.content = said.content
        case "deny":
            request.deny.SetInParent()
            request.deny.reason = said.reason
    return request

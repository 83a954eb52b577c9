"""Reviews: why one is not listed or answered."""

from sandfleet_operator.api.errors import CallReason, Code


class ReviewReason(CallReason):
    """Why a review is not listed or answered."""

    NOT_REVIEWER = (
        "NotReviewer",
        Code.PERMISSION_DENIED,
        "The caller may not review what runs in the sandbox; who has claimed it never may.",
        "Answer as a reviewer: on one machine with the token in the fleet's directory, on Kubernetes as another account.",
    )
    REVIEW_NOT_FOUND = (
        "ReviewNotFound",
        Code.NOT_FOUND,
        "No such review waits: it was answered, or its caller has gone.",
        "List the reviews again.",
    )
    REVIEW_CHANGED = (
        "ReviewChanged",
        Code.FAILED_PRECONDITION,
        "The sandbox has let something run since the reviewer looked, or another request waits.",
        "Look at the review again, and answer what it shows now.",
    )
    REVIEW_NOT_EDITABLE = (
        "NotEditable",
        Code.FAILED_PRECONDITION,
        "What waits cannot be edited.",
        "Approve it, or deny it with a reason.",
    )
    INVALID_ANSWER = (
        "InvalidAnswer",
        Code.INVALID_ARGUMENT,
        "The answer to a review is missing, or its reason or its edit is too long.",
        "Approve, edit or deny; a reason has at most 2,000 characters, an edit 2 MiB of text.",
    )
    INVALID_CALL = (
        "InvalidCall",
        Code.INVALID_ARGUMENT,
        "The call of a tool cannot be shown to a reviewer: it is too long, or no text.",
        "Give the tool smaller arguments, or let the policy decide without a person.",
    )
    TOO_MANY_REVIEWS = (
        "TooManyReviews",
        Code.RESOURCE_EXHAUSTED,
        "Too many calls of tools wait for reviewers of the session.",
        "Answer those that wait first.",
    )

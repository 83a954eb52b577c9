"""What an execution and its agent are told of a review (pure)."""

import difflib

from sandfleet_executor.core.executions.events import Notice
from sandfleet_executor.core.executions.outcomes import Verdict
from sandfleet_executor.core.review.desk import Decision

DENIED, EDITED, BY_RULE = "ReviewDenied", "ReviewEdited", "ReviewRule"
MAX_SHOWN_EDIT = 4000


def denied(decision: Decision) -> Verdict:
    """The outcome of an execution that may not run."""
    if decision.unseen:
        return Verdict("denied", "policy", decision.unseen, f"No reviewer has seen it: {decision.reason}.")
    return Verdict("denied", "policy", DENIED, refusal(decision))


def refusal(decision: Decision) -> str:
    """One sentence: who has denied it, and why."""
    who = f"The rule {decision.rule}" if decision.rule else "A reviewer"
    return f"{who} denied it: {decision.reason}" if decision.reason else f"{who} denied it, and gave no reason."


def notices(decision: Decision, before: bytes) -> tuple[Notice, ...]:
    """What its agent has to know before it reads the output. `before` is what it had asked for."""
    found = []
    if decision.rule:
        found.append(Notice(BY_RULE, f"The rule {decision.rule} approved it."))
    if decision.edited is not None:
        found.append(Notice(EDITED, f"A reviewer changed it before it ran:\n{_difference(before, decision.edited)}"))
    return tuple(found)


def _difference(before: bytes, after: bytes) -> str:
    pair = (before.decode("utf-8", "replace").splitlines(), after.decode("utf-8", "replace").splitlines())
    text = "\n".join(list(difflib.unified_diff(*pair, lineterm="", n=1))[2:])
    return (
        text
        if len(text) <= MAX_SHOWN_EDIT
        else f"{text[:MAX_SHOWN_EDIT]}\n[{len(text) - MAX_SHOWN_EDIT} more characters]"
    )

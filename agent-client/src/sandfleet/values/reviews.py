"""Reviews: what a reviewed sandbox is asked to run, and a reviewer's answers."""

from __future__ import annotations

import difflib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Literal


@dataclass(frozen=True, slots=True)
class Answer:
    """What a reviewer answers. `Review.approve`, `edit` and `deny` make it."""

    verb: Literal["approve", "edit", "deny"]
    content: bytes = b""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Review:
    """A request of a reviewed sandbox that waits for an answer.

    kind             what it is, in a word: cell, command, input, service, file, folder, archive, context, state.
    content          the exact bytes that would run or be written; in a list only their beginning (`content_bytes` says
                     how many there are).
    settings         all else that the request says, as JSON.
    context_id, name the context of a cell; the path of a file, or the name of a state.
    state            how much the sandbox has let run before: an approval is for this number.
    editable         whether an answer may have other content.
    intent           why the agent wants it, in its own words; "" if it has not said.
    holder           who has claimed the sandbox.
    approved_before  what was approved last for the same file or context in this session; None if nothing was.
    """

    sandbox_id: str
    review_id: str
    kind: str
    content: bytes
    content_bytes: int = 0
    settings: str = "{}"
    method: str = ""
    context_id: str = ""
    execution_id: str = ""
    name: str = ""
    digest: bytes = b""
    state: int = 0
    editable: bool = False
    since: datetime | None = None
    intent: str = ""
    holder: str = ""
    approved_before: bytes | None = None
    lease_expires: datetime | None = None

    @property
    def code(self) -> str:
        r"""The content as text; bytes that are no UTF-8 as "\xff"."""
        return self.content.decode("utf-8", "backslashreplace")

    @property
    def diff(self) -> str:
        """What differs from the version that was approved before, as a unified diff; "" if there is none."""
        if self.approved_before is None:
            return ""
        before = self.approved_before.decode("utf-8", "backslashreplace")
        lines = difflib.unified_diff(before.splitlines(), self.code.splitlines(), "approved before", "now", lineterm="")
        return "\n".join(lines)

    def approve(self) -> Answer:
        """Let it run once, as it is."""
        return Answer("approve")

    def edit(self, content: str | bytes) -> Answer:
        """Let this run in its place, once; the agent is told."""
        return Answer("edit", content=content.encode() if isinstance(content, str) else content)

    def deny(self, reason: str = "") -> Answer:
        """Do not let it run; the agent is told the reason."""
        return Answer("deny", reason=reason)


OnReview = Callable[[Review], Answer | Awaitable[Answer | None] | None]

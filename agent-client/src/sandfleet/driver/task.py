"""A task of a run, and what a checker says of its result. Pure values."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sandfleet.errors import InvalidArgument

if TYPE_CHECKING:
    from sandfleet.codeact.conversation import AgentRun
    from sandfleet.sandbox import AsyncSandbox

# The longest key, in characters: keys are shown in tables and are part of file names.
KEY_LIMIT = 200

# Says what is wrong with a result; "" when it is right. It may look into the sandbox, which still lives.
Checker = Callable[["AgentRun", "AsyncSandbox"], "Awaitable[str] | str"]


@dataclass(frozen=True, slots=True)
class AgentTask:
    """One task of a run.

    key     names it in the run, in at most 200 characters: a second run with the same checkpoint knows it by its key.
    prompt  the task in words, for the policy.
    files   written to the workspace before the agent starts: path → content.
    check   says what is wrong with the result, "" when it is right; a function, async or not, of the run and the
            sandbox. None: each answer counts.
    data    what `make_agent` needs beside the prompt: any JSON.
    """

    key: str
    prompt: str
    files: Mapping[str, str | bytes] = field(default_factory=dict)
    check: Checker | None = field(default=None, compare=False)
    data: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, given: AgentTask | str) -> AgentTask:
        """Take a task as it is, and a text as the prompt of one whose key is made of the text. Raises InvalidArgument.

        A text that stands in the list twice is one task twice.
        """
        task = given if isinstance(given, AgentTask) else cls(hashlib.sha256(given.encode()).hexdigest()[:12], given)
        if not 0 < len(task.key) <= KEY_LIMIT or not task.key.isprintable():
            raise InvalidArgument(f"cannot run the task {task.key[:40]!r}: a key has 1 to {KEY_LIMIT} plain characters")
        return task

    def fingerprint(self) -> str:
        """Return what a checkpoint knows the content by: a digest of prompt, files and data."""
        digest = hashlib.sha256(json.dumps([self.prompt, self.data], sort_keys=True, default=repr).encode())
        for name in sorted(self.files):
            content = self.files[name]
            body = content.encode() if isinstance(content, str) else content
            digest.update(f"\0{name}\0{len(body)}\0".encode())
            digest.update(body)
        return digest.hexdigest()[:32]

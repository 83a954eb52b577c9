"""Skills: code that an agent has written and tested in one session, and that later sessions import."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class SkillState(StrEnum):
    """Whether sessions are offered a skill."""

    # Its tests have not run yet.
    UNCHECKED = "unchecked"
    # Its tests have failed; `Skill.why` says how.
    FAILED = "failed"
    # Its tests pass, and it comes from a session that had received untrusted or secret content: a person approves it.
    AWAITING_REVIEW = "awaiting_review"
    OFFERED = "offered"
    # A person has refused it.
    REJECTED = "rejected"


@dataclass(frozen=True, slots=True)
class WasmModule:
    """The module of a skill that is WebAssembly, and its manifest as JSON: what the module may use."""

    module: bytes = field(repr=False)
    manifest: str


@dataclass(frozen=True, slots=True)
class Skill:
    """One version of a skill.

    name, version  `skills.NAME` in a session; versions count from 1.
    summary        the first line of the module's docstring.
    code, tests    Python. The tests are run by a fresh interpreter that can import `skills.NAME`.
    digest         SHA-256 of all that was saved, in hex.
    sandbox_id     of the session that has saved it. marks: what that session had received ("untrusted", "secret").
    stub           its functions as Python without bodies, for a policy.
    state, why     whether sessions are offered it, and why not, in words.
    approved_by    the person who has approved it; "" where none had to.
    wasm           its module and manifest, if it is WebAssembly; `code` is then made of the manifest.
    """

    name: str
    version: int
    summary: str
    code: str
    tests: str
    digest: str
    sandbox_id: str = ""
    marks: tuple[str, ...] = ()
    stub: str = ""
    state: SkillState = SkillState.UNCHECKED
    why: str = ""
    approved_by: str = ""
    wasm: WasmModule | None = None

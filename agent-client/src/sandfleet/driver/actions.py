"""Actions of an agent as JSON, so that a session can go on in another process. Pure."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from sandfleet.codeact.conversation import (
    Action,
    Call,
    FinalAnswer,
    GiveUp,
    NoAction,
    RunCode,
    RunCommand,
    Said,
    Tokens,
)

_KINDS: dict[str, type[RunCode | RunCommand | FinalAnswer | GiveUp | NoAction]] = {
    "run_code": RunCode,
    "run_command": RunCommand,
    "final_answer": FinalAnswer,
    "give_up": GiveUp,
    "no_action": NoAction,
}
_NAMES = {kind: name for name, kind in _KINDS.items()}


def to_json(action: Action) -> str:
    """Write one action as a line. Numbers that JSON lacks become text, as they are printed."""
    return json.dumps({"kind": _NAMES[type(action)]} | asdict(action), default=str)


def from_json(line: str) -> Action:
    """Read what `to_json` has written. Raises ValueError for anything else."""
    try:
        said: dict[str, Any] = json.loads(line)
        kind = _KINDS[said.pop("kind")]
        model = said.pop("said", None)
        for name in ("command", "value"):
            if isinstance(said.get(name), list):
                said[name] = tuple(said[name])
        return kind(**said, said=_said(model) if model else None)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"cannot read an action: {error}") from error


def _said(model: dict[str, Any]) -> Said:
    calls = tuple(Call(**call) for call in model.pop("calls", ()))
    tokens = Tokens(**model.pop("tokens", {}))
    return Said(**model, calls=calls, tokens=tokens)

"""What a call of a tool raises."""

from typing import Any


class ToolError(Exception):
    """The tool has failed on the host, whose message this is.

    `tool` is its name; `reason` is one word for programs.
    """

    __module__ = "tools"

    def __init__(self, message: str, *, tool: str = "", reason: str = "") -> None:
        super().__init__(message)
        self.tool = tool
        self.reason = reason


class ToolDenied(ToolError):
    """The host refused the call: its policy, a limit, or arguments that do not fit."""

    __module__ = "tools"


class ToolTimeout(ToolError, TimeoutError):
    """The tool took longer than it may."""

    __module__ = "tools"


class ToolUnavailable(ToolError):
    """No host answered. `may_have_run`: the tool may have run all the same."""

    __module__ = "tools"

    def __init__(self, message: str, *, tool: str = "", reason: str = "", may_have_run: bool = False) -> None:
        super().__init__(message, tool=tool, reason=reason)
        self.may_have_run = may_have_run


KINDS: dict[str, type[ToolError]] = {"error": ToolError, "denied": ToolDenied, "timeout": ToolTimeout}
EXPORTED = {kind.__name__: kind for kind in (ToolError, ToolDenied, ToolTimeout, ToolUnavailable)}


def of(tool: str, said: dict[str, Any]) -> ToolError:
    """The exception that a failed call raises."""
    message, reason = str(said["message"]), str(said["reason"])
    kind = KINDS.get(said["kind"])
    if kind is not None:
        return kind(message, tool=tool, reason=reason)
    return ToolUnavailable(message, tool=tool, reason=reason, may_have_run=bool(said["may_have_run"]))


def lost(tool: str, *, sent: bool) -> ToolUnavailable:
    """The line to the executor broke."""
    message = f"cannot call {tool}: the connection to the host has broken"
    return ToolUnavailable(message, tool=tool, reason="ConnectionLost", may_have_run=sent)

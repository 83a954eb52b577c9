"""What a call of a skill raises."""

MODULE = "wasm_skill"


class SkillError(Exception):
    """The skill has not given a result. `skill` is its name; `reason` is one word for programs."""

    __module__ = MODULE

    def __init__(self, message: str, *, skill: str = "", reason: str = "") -> None:
        super().__init__(message)
        self.skill = skill
        self.reason = reason


class SkillFailed(SkillError):
    """Its code said so, or trapped."""

    __module__ = MODULE


class SkillDenied(SkillError):
    """It used what its manifest does not grant."""

    __module__ = MODULE


class SkillLimit(SkillError):
    """It reached a limit: `reason` is Deadline, Fuel, Stack, Memory, Output, Input or ToolCalls."""

    __module__ = MODULE


class SkillRefused(SkillError):
    """Its module or its manifest cannot be used, or a folder that the manifest names."""

    __module__ = MODULE


class SkillUnavailable(SkillError):
    """The session lacks what runs a skill."""

    __module__ = MODULE


KINDS: dict[str, type[SkillError]] = {
    "failed": SkillFailed,
    "denied": SkillDenied,
    "limit": SkillLimit,
    "refused": SkillRefused,
    "unavailable": SkillUnavailable,
}
EXPORTED: dict[str, type[SkillError]] = {"SkillError": SkillError} | {kind.__name__: kind for kind in KINDS.values()}


def kind_of(error: SkillError) -> str:
    """The word that stands for the class of an error between the two processes."""
    return next(word for word, kind in KINDS.items() if type(error) is kind)

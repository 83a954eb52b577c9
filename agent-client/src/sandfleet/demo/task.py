"""What a task of the demo is, and what its tasks share."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

from sandfleet.codeact import Action, Conversation, RunCode
from sandfleet.codeact.answers import loose_numbers
from sandfleet.codeact.policies.scripted import Maker, Move, When
from sandfleet.errors import SandfleetError
from sandfleet.resources.scripts import failed_script
from sandfleet.sandbox import AsyncSandbox

# Checks an answer (its values as text) and what is in the sandbox; says what is wrong, "" when nothing is.
Verify = Callable[[tuple[str, ...], AsyncSandbox], Awaitable[str]]


@dataclass(frozen=True, slots=True)
class Task:
    """One session's work.

    prompt  the task in words, enough for a model. script: the moves of the scripted policy.
    files   uploaded to the workspace first. verify: the host's own judgement of the result.
    keep    files worth a look for people, downloaded where they ask for it.
    """

    title: str
    prompt: str
    script: tuple[Move, ...]
    verify: Verify
    files: Mapping[str, bytes] = field(default_factory=dict)
    keep: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Fix:
    """One thing to change in the code, and what has to have been seen for it."""

    name: str
    when: When
    intent: str


class InputMissing(SandfleetError):
    """A package whose data the demo works on is not installed."""


def package_file(package: str, path: str) -> bytes:
    """The bytes of a file that a package brings along, without importing the package. Raises InputMissing."""
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        raise InputMissing(
            f"cannot run the demo: the package {package} is not installed, whose {path} is its input; its agents need"
            " `pip install matplotlib numpy pandas`"
        )
    file = Path(spec.origin).parent / path
    try:
        return file.read_bytes()
    except OSError as error:
        raise InputMissing(
            f"cannot run the demo: cannot read {path} of the package {package}: {error.strerror}"
        ) from error


def repairs(fixes: tuple[Fix, ...], code: Callable[[frozenset[str]], str]) -> tuple[Move, ...]:
    """Moves that run `code` with every fix that anything seen so far calls for, one move for each fix."""
    return tuple(Move(fix.when, _patched(fixes, fix.intent, code)) for fix in fixes)


def _patched(fixes: tuple[Fix, ...], intent: str, code: Callable[[frozenset[str]], str]) -> Maker:
    def make(conversation: Conversation) -> Action:
        seen = frozenset(fix.name for fix in fixes if any(fix.when.fits(step) for step in conversation.steps))
        return RunCode(code(seen), intent=intent)

    return make


def numbers(values: tuple[str, ...]) -> tuple[float, ...]:
    """The numbers in an answer, in order; "a = 1; b = 2" has two."""
    return loose_numbers(" ; ".join(values))


async def check_in_sandbox(sandbox: AsyncSandbox, source: str) -> str:
    """Run the host's own check file in the sandbox, in a fresh interpreter; "" when it passes, else its last line."""
    trouble = await failed_script(sandbox, "host_check.py", source, timeout=60)
    return f"the host's check failed: {trouble[:200]}" if trouble else ""

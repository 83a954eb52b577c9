"""Judges what happened into the one outcome of an execution (D9). docs/reference/outcomes.md documents the reasons."""

from dataclasses import dataclass, replace
from enum import StrEnum


class Cause(StrEnum):
    """Who ended an execution before its own end."""

    NONE = "none"
    DEADLINE = "deadline"
    MEMORY = "memory"
    DISK = "disk"
    INTERRUPT = "interrupt"
    RESTART = "restart"
    CLOSE = "close"
    LEASE = "lease"
    PROTOCOL = "protocol"
    SESSION = "session"


@dataclass(frozen=True)
class Facts:
    """What is known at the end. `status` is the interpreter's word, None when it ended before it could say one."""

    cause: Cause = Cause.NONE
    status: str | None = None
    error_name: str = ""
    exit_code: int = 0
    signal: str = ""
    timeout: float = 0.0
    memory_limit: int = 0
    disk_limit: int = 0
    # Processes that a command left running, and names of their programs, as user code has chosen them.
    leftover: int = 0
    left_names: tuple[str, ...] = ()


@dataclass(frozen=True)
class Verdict:
    """`outcome` and `blame` are the lower-case words of the enums Outcome and Blame; `blame` is empty with `ok`."""

    outcome: str
    blame: str = ""
    reason: str = ""
    message: str = ""


KEEPING = "start what is to stay as a service, or from a cell of bash"
# Characters of the name of a program.
MAX_NAME = 15
SYNTAX_ERROR = "SyntaxError"
NO_FOLDER = "WorkingDirectoryGone"
# For executions without an end when an executor comes back to its workspace.
EXECUTOR_RESTARTED = Verdict(
    "lost", "platform", "ExecutorRestarted", "The executor ended while it ran. Whether and how far it ran is not known."
)


def judge_cell(facts: Facts) -> Verdict:
    """The verdict on a cell."""
    # Code that swallowed an interrupt and ended well ended well; past its deadline it did not.
    if facts.status == "ok" and facts.cause is not Cause.DEADLINE:
        return Verdict("ok")
    if forced := _forced(facts):
        return forced
    if facts.status == "interrupted":
        return Verdict("interrupted", "policy", "Interrupted", "The execution was interrupted.")
    if facts.status is None:
        return _ended_interpreter(facts)
    if facts.error_name == "MemoryError":
        return _out_of_memory(facts)
    # What a shell cannot read it has not raised by running it: that is an error as any other language's.
    if facts.exit_code and facts.error_name != SYNTAX_ERROR:
        return Verdict("error", "code", "ExitCode", f"The cell ended with exit code {facts.exit_code}.")
    return Verdict("error", "code", "Exception", f"The code raised {facts.error_name}.")


def judge_command(facts: Facts) -> Verdict:
    """The verdict on a command. One that ended by itself also says what it left running, which was ended with it."""
    if forced := _forced(facts):
        return forced
    verdict = _by_its_end(facts)
    if not facts.leftover:
        return verdict
    names = ", ".join(filter(None, map(_plain, facts.left_names)))
    count, were = ("A process", "was") if facts.leftover == 1 else (f"{facts.leftover} processes", "were")
    told = f"{count} that it left running{names and f' ({names})'} {were} ended with it: {KEEPING}."
    return replace(verdict, message=f"{verdict.message} {told}".strip())


def _plain(name: str) -> str:
    return "".join(each for each in name[:MAX_NAME] if each.isalnum() or each in "-_.+:")


def _by_its_end(facts: Facts) -> Verdict:
    if facts.signal == "SIGXFSZ":
        message = f"A file of the command reached the limit of {facts.disk_limit >> 20} MiB."
        return Verdict("killed", "limit", "DiskLimit", message)
    if facts.signal:
        return Verdict("killed", "code", "Signal", f"The command was ended by {facts.signal}.")
    if facts.error_name == NO_FOLDER:
        return Verdict("error", "code", NO_FOLDER, "The command's working directory is missing or cannot be entered.")
    if facts.exit_code:
        reason = {126: "NotExecutable", 127: "NotFound"}.get(facts.exit_code, "ExitCode")
        return Verdict("error", "code", reason, f"The command ended with exit code {facts.exit_code}.")
    return Verdict("ok")


_BY_CAUSE = {
    Cause.INTERRUPT: Verdict("interrupted", "policy", "Interrupted", "The execution was interrupted."),
    Cause.RESTART: Verdict("interrupted", "policy", "ContextRestarted", "The context was restarted or deleted."),
    Cause.CLOSE: Verdict("interrupted", "policy", "SandboxClosed", "The sandbox was closed."),
    Cause.LEASE: Verdict(
        "interrupted", "policy", "LeaseExpired", "The lease of the sandbox was over, and no client had renewed it."
    ),
    Cause.PROTOCOL: Verdict(
        "killed", "code", "InterpreterBroken", "The code broke the interpreter's connection to the executor."
    ),
    Cause.SESSION: Verdict("killed", "code", "SessionKilled", "All processes of the sandbox were killed."),
}


def _forced(facts: Facts) -> Verdict | None:
    match facts.cause:
        case Cause.DEADLINE:
            message = f"The execution did not end within {facts.timeout:g} seconds."
            return Verdict("timeout", "limit", "DeadlineExceeded", message)
        case Cause.MEMORY:
            return _out_of_memory(facts)
        case Cause.DISK:
            message = f"The workspace's limit of {facts.disk_limit >> 20} MiB was reached."
            return Verdict("killed", "limit", "DiskLimit", message)
        case _:
            return _BY_CAUSE.get(facts.cause)


def _ended_interpreter(facts: Facts) -> Verdict:
    if facts.signal:
        return Verdict("killed", "code", "InterpreterCrashed", f"The interpreter was ended by {facts.signal}.")
    message = f"The code ended the interpreter with exit code {facts.exit_code}."
    return Verdict("killed", "code", "InterpreterExited", message)


def _out_of_memory(facts: Facts) -> Verdict:
    message = f"The memory limit of {facts.memory_limit >> 20} MiB was reached."
    return Verdict("memory", "limit", "MemoryLimit", message)

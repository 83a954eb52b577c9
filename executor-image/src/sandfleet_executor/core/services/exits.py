"""The reason and the message for the end of a service's program."""

from dataclasses import dataclass

from sandfleet_executor.core.services.machine import Exit

NOT_FOUND, NOT_EXECUTABLE = 127, 126


@dataclass(frozen=True)
class Facts:
    """`failure` where it could not be started; `signal` is a name, or empty."""

    code: int
    signal: str = ""
    leftover: int = 0
    memory: bool = False
    failure: str = ""
    # All processes of the sandbox ended at once.
    session_ended: bool = False


def judge(facts: Facts, memory_limit: int, at: float) -> Exit:
    """`memory_limit` in bytes, `at` in seconds since the epoch."""
    reason, message = _said(facts, memory_limit)
    if facts.leftover:
        count = "a process" if facts.leftover == 1 else f"{facts.leftover} processes"
        message += f", and left {count} running, killed with it: a service has to stay in the foreground"
    return Exit(facts.code, reason, message, facts.signal, facts.leftover, at)


def not_started(why: str, at: float) -> Exit:
    """The platform could not start it."""
    return Exit(0, "SessionUnavailable", f"it could not be started: {why}", at=at)


def _said(facts: Facts, memory_limit: int) -> tuple[str, str]:
    if facts.failure:
        reason = "NotFound" if facts.code == NOT_FOUND else "NotExecutable"
        return reason, f"it cannot be started: {facts.failure}"
    if facts.memory:
        return "MemoryLimit", f"it was ended because the memory limit of {memory_limit >> 20} MiB was reached"
    if facts.session_ended:
        return "SessionKilled", "all processes of the sandbox were killed"
    if facts.signal:
        return "Signal", f"it was ended by {facts.signal}"
    if facts.code == NOT_FOUND:
        return "NotFound", "it ended with exit code 127 (a shell's word for: not found)"
    return ("ExitCode" if facts.code else "Completed"), f"it ended with exit code {facts.code}"

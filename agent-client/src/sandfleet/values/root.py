"""The root of all errors, below the values so that a value can raise one."""

from __future__ import annotations

from sandfleet.values._show import visible


class SandfleetError(Exception):
    """Root of all errors of the client.

    reason     one word in CamelCase for programs; "" if there is none.
    retryable  whether the same call may succeed later without a change.
    message    as it was said: it may have what code in a sandbox has written. `str` of an error shows it to people,
               with what a terminal would act on as escapes.
    subject    the path or id that the error is about; "" if there is none.
    retry_after  seconds before which the same call will not succeed; None if the platform has not said any.
    """

    retry_after: float | None = None

    def __init__(self, message: str, *, reason: str = "", retryable: bool = False, subject: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.reason = reason
        self.retryable = retryable
        self.subject = subject

    def __str__(self) -> str:
        return visible(self.message)

    def __repr__(self) -> str:
        known = {"reason": self.reason, "subject": self.subject}
        named = "".join(f", {name}={value!r}" for name, value in known.items() if value)
        return f"{type(self).__name__}({self.message!r}{named})"

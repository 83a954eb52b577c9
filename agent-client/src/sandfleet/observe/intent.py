"""Why the agent wants what it asks for: told with each request of a reviewed sandbox, for its reviewers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_KEY = "sandfleet-intent-bin"
# Of UTF-8: all metadata of a call together have 8 KiB.
MAX_BYTES = 2000
_MORE = "…"
_said: ContextVar[str] = ContextVar("sandfleet_intent", default="")


@contextmanager
def intent(text: str | None) -> Iterator[None]:
    """Say why the calls in this block are made.

        with sandfleet.intent("keep the cleaned table"):
            sandbox.files.write("clean.csv", data)

    The reviewers of a reviewed sandbox see it with each request that waits; other sandboxes are not told. It is cut
    after 2,000 bytes. None leaves what an outer block says.
    """
    token = None if text is None else _said.set(_cut(text))
    try:
        yield
    finally:
        if token is not None:
            _said.reset(token)


def metadata() -> tuple[tuple[str, bytes], ...]:
    """Return the metadata that tell it, if anything is said."""
    said = _said.get()
    return ((_KEY, said.encode()),) if said else ()


def _cut(text: str) -> str:
    """As much as is sent, in whole characters; a lone surrogate, which UTF-8 cannot encode, as its escape."""
    data = text.encode("utf-8", "backslashreplace")
    if len(data) <= MAX_BYTES:
        return data.decode()
    return data[: MAX_BYTES - len(_MORE.encode())].decode("utf-8", "ignore") + _MORE

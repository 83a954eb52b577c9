"""Saved variables: messages as values, and back. Executors are hostile."""

from __future__ import annotations

from collections.abc import Iterable

from sandfleet._wire import api
from sandfleet._wire.convert import common as convert
from sandfleet.values.variables import Autosave, StateItem, StateRestored, StateSaved

_ITEMS_LIMIT = 100_000
_TEXT_LIMIT = 1_024
_THREADS_LIMIT = 16


def autosave(value: Autosave | None) -> api.interpreter.Autosave | None:
    """Write the options of automatic saves."""
    if value is None:
        return None
    return api.interpreter.Autosave(max_bytes=value.max_bytes or 0, timeout=convert.seconds(value.timeout))


def saved(message: api.interpreter.SaveStateResponse) -> StateSaved:
    """Read the answer of a save."""
    return StateSaved(
        state=convert.saved_state(message.state),
        saved=items(message.saved),
        unsaved=items(message.unsaved),
        omitted=message.saved.omitted + message.unsaved.omitted,
        threads=texts(message.threads, _THREADS_LIMIT),
    )


def restored(message: api.interpreter.RestoreStateResponse) -> StateRestored:
    """Read the answer of a restore."""
    parts = (message.restored, message.unrestored, message.unsaved)
    return StateRestored(
        state=convert.saved_state(message.state),
        restored=items(message.restored),
        unrestored=items(message.unrestored),
        unsaved=items(message.unsaved),
        omitted=sum(part.omitted for part in parts),
        lost=convert.lost(message.lost),
    )


def items(message: api.interpreter.StateItems) -> tuple[StateItem, ...]:
    """Read variables that are listed."""
    return tuple(_item(item) for item, _ in zip(message.items, range(_ITEMS_LIMIT), strict=False))


def _item(message: api.interpreter.StateItem) -> StateItem:
    return StateItem(
        name=message.name[:_TEXT_LIMIT],
        type=message.type[:_TEXT_LIMIT],
        size=message.size_bytes,
        reason=message.reason[:_TEXT_LIMIT],
        message=message.message[:_TEXT_LIMIT],
        overwrote=message.overwrote,
    )


def texts(raw: Iterable[str], most: int) -> tuple[str, ...]:
    """Read the first `most` texts."""
    return tuple(text[:_TEXT_LIMIT] for text, _ in zip(raw, range(most), strict=False))

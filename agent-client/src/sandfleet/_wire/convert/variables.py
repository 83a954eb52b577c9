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
        saved=_items(message.saved),
        unsaved=_items(message.unsaved),
        omitted=message.saved.omitted + message.unsaved.omitted,
        threads=_texts(message.threads),
    )


def restored(message: api.interpreter.RestoreStateResponse) -> StateRestored:
    """Read the answer of a restore."""
    parts = (message.restored, message.unrestored, message.unsaved)
    return StateRestored(
        state=convert.saved_state(message.state),
        restored=_items(message.restored),
        unrestored=_items(message.unrestored),
        unsaved=_items(message.unsaved),
        omitted=sum(part.omitted for part in parts),
        lost=convert.lost(message.lost),
    )


def _items(message: api.interpreter.StateItems) -> tuple[StateItem, ...]:
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


def _texts(raw: Iterable[str]) -> tuple[str, ...]:
    return tuple(text[:_TEXT_LIMIT] for text, _ in zip(raw, range(_THREADS_LIMIT), strict=False))

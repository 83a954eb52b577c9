"""The results of one execution as they stand: updated in place, cleared, and bounded. Pure."""

from __future__ import annotations

from dataclasses import replace

from sandfleet._wire import api
from sandfleet._wire.convert import common as convert
from sandfleet.values.execution import Result

_BOUND = 64 * 1024 * 1024
_COUNT = 10_000


class Results:
    """Executors are hostile: what is above the bounds is dropped and counted."""

    def __init__(self) -> None:
        self._shown: list[Result] = []
        # Where the results of each display id stand.
        self._places: dict[str, list[int]] = {}
        # The bytes that were taken for them.
        self._taken: dict[str, int] = {}
        self._room = _BOUND

    @property
    def shown(self) -> tuple[Result, ...]:
        """The results that are shown now."""
        return tuple(self._shown)

    def add(self, message: api.common.Result) -> Result:
        """Take a result, or an update of results."""
        result = convert.result(message)
        places = self._places.get(result.display_id, []) if result.is_update else []
        if places:
            # From now on it is held once, however often it is shown.
            self._room += self._taken.pop(result.display_id, 0)
        result = self._bounded(result, sum(len(part.data) for part in message.parts), replaces=bool(places))
        for place in places:
            self._shown[place] = replace(
                result, is_main_result=self._shown[place].is_main_result, is_update=self._shown[place].is_update
            )
        if not places:
            self._append(result)
        return result

    def clear(self) -> None:
        """Forget what is shown."""
        self._shown.clear()
        self._places.clear()
        self._taken.clear()
        self._room = _BOUND

    def _append(self, result: Result) -> None:
        if len(self._shown) >= _COUNT:
            self._shown[-1] = result
            return
        self._shown.append(result)
        if result.display_id:
            self._places.setdefault(result.display_id, []).append(len(self._shown) - 1)

    def _bounded(self, result: Result, size: int, *, replaces: bool) -> Result:
        if size > self._room or (len(self._shown) >= _COUNT and not replaces):
            return replace(result, parts={}, dropped_bytes=min(result.dropped_bytes + size, 2**64 - 1))
        self._room -= size
        if result.display_id:
            self._taken[result.display_id] = self._taken.get(result.display_id, 0) + size
        return result

"""Saved variables without `await`: see `sandfleet.sync`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sandfleet._background import mirrors, run
from sandfleet.states import AsyncStates

if TYPE_CHECKING:
    from sandfleet.state_values import Autosave, SavedState, StateRestored, StateSaved
    from sandfleet.values import Context


@mirrors(AsyncStates)
class States:
    def __init__(self, states: AsyncStates) -> None:
        self._async = states

    @property
    def autosave(self) -> Autosave | None:
        return self._async.autosave

    def save(
        self,
        name: str | None = None,
        *,
        context: str | Context = "default",
        max_bytes: int | None = None,
        max_variable_bytes: int | None = None,
        timeout: float | None = None,
    ) -> StateSaved:
        saved = self._async.save(
            name, context=context, max_bytes=max_bytes, max_variable_bytes=max_variable_bytes, timeout=timeout
        )
        return run(saved)

    def restore(
        self, name: str | None = None, *, context: str | Context = "default", timeout: float | None = None
    ) -> StateRestored:
        return run(self._async.restore(name, context=context, timeout=timeout))

    def resume(self, context: str | Context = "default") -> StateRestored | None:
        return run(self._async.resume(context))

    def list(self) -> tuple[SavedState, ...]:
        return run(self._async.list())

    def delete(self, name: str) -> None:
        return run(self._async.delete(name))

"""The part of a sandbox that leads to its journal; it imports nothing before its first use."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sandfleet._wire.link import Link
    from sandfleet.resources.journal import AsyncJournal


class HasJournal:
    """The part of a sandbox that has a journal."""

    _link: Link

    @cached_property
    def journal(self) -> AsyncJournal:
        """The record of everything that changed the session."""
        from sandfleet.resources.journal import AsyncJournal

        return AsyncJournal(self._link)

"""The part of a fleet that signs heads of journals, and what its objects of one sandbox know of them together."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from functools import cached_property
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from sandfleet._wire import api
from sandfleet._wire.convert import journals as convert
from sandfleet.journal.heads import KeptHeads

if TYPE_CHECKING:
    from sandfleet._wire.link import Link
    from sandfleet.journal.heads import SignedHead

_RPC_TIMEOUT = 30.0


class SignsJournals:
    """The part of a fleet that signs heads of journals."""

    _call: Callable[[str, api.message.Message, float], Awaitable[Any]]

    @cached_property
    def _heads(self) -> WeakValueDictionary[str, KeptHeads]:
        """By the ids of sandboxes, as long as an object of one lives."""
        return WeakValueDictionary()

    async def sign_journal(self, sandbox_id: str) -> tuple[SignedHead, ...]:
        """Have the newest head of a sandbox's journal read and signed. Raises PreconditionFailed, SandboxEnded."""
        request = api.fleet.CountersignJournalRequest(sandbox_id=sandbox_id)
        return convert.signed((await self._call("CountersignJournal", request, _RPC_TIMEOUT)).heads)

    def keeping_heads(self, link: Link) -> Link:
        """Return the link, which from now on knows the heads that other links to its sandbox know."""
        link.heads = self._heads.setdefault(link.sandbox_id, link.heads)
        return link

    def _take_signed(self, sandbox_id: str, heads: Iterable[api.fleet.JournalHead]) -> None:
        if (kept := self._heads.get(sandbox_id)) is not None:
            kept.keep_signed(convert.signed(heads))

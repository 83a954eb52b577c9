"""What a reflector shows of an API server, in memory and real.

Who runs these sentences has a fixture `bed`.
"""

import asyncio
from collections.abc import AsyncGenerator

from contract.kube.bed import THING, Bed
from sandfleet_operator.api.kube import Event, Json, Kind, Listing
from sandfleet_operator.cluster.kube_api import PagedLists
from sandfleet_operator.cluster.reflector import Reflector
from sandfleet_operator.cluster.store import Store


class TooLate(PagedLists):
    """A client whose first watch is so late that the server has forgotten the version from which it is to go on."""

    def __init__(self, bed: Bed) -> None:
        self._bed = bed
        self.may_watch, self.watches = asyncio.Event(), 0

    def pages(
        self, kind: Kind, namespace: str | None = None, selector: str = "", fields: str = "", limit: int = 500
    ) -> AsyncGenerator[Listing, None]:
        return self._bed.api.pages(kind, namespace, selector, fields, limit)

    async def watch(
        self, kind: Kind, namespace: str | None = None, selector: str = "", resource_version: str = "", fields: str = ""
    ) -> AsyncGenerator[Event, None]:
        await self.may_watch.wait()
        self.watches += 1
        since = self._bed.too_old() if self.watches == 1 else resource_version
        async for event in self._bed.api.watch(kind, namespace, selector, since, fields=fields):
            yield event


async def test_what_is_deleted_before_a_version_expires_is_seen_by_the_next_list(bed: Bed):
    """And so is what was created and changed meanwhile; the watch goes on from there."""
    for name in ("deleted", "kept"):
        await bed.api.create(bed.thing(name))
    late, store, news = TooLate(bed), Store(), asyncio.Queue[tuple[str, bool]]()

    def saw(_kind: Kind, gone: bool, obj: Json, _before: Json | None) -> None:
        news.put_nowait((obj["metadata"]["name"], gone))

    reflector = Reflector(late, store, THING, saw, namespace=bed.namespace)  # type: ignore[arg-type] # it only reads
    following = asyncio.create_task(reflector.run())
    try:
        async with asyncio.timeout(60):
            assert [await news.get(), await news.get()] == [("deleted", False), ("kept", False)]
            await bed.api.delete(bed.ref(THING, "deleted"))
            await bed.api.create(bed.thing("made"))
            late.may_watch.set()
            assert [await news.get(), await news.get()] == [("made", False), ("deleted", True)]
            assert {one["metadata"]["name"] for one in store.all(THING)} == {"kept", "made"}
            await bed.api.delete(bed.ref(THING, "kept"))
            assert await news.get() == ("kept", True)
    finally:
        following.cancel()

"""When a lease is renewed: always, while something runs, or never."""

import asyncio
import gc
import weakref

from sandfleet._wire.lease import LeaseKeeper


class Link:
    """Counts renewals; each asks for the next one at once."""

    def __init__(self) -> None:
        self.renewed: list[float | None] = []
        self.news = asyncio.Event()

    async def keep(self, lease: float | None) -> float | None:
        self.renewed.append(lease)
        self.news.set()
        return 0.0


class Cell:
    def __init__(self) -> None:
        self.ended = False


async def renewals(link: Link, count: int) -> None:
    while len(link.renewed) < count:
        link.news.clear()
        await asyncio.wait_for(link.news.wait(), 60)


async def quiet(link: Link) -> bool:
    """Whether nothing is renewed in many turns of the loop."""
    before = len(link.renewed)
    for _ in range(200):
        await asyncio.sleep(0)
    return len(link.renewed) == before


async def test_it_is_renewed_until_what_runs_has_ended() -> None:
    link, cell = Link(), Cell()
    keeper = LeaseKeeper(link, expires=0.0)
    assert await quiet(link)
    keeper.run(cell)
    await renewals(link, 3)
    cell.ended = True
    await asyncio.sleep(0)
    assert await quiet(link)
    keeper.run(Cell())
    # The new one is gone at once, and nothing else holds it.
    gc.collect()
    await asyncio.sleep(0)
    assert await quiet(link)


async def test_it_is_never_renewed_where_that_is_not_wanted() -> None:
    link, cell = Link(), Cell()
    keeper = LeaseKeeper(link, expires=0.0)
    keeper.always = False
    keeper.run(cell)
    assert await quiet(link)


async def test_it_is_always_renewed_until_it_is_stopped_for_as_long_as_asked() -> None:
    link = Link()
    keeper = LeaseKeeper(link, expires=None)
    keeper.lasts(5.0, now=False)
    keeper.start(at_once=True)
    await renewals(link, 3)
    keeper.stop()
    assert await quiet(link)
    assert set(link.renewed) == {5.0}


async def test_a_lease_that_becomes_shorter_is_renewed_sooner() -> None:
    link = Link()
    keeper = LeaseKeeper(link, expires=None)
    keeper.lasts(1e6)
    keeper.start(at_once=False)
    assert await quiet(link)
    keeper.lasts(0.0)
    await renewals(link, 1)
    keeper.stop()


async def test_nothing_holds_a_keeper_between_renewals() -> None:
    link = Link()
    keeper = LeaseKeeper(link, expires=None)
    keeper.start(at_once=False)
    gone = weakref.ref(keeper)
    del keeper
    assert gone() is None

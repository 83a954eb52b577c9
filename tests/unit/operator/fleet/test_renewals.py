"""Ends of renewed leases: which are written, and when."""

import asyncio
from dataclasses import replace

from sandfleet_operator.api.values import State
from sandfleet_operator.cluster.lease import NotLeadingError
from sandfleet_operator.fleet.leases.renewals import Renewals
from support.fleet.builders import NOW, a_sandbox


class Bed:
    """One session under a clock that only sleeping moves."""

    def __init__(self):
        self.now, self.written, self.there, self.error = NOW, [], True, None
        self.session = a_sandbox(State.CLAIMED, lease_expires=NOW + 300)
        self.renewals = Renewals(lambda _: self.session, self.write, lambda: self.now, self.sleep)

    async def sleep(self, seconds):
        self.now += seconds
        await asyncio.sleep(0)

    async def write(self, sandbox):
        await asyncio.sleep(0)
        if self.error:
            raise self.error
        if self.there:
            self.written.append((self.now - NOW, sandbox.lease_expires - NOW))
        self.there = True
        return bool(self.written)

    async def renew(self, seconds):
        self.session = replace(self.session, lease_expires=self.now + seconds)
        self.renewals.renewed(self.session)
        for _ in range(20):
            await asyncio.sleep(0)


async def test_the_first_renewal_is_written_at_once_and_the_next_ones_at_most_once_a_minute():
    bed = Bed()
    await bed.renew(3600)
    assert bed.written == [(0, 3600)]
    bed.now += 20
    await bed.renew(7200)
    assert bed.written == [(0, 3600), (60, 7220)]
    bed.now += 10
    await bed.renew(7190)
    assert len(bed.written) == 2


async def test_what_cannot_be_written_yet_is_written_later():
    bed = Bed()
    bed.there = False
    await bed.renew(3600)
    assert [end for _, end in bed.written] == [3600]
    assert bed.written[0][0] > 0


async def test_the_lease_of_an_ended_session_and_of_a_deposed_fleet_is_not_written():
    bed = Bed()
    bed.session = replace(bed.session, state=State.ENDED)
    await bed.renew(3600)
    assert bed.written == []
    bed = Bed()
    bed.error = NotLeadingError("cannot write: leadership is over")
    await bed.renew(3600)
    bed.error = None
    await bed.renew(3600)
    assert len(bed.written) == 1

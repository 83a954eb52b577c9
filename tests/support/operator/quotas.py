"""An independent account of quotas: recomputed from the sandboxes of a scheduler, by the definitions of Kueue."""

import math
from dataclasses import dataclass, field

from sandfleet_operator.api.kinds.queue import StopPolicy
from sandfleet_operator.api.values import Amount, State

RESOURCES = ("sandboxes", "cpu", "memory")


def known(quota, resource):
    value = getattr(quota, resource)
    return math.inf if value is None else value


def is_before(one, waiting):
    """Of the claims of one queue at one pool that have no sandbox yet."""
    same = (one.claim.queue, one.claim.pool) == (waiting.claim.queue, waiting.claim.pool)
    return same and not one.sandbox_id and (one.asked, one.number) < (waiting.asked, waiting.number)


def total(amounts):
    return Amount(**{name: sum(getattr(one, name) for one in amounts) for name in RESOURCES})


@dataclass
class Books:
    specs: dict
    # Queue → resource → what the scheduler says that it uses.
    usage: dict
    scheduler: object
    declared: list = field(default_factory=list)
    # Queues of claims that wait at a pool with a warm sandbox, and that their nominal quota would permit.
    owners: set = field(default_factory=set)

    @classmethod
    def of(cls, scheduler, declared=()):
        names = scheduler.queues.names
        usage = {name: dict(zip(RESOURCES, scheduler.inventory.ledger.usage(name), strict=True)) for name in names}
        books = cls({name: scheduler.queues.spec(name) for name in names}, usage, scheduler, list(declared))
        books.owners = books.find_owners()
        return books

    # Of one queue and one resource.

    def lendable(self, name, resource):
        spec = self.specs[name]
        nominal = known(spec.nominal, resource)
        if not spec.cohort or math.isinf(nominal):
            return 0
        return min(nominal, known(spec.lending, resource))

    def guaranteed(self, name, resource):
        return known(self.specs[name].nominal, resource) - self.lendable(name, resource)

    def most(self, name, resource):
        spec = self.specs[name]
        borrowing = known(spec.borrowing, resource) if spec.cohort else 0
        return known(spec.nominal, resource) + borrowing

    def members(self, cohort):
        return [name for name, spec in self.specs.items() if spec.cohort == cohort]

    def capacity(self, cohort, resource):
        return sum(self.lendable(name, resource) for name in self.members(cohort))

    def drawn(self, cohort, resource):
        return sum(max(0, self.usage[one][resource] - self.guaranteed(one, resource)) for one in self.members(cohort))

    def borrowed(self, name):
        return {one: max(0, self.usage[name][one] - known(self.specs[name].nominal, one)) for one in RESOURCES}

    # Checks.

    def check_after(self, before):
        """An event may leave too much in use where it was so before or the quota was cut, but never adds to it."""
        for name, used in self.usage.items():
            for resource in RESOURCES:
                earlier = before.usage.get(name, used)[resource]
                assert used[resource] <= max(self.most(name, resource), earlier), (name, resource)
        for cohort in {spec.cohort for spec in self.specs.values() if spec.cohort}:
            for resource in RESOURCES:
                now, capacity = self.drawn(cohort, resource), self.capacity(cohort, resource)
                # With the usage of before, and the quotas of now.
                earlier = Books(self.specs, {one: before.usage.get(one, self.usage[one]) for one in self.specs}, None)
                assert now <= max(capacity, earlier.drawn(cohort, resource)), (cohort, resource)

        if self.specs == before.specs:
            self.check_lent_quota_returns(before)

    def check_lent_quota_returns(self, before):
        """While an owner lacks only what others have borrowed, they borrow no more of it."""
        for cohort in {self.specs[queue].cohort for queue in self.owners & before.owners}:
            for name in self.members(cohort):
                now, earlier = self.borrowed(name), before.borrowed(name)
                assert all(now[one] <= earlier[one] for one in RESOURCES), f"{name} borrows more"

    def find_owners(self):
        found = set()
        for waiting in self.scheduler.inventory.waiting.values():
            claim = waiting.claim
            if (
                waiting.sandbox_id
                or claim.gang
                or not claim.queue
                or not self.scheduler.inventory.count_of(claim.pool, State.WARM)
            ):
                continue
            used, spec = self.usage[claim.queue], self.specs[claim.queue]
            after = {one: used[one] + getattr(claim.amount, one) for one in RESOURCES}
            if spec.stop is StopPolicy.NONE and all(after[one] <= known(spec.nominal, one) for one in RESOURCES):
                found.add(claim.queue)
        return found

    def check_usage(self):
        """What the scheduler counts is what its sandboxes and declared ones add up to."""
        counted = {name: dict.fromkeys(RESOURCES, 0) for name in self.specs}
        # A sandbox whose session is over counts until its process is gone.
        sandboxes = [one for one in self.scheduler.inventory.all() if one.state is not State.SUSPENDED and one.claim]
        amounts = [(one.claim.queue, one.claim.amount) for one in sandboxes if one.claim.amount]
        owed = [
            one.claim for state in self.scheduler._queues.all() for one in state.queue.gangs.owed if one.claim.queue
        ]
        amounts += [(claim.queue, claim.amount) for claim in owed]
        for queue, amount in [*amounts, *self.declared]:
            for resource in RESOURCES if queue in counted else ():
                counted[queue][resource] += getattr(amount, resource)
        assert counted == self.usage

    def check_work_conserving(self):
        """No claim waits at a pool with a warm sandbox that its quota permits.

        A claim that would borrow may wait for an owner that only lacks what others have borrowed.
        """
        inventory = self.scheduler.inventory
        for waiting in inventory.waiting.values():
            claim = waiting.claim
            if waiting.sandbox_id or claim.gang or not inventory.count_of(claim.pool, State.WARM):
                continue
            if self.waits_behind_a_gang(claim):
                continue
            before = [one for one in inventory.waiting.values() if one.returns is not None and is_before(one, waiting)]
            # What is left to a preempted session that came before.
            amount = total([claim.amount, *(one.claim.amount for one in before)])
            assert not self.permits(claim.queue, amount), f"{claim.key} waits in {claim.queue!r} without need"

    def waits_behind_a_gang(self, claim):
        """Behind a gang that lacks quota its queue waits at each pool; behind one that lacks sandboxes its pool."""
        others = [one.claim for one in self.scheduler.inventory.waiting.values() if one.claim.gang]
        return any(one.pool == claim.pool or (one.queue and one.queue == claim.queue) for one in others)

    def permits(self, queue, amount):
        if not queue:
            return True
        spec = self.specs[queue]
        if spec.stop is not StopPolicy.NONE:
            return False
        within = True
        for resource in RESOURCES:
            after = self.usage[queue][resource] + getattr(amount, resource)
            if after > self.most(queue, resource):
                return False
            within = within and after <= known(spec.nominal, resource)
            guaranteed = self.guaranteed(queue, resource)
            more = max(0, after - guaranteed) - max(0, self.usage[queue][resource] - guaranteed)
            if more and more > self.capacity(spec.cohort, resource) - self.drawn(spec.cohort, resource):
                return False
        return within or not self.scheduler.inventory.ledger.cohort(queue).owners

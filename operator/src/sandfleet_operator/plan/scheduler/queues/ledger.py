"""What each queue uses of its quota and of its cohort's, kept up to date with each change. It decides nothing."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from sandfleet_operator.api.kinds.queue import QueueSpec, StopPolicy
from sandfleet_operator.plan.scheduler.queues.quota import (
    INFINITE,
    NOTHING,
    UNBOUNDED,
    Terms,
    Vector,
    Verdict,
    dominant_share,
    drawn,
    how_many,
    judge,
    lesser,
    minus,
    plus,
    terms_of,
    times,
)


@dataclass(slots=True)
class Cohort:
    """`drawn` of `capacity` is in use. A queue without a cohort is one by itself."""

    members: set[str] = field(default_factory=set)
    capacity: Vector = NOTHING
    drawn: Vector = NOTHING
    # Queues within their nominal quota, and the pools at which sandboxes are warm for them: they only lack what others
    # have borrowed. While there is one, none borrows more, so that what is released comes back to them.
    owners: set[tuple[str, str]] = field(default_factory=set)
    # A number that is new whenever its queues may have become able to admit more.
    freed: int = 0

    @property
    def free(self) -> Vector:
        """Below 0 where an edit took away what is in use."""
        return minus(self.capacity, self.drawn)


# The order of the claims of one queue wherever they wait: rank of the class, arrival and its number, the least first.
Turn = tuple[int, float, int]


@dataclass(slots=True)
class Account:
    """A queue without a spec was removed, and sandboxes of it still live."""

    name: str
    spec: QueueSpec | None = None
    terms: Terms = UNBOUNDED
    usage: Vector = NOTHING
    cohort: Cohort = field(default_factory=Cohort)
    # Pool → the turn of the gang that waits there before all others of the queue. Claims of later turns that need less
    # would pass it at other pools, again and again: they wait, too.
    gangs: dict[str, Turn] = field(default_factory=dict)

    @property
    def is_held(self) -> bool:
        return self.spec is not None and self.spec.stop is not StopPolicy.NONE


class Demands:
    """Counts the claims that quotas would admit now, each queue's with what the queues before have left."""

    def __init__(self, accounts: Mapping[str, Account], most: int) -> None:
        """More than `most` need not be counted."""
        self._accounts = accounts
        self._most = most
        self._usage: dict[str, Vector] = {}
        self._free: dict[int, Vector] = {}
        self.shared = 0
        # Queue → how many of its claims that need a start of their own.
        self.alone: dict[str, int] = {}
        # Claims within the nominal quota of their queues, which others have borrowed.
        self.lent = 0

    @property
    def are_enough(self) -> bool:
        return self.shared + sum(self.alone.values()) >= self._most

    def add(self, queue: str, amount: Vector, many: int, *, alone: bool = False) -> None:
        """Up to `many` claims of this amount; `alone`: each needs a start of its own."""
        account = self._accounts.get(queue)
        found = many if account is None else self._permitted(account, amount, many)
        if not alone:
            self.shared += found
        elif found:
            self.alone[queue] = found

    def add_lent(self, queue: str, amount: Vector, many: int) -> None:
        """Up to `many` claims whose queue has lent its quota."""
        account = self._accounts[queue]
        self.lent += min(many, how_many(account.terms, account.usage, INFINITE, amount, borrowing=False))

    def _permitted(self, account: Account, amount: Vector, many: int) -> int:
        if account.is_held:
            return 0
        key = id(account.cohort)
        usage, free = self._usage.get(account.name, account.usage), self._free.get(key, account.cohort.free)
        # What is released goes to the owners first.
        borrowing = not account.cohort.owners
        found = min(many, how_many(account.terms, usage, free, amount, borrowing=borrowing))
        after = plus(usage, times(amount, found))
        self._usage[account.name] = after
        self._free[key] = minus(free, minus(drawn(account.terms, after), drawn(account.terms, usage)))
        return found


class Ledger:
    """`freed` collects the queues that may admit more than before."""

    def __init__(self) -> None:
        self._accounts: dict[str, Account] = {}
        self._cohorts: dict[str, Cohort] = {}
        self._freed: set[str] = set()
        self._frees = 0

    def put(self, name: str, spec: QueueSpec) -> None:
        account = self._accounts.setdefault(name, Account(name))
        self._leave_cohort(account)
        account.spec, account.terms = spec, terms_of(spec)
        self._join_cohort(account)
        self._free(account.cohort)

    def remove(self, name: str) -> None:
        """The quota that it lent is gone, and what it used is charged to no cohort any more."""
        account = self._accounts.get(name)
        if account is None:
            return
        self._leave_cohort(account)
        account.spec, account.terms, account.cohort = None, UNBOUNDED, Cohort()
        if account.usage == NOTHING:
            del self._accounts[name]

    def spec(self, name: str) -> QueueSpec | None:
        account = self._accounts.get(name)
        return account.spec if account else None

    def names(self) -> list[str]:
        return [name for name, account in self._accounts.items() if account.spec is not None]

    def charge(self, queue: str, amount: Vector) -> None:
        self._use(self._accounts.setdefault(queue, Account(queue)), amount)

    def discharge(self, queue: str, amount: Vector, *, frees: bool = True) -> None:
        """`frees`: others may have it."""
        account = self._accounts[queue]
        self._use(account, minus(NOTHING, amount))
        if frees:
            self._free(account.cohort)
        if account.spec is None and account.usage == NOTHING:
            del self._accounts[queue]

    def free(self, queue: str) -> None:
        """What the queue used may be less than at the last look."""
        account = self._accounts.get(queue)
        if account is not None:
            self._free(account.cohort)

    def claim_back(self, queue: str, pool: str) -> None:
        """A warm sandbox of the pool waits for the queue's lent quota to come back."""
        self._accounts[queue].cohort.owners.add((queue, pool))

    def stand_back(self, queue: str, pool: str) -> None:
        """None does any more."""
        account = self._accounts.get(queue)
        if account is not None and (queue, pool) in account.cohort.owners:
            account.cohort.owners.discard((queue, pool))
            self._free(account.cohort)

    def keep_for_gang(self, queue: str, pool: str, turn: Turn | None) -> None:
        """A gang waits at the pool for what is left of the queue's quota; `turn` None: none does any more."""
        account = self._accounts.get(queue)
        if account is not None and turn is not None:
            account.gangs[pool] = turn
        elif account is not None and account.gangs.pop(pool, None) is not None:
            self._free(account.cohort)

    def take_freed(self) -> set[str]:
        """The queues that may admit more than at the last call."""
        freed, self._freed = self._freed, set()
        return freed

    # Queries. The empty name is that of no queue: its claims have no bound.

    def judge(self, queue: str, amount: Vector) -> Verdict:
        account = self._accounts.get(queue)
        if account is None:
            return Verdict.WITHIN
        if account.is_held:
            return Verdict.HELD
        found = judge(account.terms, account.usage, account.cohort.free, amount)
        return Verdict.EXHAUSTED if found is Verdict.BORROWS and account.cohort.owners else found

    def kept_at(self, queue: str, turn: Turn, besides: str | None = None) -> str | None:
        """A pool other than `besides` where a gang has its turn before this one; None where there is none."""
        account = self._accounts.get(queue)
        gangs = account.gangs if account is not None else {}
        return next((pool for pool, first in gangs.items() if pool != besides and first < turn), None)

    def demands(self, most: int) -> Demands:
        """For counting what might be admitted, up to `most` claims."""
        return Demands(self._accounts, most)

    def freed(self, queue: str) -> int:
        """What was refused stays refused while this is the same."""
        account = self._accounts.get(queue)
        return account.cohort.freed if account else 0

    def usage(self, queue: str) -> Vector:
        account = self._accounts.get(queue)
        return account.usage if account else NOTHING

    def terms(self, queue: str) -> Terms:
        account = self._accounts.get(queue)
        return account.terms if account else UNBOUNDED

    def most_ever(self, queue: str) -> Vector:
        """What the queue could use if no other queue used anything."""
        terms, capacity = self.terms(queue), self.cohort(queue).capacity
        return lesser(terms.most, plus(terms.guaranteed, capacity))

    def cohort(self, queue: str) -> Cohort:
        account = self._accounts.get(queue)
        return account.cohort if account else Cohort()

    def share(self, queue: str) -> float:
        """Of its cohort's capacity, what the queue borrows, divided by its weight: 0 where it borrows nothing."""
        account = self._accounts.get(queue)
        return dominant_share(account.terms, account.usage, account.cohort.capacity) if account else 0.0

    def by_share(self, queues: Iterable[str]) -> list[str]:
        """The queue that borrows least first."""
        return sorted(queues, key=lambda one: (self.share(one), one))

    def _free(self, cohort: Cohort) -> None:
        self._frees += 1
        cohort.freed = self._frees
        self._freed |= cohort.members

    def _use(self, account: Account, amount: Vector) -> None:
        cohort = account.cohort
        before = drawn(account.terms, account.usage)
        account.usage = plus(account.usage, amount)
        cohort.drawn = plus(cohort.drawn, minus(drawn(account.terms, account.usage), before))

    def _leave_cohort(self, account: Account) -> None:
        cohort, spec = account.cohort, account.spec
        cohort.members.discard(account.name)
        cohort.capacity = minus(cohort.capacity, account.terms.lendable)
        cohort.drawn = minus(cohort.drawn, drawn(account.terms, account.usage))
        cohort.owners = {one for one in cohort.owners if one[0] != account.name}
        self._free(cohort)
        if spec is not None and spec.cohort and not cohort.members:
            del self._cohorts[spec.cohort]

    def _join_cohort(self, account: Account) -> None:
        assert account.spec is not None, "a queue without a spec is in no cohort"
        name = account.spec.cohort
        cohort = account.cohort = self._cohorts.setdefault(name, Cohort()) if name else Cohort()
        cohort.members.add(account.name)
        cohort.capacity = plus(cohort.capacity, account.terms.lendable)
        cohort.drawn = plus(cohort.drawn, drawn(account.terms, account.usage))

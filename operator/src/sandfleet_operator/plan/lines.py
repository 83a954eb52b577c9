"""Who waits at which pool, and what is known of each pool beside its sandboxes. It holds values and decides nothing."""

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from sandfleet_operator.api.values import RequestKey, State
from sandfleet_operator.plan.inventory import Inventory
from sandfleet_operator.plan.pool import Pool, StartHealth
from sandfleet_operator.plan.queue import Line, Outlook, Queued, Waiting, standing
from sandfleet_operator.plan.stock import Stock

HITS = 100


@dataclass(slots=True)
class Books:
    """Of one pool."""

    pool: Pool
    # The claims that have no sandbox yet.
    line: Line
    health: StartHealth = field(default_factory=StartHealth)
    # What a start takes, as observed.
    start_seconds: float | None = None
    # Claims that have arrived since it was opened.
    arrivals: int = 0
    # Why the last start came to nothing; empty after one that did not.
    trouble: str = ""
    # Of the last claims, whether each found a warm sandbox.
    hits: deque[bool] = field(default_factory=lambda: deque(maxlen=HITS))

    @property
    def hit_rate(self) -> float | None:
        """0 to 1; None while there was no claim."""
        return sum(self.hits) / len(self.hits) if self.hits else None


class Lines:
    def __init__(self, inventory: Inventory, new_line: Callable[[], Line], pools: Iterable[Pool]) -> None:
        self._inventory = inventory
        self._new_line = new_line
        self._books = {pool.name: Books(pool, new_line()) for pool in pools}

    def get(self, pool: str) -> Books | None:
        return self._books.get(pool)

    def all(self) -> list[Books]:
        return list(self._books.values())

    def open(self, pool: Pool) -> None:
        self._books[pool.name] = Books(pool, self._new_line())

    def close(self, pool: str) -> None:
        del self._books[pool]

    def wait(self, waiting: Waiting) -> None:
        """In the place that its number gives it; in the line only while nothing is on its way to it."""
        line = self._books[waiting.claim.pool].line
        line.discard(waiting)
        if not waiting.sandbox_id:
            line.add(waiting)
        self._inventory.waiting[waiting.claim.key] = waiting

    def arrive(self, waiting: Waiting) -> None:
        """For the first time."""
        self._books[waiting.claim.pool].arrivals += 1
        self.wait(waiting)

    def wait_again(self, key: RequestKey, *, failures: int) -> Waiting | None:
        """What was on its way came to nothing, with so many failures more."""
        waiting = self._inventory.waiting.get(key)
        if waiting is None:
            return None
        waiting = replace(waiting, sandbox_id="", failures=waiting.failures + failures)
        self.wait(waiting)
        return waiting

    def leave(self, key: RequestKey) -> Waiting | None:
        """Who waited."""
        waiting = self._inventory.waiting.pop(key, None)
        if waiting is not None:
            self._books[waiting.claim.pool].line.discard(waiting)
        return waiting

    def is_binding(self, waiting: Waiting) -> bool:
        sandbox = self._inventory.get(waiting.sandbox_id)
        return sandbox is not None and sandbox.state is State.CLAIMED

    def standings(self, stock: Stock, now: float, only: RequestKey | None) -> dict[RequestKey, Queued]:
        """Where each waiting claim stands, or one of them."""
        wanted = self._inventory.waiting.values() if only is None else [self._inventory.waiting.get(only)]
        outlooks: dict[str, Outlook] = {}
        found: dict[RequestKey, Queued] = {}
        for waiting in wanted:
            if waiting is None or self.is_binding(waiting):
                continue
            books = self._books[waiting.claim.pool]
            outlook = outlooks.get(books.pool.name) or self._outlook(books, stock, now)
            outlooks[books.pool.name] = outlook
            found[waiting.claim.key] = standing(books.line.position(waiting), waiting, outlook)
        return found

    def _outlook(self, books: Books, stock: Stock, now: float) -> Outlook:
        starting = self._inventory.of_pool(books.pool.name, State.STARTING)
        return Outlook(
            start_ages=tuple(now - one.started for one in starting),
            start_seconds=books.start_seconds,
            max_starting=stock.max_starting,
            full=stock.room(books.pool) <= 0,
            closed=books.pool.closed,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """How full a pool is. `reason` says why it has fewer warm ones than it is to have (a PoolReason); empty where it has them."""

    warm: int
    stale: int
    starting: int
    claimed: int
    waiting: int
    hit_rate: float | None
    reason: str
    message: str = ""
    arrivals: int = 0
    start_seconds: float | None = None

    @property
    def is_idle(self) -> bool:
        """Nothing is there, and nobody waits."""
        return not (self.warm or self.starting or self.claimed or self.waiting)


def level(books: Books, inventory: Inventory, stock: Stock) -> Level:
    name, pool = books.pool.name, books.pool
    warm, starting = inventory.count_of(name, State.WARM), inventory.count_of(name, State.STARTING)
    return Level(
        warm=warm,
        starting=starting,
        claimed=inventory.count_of(name, State.CLAIMED, State.RECOVERING),
        waiting=len(books.line),
        hit_rate=books.hit_rate,
        stale=warm - inventory.count_of_revision(name, State.WARM, pool.revision),
        reason="" if warm >= pool.target_warm and not len(books.line) else _shortage(books, stock),
        message=books.trouble,
        arrivals=books.arrivals,
        start_seconds=books.start_seconds,
    )


def _shortage(books: Books, stock: Stock) -> str:
    if books.pool.closed:
        return books.pool.closed
    if books.health.failures:
        return "StartsFail"
    if stock.room(books.pool) <= 0:
        return "SandboxLimit"
    return "Filling"

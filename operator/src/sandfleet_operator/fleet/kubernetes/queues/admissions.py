"""Admits the CodeSandboxes whose pods the operator makes, by `status.admission` (docs/dev/adr/0029).

An object counts against its queue's quota from before `Admitted` is written until `Pending` is, or until the object and
its pod are gone, or it has expired and lost its pod. So no crash between a decision and its write leaves too little
counted.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import islice

from sandfleet_rules.backoff import Backoff

from sandfleet_operator.api.conditions import Reason
from sandfleet_operator.api.errors import FleetError
from sandfleet_operator.api.kinds.meta import referred
from sandfleet_operator.api.kinds.queue import StopPolicy
from sandfleet_operator.api.kinds.sandbox import (
    AdmissionState,
    AdmissionStatus,
    CodeSandbox,
    by_metadata,
    code_sandbox,
    readable,
)
from sandfleet_operator.api.kube import CODE_SANDBOX, POD, Conflict, Json, KubeError, NotFound, Ref
from sandfleet_operator.api.table import encode
from sandfleet_operator.api.values import Amount
from sandfleet_operator.cluster.kube_api import KubeApi
from sandfleet_operator.cluster.lease import NotLeadingError
from sandfleet_operator.cluster.reflector import show_each
from sandfleet_operator.cluster.store import Store, version_of
from sandfleet_operator.cluster.tasks import Sweeps
from sandfleet_operator.fleet.driver import FleetDriver
from sandfleet_operator.fleet.kubernetes.catalog import Catalog, key_of
from sandfleet_operator.fleet.kubernetes.queues.grants import Grants
from sandfleet_operator.fleet.kubernetes.queues.orphans import Orphans
from sandfleet_operator.fleet.kubernetes.writer import Writer
from sandfleet_operator.plan.sandbox.admission import (
    MAX_MESSAGE,
    Standing,
    admitted_amount,
    is_news,
    needs_more,
    queue_of,
    standing,
    with_amount,
)
from sandfleet_operator.plan.sandbox.observed import owner_of
from sandfleet_operator.plan.scheduler.claim_queue import WhyNot
from sandfleet_operator.plan.scheduler.queues.quota import is_within, vector

# Before a write that failed is tried again.
FAILED = Backoff(first=0.1, longest=5.0)
# Writes at the same time.
WRITERS = 32
# Writes of news that only people read, at each look: so that 10,000 objects that wait do not fill the API server.
NEWS_AT_ONCE = 10
# Objects whose news are looked for at each look.
LOOKED_AT = 500
ADMITTED = AdmissionState.ADMITTED

_LOG = logging.getLogger(__name__)


@dataclass(slots=True)
class _Known:
    """An object that a queue concerns."""

    uid: str
    # Its newest version: a watch may still show an older one than what was written.
    newest: Json
    # What stands in it.
    said: AdmissionStatus | None = None
    # It was declared as one that counts.
    counts: bool = False
    # What it waits for.
    asks: AdmissionStatus | None = None
    # The scheduler has admitted it, which is not known to be written yet.
    granted: AdmissionStatus | None = None
    # A leader that was deposed has admitted it, while it waited here.
    is_late: bool = False
    # Something new is to be written of why it waits.
    news: bool = False
    told: float = 0.0
    is_writing: bool = False


class Admissions:
    """`clock` is the scheduler's; `wall_clock` gives seconds since the epoch."""

    def __init__(
        self,
        kube: KubeApi,
        store: Store,
        writer: Writer,
        driver: FleetDriver,
        catalog: Catalog,
        *,
        grants: Grants,
        orphans: Orphans,
        clock: Callable[[], float],
        wall_clock: Callable[[], float],
    ) -> None:
        self._kube = kube
        self._store = store
        self._writer = writer
        self._driver = driver
        self._catalog = catalog
        self._clock = clock
        self._wall = wall_clock
        self._grants = grants
        self._orphans = orphans
        # The first ones were looked at for news the longest time ago.
        self._known: dict[str, _Known] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._turns = asyncio.Semaphore(WRITERS)
        self._sweeps = Sweeps(self._look_at_template, "look at the sandboxes of a template")

    async def close(self) -> None:
        self._sweeps.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # What the watches show, and what the scheduler decides.

    def look(self, obj: Json, *, gone: bool = False) -> None:
        """A CodeSandbox is new, has changed, or is gone."""
        name = key_of(obj)
        try:
            sandbox = by_metadata(obj) if gone else code_sandbox(obj)
        except FleetError:
            # What it counts for stays counted. The feed logs it.
            return
        known = self._known.get(name)
        if known is not None and (gone or known.uid != sandbox.meta.uid):
            self._leave(name)
        elif known is not None and version_of(known.newest) > version_of(obj):
            obj, sandbox = known.newest, code_sandbox(known.newest)
        if not gone and self._decide(name, obj, sandbox) is not None:
            self._begin(name)

    async def look_in(self, namespace: str) -> None:
        """The queues of the namespace have changed. Returns when all that was there has been looked at."""
        await show_each(self._store, CODE_SANDBOX, self.look, namespace)

    def template_changed(self, namespace: str, name: str) -> None:
        """What its sandboxes request may have changed."""
        self._sweeps.add((namespace, name))

    async def _look_at_template(self, changed: tuple[str, str]) -> None:
        namespace, template = changed

        def look(obj: Json) -> None:
            if referred(obj, "templateRef") == template:
                self.look(obj)

        await show_each(self._store, CODE_SANDBOX, look, namespace)

    def admitted(self, name: str) -> None:
        """The scheduler has admitted it."""
        known = self._known.get(name)
        if known is not None and known.asks is not None:
            known.granted = replace(known.asks, state=ADMITTED, time=self._wall())
            self._begin(name)

    def look_at_news(self) -> None:
        """Lets objects that wait know why, when that has changed. To be called every second or so."""
        left = NEWS_AT_ONCE
        for name in list(islice(self._known, LOOKED_AT)):
            known = self._known[name] = self._known.pop(name)
            if left and not (known.counts or known.granted or known.is_writing) and self._has_news(name, known):
                known.news, left = True, left - 1
                self._begin(name)

    def _has_news(self, name: str, known: _Known) -> bool:
        said, why = known.said, self._driver.scheduler.queues.why_declared(name)
        if said is None or why is None:
            return False
        return is_news(said, why.reason, why.message, self._clock() - known.told)

    # Decisions.

    def _decide(self, name: str, obj: Json, sandbox: CodeSandbox) -> AdmissionStatus | None:
        """Tells the scheduler of the object; what is to be written, None for nothing."""
        namespace = sandbox.meta.namespace
        queue = queue_of(sandbox, self._grants.names(namespace))
        stands = standing(sandbox, has_pod=self._has_pod(sandbox)) if queue else Standing.ASIDE
        if stands is Standing.ASIDE:
            (self._leave if sandbox.meta.deleting else self._forget)(name)
            return None
        known = self._known.setdefault(name, _Known(sandbox.meta.uid, obj))
        known.newest, known.said = obj, sandbox.status.admission
        if stands is Standing.WAITS:
            return self._waits(name, known, sandbox, f"{namespace}/{queue}")
        self._count(name, known, sandbox, f"{namespace}/{queue}")
        if stands is Standing.LEAVES:
            return self._leaves(sandbox, queue)
        return self._counts(sandbox, queue, late=known.is_late)

    def _waits(self, name: str, known: _Known, sandbox: CodeSandbox, queue: str) -> AdmissionStatus | None:
        if known.granted is not None:
            # What was admitted is written, whatever has changed since: the write may be on its way.
            return known.granted
        said, amount = sandbox.status.admission, self._amount(sandbox)
        problem = self._never(sandbox, queue, amount) if amount is not None else None
        if known.counts or problem is not None or amount is None:
            # Its quota is free since Pending was written, or it cannot be admitted. Without an amount it has no usable
            # template: the operator says why.
            known.counts = False
            self._withdraw(name)
        if amount is None:
            return None
        # Creation times have a resolution of a second.
        since = said.time if said is not None else self._wall()
        known.asks = with_amount(AdmissionStatus(queue=_own(queue)), amount)
        if problem is None:
            self._declare(name, sandbox, queue, amount, asked=since, admitted=False)
        if known.granted is not None:
            return known.granted
        why = problem or self._driver.scheduler.queues.why_declared(name)
        is_told = said is not None and not known.news and (problem is None or problem.reason == said.reason)
        if is_told or why is None:
            return None
        waits = said or AdmissionStatus(queue=_own(queue), time=since)
        return replace(waits, queue=_own(queue), reason=why.reason, message=why.message[:MAX_MESSAGE])

    def _never(self, sandbox: CodeSandbox, queue: str, amount: Amount) -> WhyNot | None:
        """Why the queue will not admit it as both are now."""
        spec, ledger = self._grants.spec(queue), self._driver.scheduler.inventory.ledger
        if spec is None:
            return WhyNot(Reason.QUEUE_NOT_FOUND.value, f"there is no queue {queue}")
        wanted = sandbox.spec.priority
        if wanted and wanted not in {one.name for one in spec.priority_classes}:
            return WhyNot(Reason.PRIORITY_NOT_FOUND.value, f"queue {queue} has no priority class {wanted!r}")
        if not is_within(vector(amount), ledger.terms(queue).most):
            return WhyNot(Reason.QUOTA_TOO_SMALL.value, f"it requests more than queue {queue} may ever use")
        return None

    def _count(self, name: str, known: _Known, sandbox: CodeSandbox, queue: str) -> None:
        said = sandbox.status.admission
        if said is not None:
            queue = f"{sandbox.meta.namespace}/{said.queue}"
        amount = admitted_amount(said) if said is not None else self._usual(sandbox)
        if known.asks is not None and not known.counts and known.granted is None:
            known.is_late = True
            self._withdraw(name)
        known.is_late = known.is_late and said is not None and said.state is ADMITTED
        known.counts, known.granted = True, None
        self._declare(name, sandbox, queue, amount, asked=sandbox.meta.created, admitted=True)

    def _counts(self, sandbox: CodeSandbox, queue: str, *, late: bool) -> AdmissionStatus | None:
        said, now = sandbox.status.admission, self._wall()
        if said is None:
            return with_amount(AdmissionStatus(queue=queue, state=ADMITTED, time=now), self._usual(sandbox))
        why = self._ends(sandbox, said, late=late) if said.state is ADMITTED else None
        if why is None:
            return None
        return replace(said, state=AdmissionState.ENDING, time=now, reason=why.reason, message=why.message)

    def _ends(self, sandbox: CodeSandbox, said: AdmissionStatus, *, late: bool) -> WhyNot | None:
        """Why an admission does not hold any more; None where it does."""
        spec = self._grants.spec(f"{sandbox.meta.namespace}/{said.queue}")
        if late:
            return WhyNot(Reason.WAITING_FOR_ADMISSION.value, "a fleet that leads no more had admitted it")
        if spec is not None and spec.stop is StopPolicy.HOLD_AND_DRAIN:
            why = f"the stopPolicy of queue {said.queue} is {spec.stop.value}"
            return WhyNot(Reason.QUEUE_DRAINED.value, why)
        if needs_more(sandbox, self._catalog.amount_of(sandbox)) and not self._has_pod(sandbox):
            why = "its template has changed, and it requests more than was admitted"
            return WhyNot(Reason.WAITING_FOR_ADMISSION.value, why)
        return None

    def _leaves(self, sandbox: CodeSandbox, queue: str) -> AdmissionStatus:
        said = sandbox.status.admission
        if said is not None and said.state is AdmissionState.ENDING:
            # It did not leave by itself, and has its old place.
            return replace(said, state=AdmissionState.PENDING, time=sandbox.meta.created)
        pending = replace(said or AdmissionStatus(queue=queue), state=AdmissionState.PENDING, time=self._wall())
        return replace(pending, reason=Reason.SUSPENDED.value, message=Reason.SUSPENDED.meaning)

    def _amount(self, sandbox: CodeSandbox) -> Amount | None:
        """What it waits for; None where its template is missing or refuses it."""
        said = sandbox.status.admission
        if said is not None and said.cpu and sandbox.status.template_revision:
            # It keeps the template that it ran with.
            return admitted_amount(said)
        return self._catalog.amount_of(sandbox)

    def _usual(self, sandbox: CodeSandbox) -> Amount:
        """Of a sandbox from before its queue. Where its template is gone by now, no more than its number is known."""
        return self._catalog.amount_of(sandbox) or Amount(sandboxes=1)

    def _declare(
        self, name: str, sandbox: CodeSandbox, queue: str, amount: Amount, *, asked: float, admitted: bool
    ) -> None:
        """`asked` is in seconds since the epoch."""
        now = self._clock()
        actions = self._driver.scheduler.queues.declare(
            name,
            queue,
            amount,
            priority=sandbox.spec.priority,
            asked=now - max(0.0, self._wall() - asked),
            admitted=admitted,
            now=now,
        )
        self._driver.do(actions)

    def _leave(self, name: str) -> None:
        """It is gone. Its pod may still be there, or on its way, and counts until it is gone."""
        known = self._known.get(name)
        if known is not None:
            sandbox = readable(known.newest)
            if sandbox is not None:
                self._orphans.leave(name, sandbox)
            self._forget(name)

    def _forget(self, name: str) -> None:
        """It neither waits nor counts any more."""
        if self._known.pop(name, None) is not None:
            self._withdraw(name)

    def _withdraw(self, name: str) -> None:
        self._driver.do(self._driver.scheduler.queues.withdraw(name, self._clock()))

    def _has_pod(self, sandbox: CodeSandbox) -> bool:
        found = self._store.get(Ref(POD, sandbox.meta.namespace, sandbox.meta.name))
        return found is not None and owner_of(found) == sandbox.meta.uid

    # Writes.

    def _begin(self, name: str) -> None:
        known = self._known.get(name)
        if known is None or known.is_writing:
            return
        known.is_writing = True
        task = asyncio.create_task(self._write(name, known))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _write(self, name: str, known: _Known) -> None:
        namespace, _, own = name.partition("/")
        ref, failures = Ref(CODE_SANDBOX, namespace, own), 0
        try:
            while self._known.get(name) is known:
                async with self._turns:
                    try:
                        if await self._written(ref, name, known):
                            return
                    except KubeError as error:
                        failures += 1
                        _LOG.info("cannot write the admission of %s yet: %s", name, error)
                        pause = error.retry_after or FAILED.after(failures)
                    else:
                        continue
                await asyncio.sleep(pause)
        except NotLeadingError as error:
            _LOG.info("%s", error)
        finally:
            known.is_writing = False

    async def _written(self, ref: Ref, name: str, known: _Known) -> bool:
        """Whether nothing is left to write. Raises KubeError and NotLeadingError."""
        sandbox = readable(known.newest)
        said = self._decide(name, known.newest, sandbox) if sandbox else None
        if said is None:
            return True
        version = known.newest["metadata"]["resourceVersion"]
        fenced = encode(replace(said, fencing=self._writer.fencing()))
        patch = {"metadata": {"resourceVersion": version}, "status": {"admission": fenced}}
        try:
            made = await self._kube.merge(ref, patch, "status")
            known.news, known.told = False, self._clock()
        except Conflict:
            made = await self._kube.get(ref)
        except NotFound:
            # The watch shows that it is gone.
            return True
        if made["metadata"]["uid"] != known.uid:
            return True
        if version_of(made) <= version_of(known.newest):
            # It did not come from where the write went; the next look may.
            await asyncio.sleep(FAILED.first)
        else:
            known.newest = made
        return False


def _own(queue: str) -> str:
    """The name of a queue within its namespace."""
    return queue.rpartition("/")[2]

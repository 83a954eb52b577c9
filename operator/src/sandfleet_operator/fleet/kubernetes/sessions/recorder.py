"""Writes the CodeSandboxes of claims, behind their answers: of a young claim when it is older, or when its pod ends."""

import logging
from collections.abc import Awaitable, Callable
from typing import Protocol

from sandfleet_operator.api.kube import POD, Ref
from sandfleet_operator.api.reasons import EndReason
from sandfleet_operator.api.settings import Settings
from sandfleet_operator.api.values import Sandbox
from sandfleet_operator.cluster.lease import NotLeadingError
from sandfleet_operator.cluster.store import Store
from sandfleet_operator.fleet.kubernetes.catalog import Catalog
from sandfleet_operator.fleet.kubernetes.sessions.run import Run
from sandfleet_operator.fleet.kubernetes.workspaces import settle
from sandfleet_operator.fleet.kubernetes.writer import NameTakenError, RefusedError, Writer
from sandfleet_operator.plan.claims.record import Record
from sandfleet_operator.plan.claims.young import may_be_young, young_left
from sandfleet_operator.plan.pods import names
from sandfleet_operator.plan.sandbox.binding import Binding
from sandfleet_operator.plan.sandbox.observed import Pod, pod_of

_LOG = logging.getLogger(__name__)


class Runs(Protocol):
    """The pods of the fleet, as the recorder needs them."""

    def run(self, key: str) -> Run | None: ...
    def removed(self, key: str, reason: str) -> None: ...


class Recorder:
    """`remove` deletes the pod of a claim that cannot be written down."""

    def __init__(
        self,
        store: Store,
        catalog: Catalog,
        writer: Writer,
        runs: Runs,
        *,
        settings: Settings,
        clock: Callable[[], float],
        remove: Callable[[Run], Awaitable[bool]],
    ) -> None:
        self._store = store
        self._catalog = catalog
        self._writer = writer
        self._runs = runs
        self._settings = settings
        self._clock = clock
        self._remove = remove

    def begin(self, run: Run, sandbox: Sandbox) -> float:
        """Its caller has it. Returns the seconds for which it stays young."""
        record, seconds = run.record, self._settings.young_claim_seconds
        if record is None or run.object is not None or sandbox.claim is None or not seconds:
            return 0.0
        if not may_be_young(record, sandbox.claim, self.pod_of(run)):
            return 0.0
        run.young = sandbox
        return young_left(record, self._clock(), seconds)

    def pod_of(self, run: Run) -> Pod | None:
        """As far as the watches show."""
        found = self._store.get(run.ref)
        return pod_of(found) if found is not None and found["metadata"]["uid"] == run.uid else None

    def workspace_of(self, run: Run) -> str:
        """Name of its volume claim; empty if its workspace is a directory of the pod."""
        pod = self.pod_of(run)
        return pod.workspace_claim if pod else names.workspace_claim_name(run.ref.name)

    async def write(self, run: Run, sandbox: Sandbox) -> bool:
        """Once: a claim that is written down, or over, is left alone. False where a user's object has its name."""
        record, recipe = run.record, self._catalog.recipe(sandbox.pool)
        if record is None:
            return True
        # Asked now: the pod may be gone by the time of the write.
        workspace = self.workspace_of(run)
        async with run.lock:
            if self._runs.run(run.key) is not run or run.object is not None:
                return True
            made_of = (recipe.template, recipe.pool) if recipe else (sandbox.template, "")
            try:
                await self._written(run, record, made_of, workspace)
            except NotLeadingError as error:
                # The present leader finds the claim on the pod.
                _LOG.info("claim %s is not written down: %s", run.key, error)
            except NameTakenError as error:
                _LOG.warning("claim %s is not written down yet, and goes on as its pod: %s", run.key, error)
                return False
        return True

    async def _written(self, run: Run, record: Record, made_of: tuple[str, str], workspace: str) -> None:
        try:
            owner = await self._writer.write_object(
                run.ref,
                run.uid,
                record,
                template=made_of[0],
                pool=made_of[1],
                memory_reserve=self._settings.memory_reserve,
                is_there=lambda: self._runs.run(run.key) is run,
            )
        except RefusedError as error:
            _LOG.error("claim %s ends, since it cannot be written down: %s", run.key, error)
            await self._remove(run)
            self._runs.removed(run.key, EndReason.RECORD_REFUSED.value)
            return
        if owner is None:
            # Another pod serves this request, or its CodeSandbox is gone.
            await self._remove(run)
            self._runs.removed(run.key, EndReason.CLAIM_SUPERSEDED.value)
            return
        run.object, run.young = owner, None
        await settle(self._writer, owner, Binding(run.ref.name, run.uid, record), workspace)
        if self._store.has_gone(owner.uid):
            # It was deleted before this fleet knew that it had made it.
            self._runs.removed(run.key, EndReason.RELEASED.value)

    async def delete_claimed(self, run: Run, record: Record) -> bool:
        """The pod of a claim without an object; False where another fleet has it by now. Raises NotLeadingError."""
        pod = Ref(POD, run.ref.namespace, run.ref.name)
        return await self._writer.delete_claimed(pod, run.uid, record, self._store.get(pod))

"""The operating mode of a session's CodeSandbox: the operator ends the pod of a suspended one, and starts it again."""

import logging
from collections.abc import Callable

from sandfleet_operator.api.kinds.meta import Meta
from sandfleet_operator.api.kinds.sandbox import readable
from sandfleet_operator.api.kube import CODE_SANDBOX, Json, Ref
from sandfleet_operator.api.values import Sandbox
from sandfleet_operator.cluster.lease import NotLeadingError
from sandfleet_operator.cluster.store import Store
from sandfleet_operator.fleet.kubernetes.writer import Writer
from sandfleet_operator.plan.claims.record import object_of
from sandfleet_operator.plan.claims.suspension import resume_patch, suspend_patch
from sandfleet_operator.plan.sandbox.binding import told

_LOG = logging.getLogger(__name__)


class Modes:
    """`written` is called with each CodeSandbox whose mode this fleet has written, once the store shows it."""

    def __init__(self, store: Store, writer: Writer, written: Callable[[Ref], None]) -> None:
        self._store = store
        self._writer = writer
        self._written = written
        self._writing: set[Ref] = set()

    def is_writing(self, ref: Ref) -> bool:
        """Whether what the store shows of the mode may be out of date, because this fleet is writing it."""
        return ref in self._writing

    async def suspend(self, sandbox: Sandbox) -> None:
        arrived = sandbox.created if sandbox.arrived is None else sandbox.arrived
        since = None if sandbox.preempted is None else (sandbox.preempted, arrived)
        await self._write(sandbox, lambda meta: suspend_patch(meta.uid, sandbox.suspended_until, since))

    async def resume(self, sandbox: Sandbox) -> None:
        await self._write(sandbox, lambda meta: resume_patch(meta.uid))

    async def _write(self, sandbox: Sandbox, patch: Callable[[Meta], list[Json]]) -> None:
        assert sandbox.claim is not None
        ref = Ref(CODE_SANDBOX, sandbox.sandbox_id.partition("/")[0], object_of(sandbox.claim))
        self._writing.add(ref)
        try:
            meta = await self._object(ref, sandbox)
            if meta is not None and await self._writer.patch(ref, patch(meta)):
                found = await self._writer.look(ref)
                if found is not None:
                    # From now on the store takes no older version, which would show the mode before.
                    self._store.put(CODE_SANDBOX, found)
        except NotLeadingError as error:
            _LOG.info("the mode of %s is left to who leads now: %s", ref, error)
        finally:
            self._writing.discard(ref)
        self._written(ref)

    async def _object(self, ref: Ref, sandbox: Sandbox) -> Meta | None:
        """The CodeSandbox of this very session. Raises NotLeadingError."""
        found = self._store.get(ref) or await self._writer.look(ref)
        made = readable(found) if found else None
        if made is None or made.meta.deleting:
            return None
        if sandbox.claim is not None and sandbox.claim.object_uid:
            return made.meta if made.meta.uid == sandbox.claim.object_uid else None
        binding = told(made)
        of_session = binding is not None and binding.pod == sandbox.sandbox_id.partition("/")[2]
        return made.meta if of_session else None

"""What the CodeSandboxes of sessions say of the snapshots that keep them: `status.snapshot`, which the fleet writes."""

import logging
from collections.abc import Callable
from typing import Protocol

from sandfleet_operator.api.kinds.sandbox import CodeSandbox, SnapshotStatus, readable
from sandfleet_operator.api.kube import CODE_SANDBOX, Ref
from sandfleet_operator.api.values import Sandbox
from sandfleet_operator.cluster.lease import NotLeadingError
from sandfleet_operator.cluster.store import Store
from sandfleet_operator.fleet.incarnations import Refill
from sandfleet_operator.fleet.kubernetes.writer import Writer
from sandfleet_operator.plan.claims.record import object_of

_LOG = logging.getLogger(__name__)


class Parking(Protocol):
    """What saves sessions for their sleep, as the observer needs it."""

    def look(self, known: Sandbox, made: CodeSandbox) -> None:
        """The CodeSandbox of this session is new or has changed: its owner may want the session in a snapshot."""
        ...

    def gone(self, made: CodeSandbox) -> None:
        """A CodeSandbox is gone, and its session with it."""
        ...


class SnapshotKeeper(Parking, Refill, Protocol):
    """What keeps sessions in snapshots, for all who need it."""


class ParkedObjects:
    """`is_of` says whether a CodeSandbox is that of a session."""

    def __init__(self, store: Store, writer: Writer, is_of: Callable[[CodeSandbox, Sandbox], bool]) -> None:
        self._store, self._writer, self._is_of = store, writer, is_of

    def of(self, sandbox: Sandbox) -> CodeSandbox | None:
        """The CodeSandbox of this very session, as far as the watches show."""
        found = self._store.get(_ref(sandbox))
        made = readable(found) if found is not None else None
        return made if made is not None and not made.meta.deleting and self._is_of(made, sandbox) else None

    async def write(
        self, sandbox: Sandbox, said: SnapshotStatus | None, when: Callable[[CodeSandbox], bool] = lambda _: True
    ) -> bool:
        """Whether the CodeSandbox of this session says so now. Not where it is gone, or `when` is not true of it."""
        ref = _ref(sandbox)
        try:
            made = await self._writer.park(ref, said, lambda found: self._is_of(found, sandbox) and when(found))
        except NotLeadingError as error:
            _LOG.info("the snapshot of %s is left to who leads now: %s", ref, error)
            return False
        if made is not None:
            # From now on the store takes no older version.
            self._store.put(CODE_SANDBOX, made)
        return made is not None


def _ref(sandbox: Sandbox) -> Ref:
    assert sandbox.claim is not None
    return Ref(CODE_SANDBOX, sandbox.sandbox_id.partition("/")[0], object_of(sandbox.claim))

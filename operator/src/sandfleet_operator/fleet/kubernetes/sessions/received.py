"""What sessions have received, in the status of their CodeSandboxes: it outlives pods, fleets and clients.

Each mark is a field of its own that is only ever added, so that no writer can take away what another has noted.
"""

import asyncio
from collections.abc import Callable
from weakref import WeakValueDictionary

from sandfleet_api.fleet.v1 import fleet_pb2

from sandfleet_operator.api.kinds.sandbox import CodeSandbox
from sandfleet_operator.api.kube import CODE_SANDBOX, Json, KubeError, Ref
from sandfleet_operator.api.reasons import ClaimReason
from sandfleet_operator.api.times import time_text
from sandfleet_operator.api.values import Mark, Sandbox, received_before
from sandfleet_operator.cluster.kube_api import KubeApi
from sandfleet_operator.cluster.reviews import Caller, Reviews
from sandfleet_operator.fleet import convert
from sandfleet_operator.fleet.kubernetes import feed
from sandfleet_operator.fleet.kubernetes.fleet import KubernetesFleet
from sandfleet_operator.fleet.reviews.board import ReviewBoard
from sandfleet_operator.plan.scheduler.recent import Recent

# The subresource that roles name for access to a sandbox.
CONNECT = "connect"
# Sessions whose marks are remembered until a watch shows them.
REMEMBERED = 10_000


class Received:
    """`wall_clock` gives seconds since the epoch."""

    def __init__(self, kube: KubeApi, kubernetes: KubernetesFleet, wall_clock: Callable[[], float]) -> None:
        self._kube = kube
        self._kubernetes = kubernetes
        self._clock = wall_clock
        self._noted: Recent[str, frozenset[Mark]] = Recent(REMEMBERED)
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def note(self, sandbox_id: str, session: Sandbox | None, marks: frozenset[Mark]) -> frozenset[Mark]:
        """Adds marks and returns all, once they are written. Raises FleetError."""
        turn = self._turns.setdefault(sandbox_id, asyncio.Lock())
        async with turn:
            known = self._known(sandbox_id, session)
            if missing := marks - known:
                await self._write(sandbox_id, session, missing)
                noted = self._noted.get(sandbox_id) or frozenset()
                self._noted.put(sandbox_id, noted | marks)
            return known | marks

    def _known(self, sandbox_id: str, session: Sandbox | None) -> frozenset[Mark]:
        written = self._kubernetes.object_of(sandbox_id)
        before = received_before(session.claim) if session is not None else of_object(written)
        noted = self._noted.get(sandbox_id) or frozenset()
        shown = written.status.received if written is not None else None
        return before | noted | (shown.marks if shown is not None else frozenset())

    async def _write(self, sandbox_id: str, session: Sandbox | None, marks: frozenset[Mark]) -> None:
        moment = time_text(int(self._clock()))
        status = {"received": {one.value: moment for one in marks}}
        await write_status(self._kube, self._kubernetes, sandbox_id, session, status)


async def write_status(
    kube: KubeApi, kubernetes: KubernetesFleet, sandbox_id: str, session: Sandbox | None, status: Json
) -> None:
    """Merges what outlives this leader into the status of a session's object. Raises FleetError."""
    namespace, _, name = sandbox_id.partition("/")
    if session is not None and kubernetes.object_of(sandbox_id) is None:
        # A young session has no object yet.
        await kubernetes.record(session)
    try:
        await kube.merge(Ref(CODE_SANDBOX, namespace, name), {"status": status}, "status")
    except KubeError as error:
        why = f"the API server answered {error.status} {error.reason}"
        raise ClaimReason.API_SERVER_FAILED.error(f"cannot mark {sandbox_id}: {why}", sandbox_id) from error


def of_object(sandbox: CodeSandbox | None) -> frozenset[Mark]:
    """What a sandbox that was made as an object has received before its first call."""
    earlier = sandbox is not None and bool(sandbox.spec.workspace.claim_name)
    return frozenset({Mark.UNTRUSTED}) if earlier else frozenset()


class ReceivedCalls:
    """The part of the fleet's API that hosts of tools call."""

    _reviews: Reviews
    _kubernetes: KubernetesFleet
    received: Received
    _board: ReviewBoard

    def check_serving(self, doing: str) -> None:
        """Raises FleetError where another fleet leads."""
        raise NotImplementedError

    async def note_received(
        self, caller: Caller, request: fleet_pb2.NoteReceivedRequest
    ) -> fleet_pb2.NoteReceivedResponse:
        await self._check(caller, request.sandbox_id, "mark the session")
        found = await self._marked(request.sandbox_id, convert.marks(request))
        self._board.received(request.sandbox_id, found)
        return convert.received_message(found)

    async def review_call(self, caller: Caller, request: fleet_pb2.ReviewCallRequest) -> fleet_pb2.ReviewCallResponse:
        await self._check(caller, request.sandbox_id, "review the call")
        return await self._board.review_call(request, lambda: self._marked(request.sandbox_id, frozenset()))

    async def _check(self, caller: Caller, sandbox_id: str, doing: str) -> None:
        namespace, name = feed.parse_id(sandbox_id, doing=doing)
        await self._reviews.authorize(caller, "create", namespace, name, CONNECT)
        self.check_serving(doing)

    async def _marked(self, sandbox_id: str, marks: frozenset[Mark]) -> frozenset[Mark]:
        session = self._kubernetes.session_of(sandbox_id)
        bound = session is not None and session.bound
        if not bound and self._kubernetes.object_of(sandbox_id) is None:
            why = f"cannot mark the session: there is no sandbox {sandbox_id}"
            raise ClaimReason.SANDBOX_NOT_FOUND.error(why, sandbox_id)
        return await self.received.note(sandbox_id, session if bound else None, marks)

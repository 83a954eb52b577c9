"""Calls of the fleet on Kubernetes to the executors of its pods, for fleet/driver.py."""

import asyncio
import math
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from enum import Enum

from sandfleet_api.executor.v1 import session_pb2

from sandfleet_operator.api.errors import Code, FleetError, Problem
from sandfleet_operator.api.kube import POD, Ref
from sandfleet_operator.api.reasons import ClaimReason
from sandfleet_operator.api.values import Sandbox, State
from sandfleet_operator.cluster.lanes import NoTurnError, Turns
from sandfleet_operator.cluster.store import Store
from sandfleet_operator.executors.contact import (
    ClaimInvalid,
    ContactError,
    Contacts,
    Credentials,
    Executor,
    ExecutorDescription,
    RuntimeMismatch,
    Silent,
    Unreachable,
)
from sandfleet_operator.executors.tokens import CALLER_SCOPES, Token
from sandfleet_operator.plan.claims.record import object_of
from sandfleet_operator.plan.lanes import Bounds, Party
from sandfleet_operator.plan.pods.egress_probe import Target
from sandfleet_operator.plan.pods.names import EGRESS_SECRETS, session_id
from sandfleet_operator.plan.sandbox.observed import Pod, pod_of
from sandfleet_operator.plan.usage import Reading
from sandfleet_operator.plan.witness import Head

# Seconds to wait for the port: under gVisor an executor listens about one second after its container has started.
# A start may take longer where its template says so: the scheduler gives it up, and its pod goes.
LISTEN_SECONDS = 60.0
GIVEN_UP_BY_SCHEDULER = frozenset({State.STARTING, State.RESUMING})
# The pause between two attempts has so many seconds, or this share of the time that has passed.
PAUSE = 0.05
SHARE = 0.02
MAX_HOLDER = 256


class Errand(Enum):
    """Each has a lane of its own, with the seconds that a call waits for its turn.

    One handshake takes about 3 ms of the processor, and an executor that is silent has its turn for seconds.
    """

    # Before any user code. A sandbox that is not reached yet asks again and again.
    CONTACT = Bounds(total=64, per_namespace=16, per_node=32), LISTEN_SECONDS
    # A caller waits for it, or a session would end.
    OPENING = Bounds(total=256, per_namespace=64, per_node=128), 10.0
    # Readings that are repeated anyway.
    BACKGROUND = Bounds(total=32, per_namespace=8, per_node=16), 10.0
    # A session is kept or comes back, which may take minutes.
    KEEPING = Bounds(total=512, per_namespace=64, per_node=128), 60.0

    def __init__(self, bounds: Bounds, patience: float) -> None:
        self.bounds, self.patience = bounds, patience


class PodExecutors:
    """Opens a connection for each call, because the fleet calls an executor only a few times in its life."""

    def __init__(self, contacts: Contacts, credentials: Credentials, store: Store, port: int) -> None:
        self._contacts = contacts
        self._credentials = credentials
        self._store = store
        self._port = port
        self._lanes = {errand: Turns(errand.bounds, stalls=Silent) for errand in Errand}

    async def connect(self, sandbox: Sandbox, address: str) -> None:  # noqa: ARG002 - the pod has the address
        """First contact, before any user code.

        Raises FleetError unless the pod's executor answers and isolates as asked.
        """
        time = asyncio.get_running_loop().time
        begun, patience = time(), math.inf if sandbox.state in GIVEN_UP_BY_SCHEDULER else LISTEN_SECONDS
        own = session_id(*sandbox.sandbox_uid.split("/"))
        while True:
            try:
                async with self._turn(Errand.CONTACT, sandbox):
                    await self._contacts.contact(self._executor(sandbox, own), isolation=sandbox.isolation, first=True)
            except Unreachable as error:
                waited, pod = time() - begun, self._pod(sandbox)
                # A finalizer of others may keep a pod that was given up.
                if waited > patience or (pod is not None and pod.deleting):
                    raise _failed(error) from error
                await asyncio.sleep(max(PAUSE, SHARE * waited))
            except ContactError as error:
                raise _failed(error) from error
            else:
                return

    async def prepared(self, sandbox: Sandbox) -> str:
        """The snapshot that a warm sandbox was filled with; empty: none. Raises FleetError."""
        own = session_id(*sandbox.sandbox_uid.split("/"))
        return (await self._described(sandbox, Errand.CONTACT, own)).prepared

    async def open(self, sandbox: Sandbox, lease: float) -> None:
        claim = sandbox.claim
        assert claim is not None
        async with self._executor_in_turn(sandbox, Errand.OPENING) as executor:
            if sandbox.untried and not sandbox.bound:
                await self._contacts.contact(executor, isolation=sandbox.isolation, first=True)
            found = await self._contacts.open(
                executor,
                lease=None if math.isinf(lease) else lease + claim.settles,
                # One that is to be suspended does not end by itself.
                idle_timeout=claim.idle_timeout if claim.on_idle == "end" else None,
                envs=claim.envs,
                limits=claim.limits,
                mounts=claim.mounts,
                traceparent=claim.traceparent,
            )
        if (missing := claim.mounts.keys() - found.mounts) and not sandbox.bound:
            why = f"its executor does not know of {min(missing)}, since its image is of an older release"
            raise ClaimReason.INVALID_CLAIM.error(f"cannot mount folders: {why}", sandbox.sandbox_id)

    async def lease_left(self, sandbox: Sandbox) -> float | None:
        """Seconds, by the executor's word; None where it has no lease of this session. Raises FleetError."""
        said = await self._described(sandbox, Errand.OPENING)
        return said.lease_left if said.session_id == self._session(sandbox) else None

    async def idle(self, sandbox: Sandbox) -> float | None:
        """Seconds since a caller has worked with it, by the executor's word; None while it is in use.

        Raises FleetError.
        """
        return (await self._described(sandbox, Errand.BACKGROUND)).idle

    async def suspend(self, sandbox: Sandbox, *, force: bool, unused: bool = False) -> session_pb2.Suspension:
        """The executor keeps what of the session outlives it. Raises FleetError."""
        async with self._executor_in_turn(sandbox, Errand.KEEPING) as executor:
            return await self._contacts.suspend(executor, force=force, unused=unused)

    async def resume(self, sandbox: Sandbox) -> session_pb2.Resumption | None:
        """What has come back, once that is done; None: nothing was kept. Raises FleetError."""
        async with self._executor_in_turn(sandbox, Errand.KEEPING) as executor:
            return await self._contacts.resume(executor)

    async def answers(self, sandbox: Sandbox) -> bool:
        with suppress(FleetError):
            await self._described(sandbox, Errand.OPENING)
            return True
        return False

    async def probe(self, sandbox: Sandbox, targets: Sequence[Target]) -> tuple[bool, ...]:
        """Which targets the sandbox's network reaches. Raises FleetError."""
        async with self._executor_in_turn(sandbox, Errand.BACKGROUND) as executor:
            return await self._contacts.probe(executor, targets)

    async def journal_head(self, sandbox: Sandbox) -> Head:
        """The newest record of the session's journal, by the executor's word. Raises FleetError."""
        async with self._executor_in_turn(sandbox, Errand.BACKGROUND) as executor:
            return await self._contacts.journal_head(executor)

    async def usage(self, sandbox: Sandbox) -> Reading:
        """What the session has used, by the executor's word. Raises FleetError."""
        async with self._executor_in_turn(sandbox, Errand.BACKGROUND) as executor:
            return await self._contacts.usage(executor)

    async def close(self, sandbox: Sandbox) -> None:
        """Nothing to do: deleting the pod ends all that runs in it."""

    async def forget(self, sandbox_uid: str) -> None:
        """Nothing to do: no connection is kept."""

    async def forget_all(self) -> None:
        """Nothing to do: no connection is kept."""

    def address(self, sandbox: Sandbox) -> str:
        return self._executor(sandbox, "").address

    def caller_token(self, sandbox: Sandbox, lifetime: float) -> Token:
        claim = sandbox.claim
        assert claim is not None
        return self._credentials.signer.issue(
            sandbox_id=self._session(sandbox),
            sandbox_uid=self._executor(sandbox, "").pod_uid,
            holder=claim.key.holder[:MAX_HOLDER],
            scopes=CALLER_SCOPES,
            lifetime=lifetime,
            contract=sandbox.contract,
        )

    def _session(self, sandbox: Sandbox) -> str:
        assert sandbox.claim is not None
        return session_id(sandbox.sandbox_id.partition("/")[0], object_of(sandbox.claim))

    async def _described(self, sandbox: Sandbox, errand: Errand, session: str = "") -> ExecutorDescription:
        """What an executor says of itself that was contacted before. Raises FleetError."""
        async with self._executor_in_turn(sandbox, errand, session) as executor:
            return await self._contacts.contact(executor, isolation=sandbox.isolation, first=False)

    @asynccontextmanager
    async def _executor_in_turn(self, sandbox: Sandbox, errand: Errand, session: str = "") -> AsyncIterator[Executor]:
        """The executor, asked for the sandbox's own session or another one. Raises FleetError."""
        session = session or self._session(sandbox)
        # A sandbox whose pod is gone waits for no turn.
        self._executor(sandbox, session)
        try:
            async with self._turn(errand, sandbox):
                yield self._executor(sandbox, session)
        except ContactError as error:
            raise _failed(error) from error

    @asynccontextmanager
    async def _turn(self, errand: Errand, sandbox: Sandbox) -> AsyncIterator[None]:
        """Raises Unreachable where it does not come in time."""
        pod = self._pod(sandbox)
        party = Party(sandbox.sandbox_uid.partition("/")[0], pod.node if pod else "")
        try:
            async with self._lanes[errand].turn(party, errand.patience):
                yield
        except NoTurnError as error:
            raise Unreachable(f"cannot reach the executor of {sandbox.sandbox_uid} yet: {error}") from error

    def _pod(self, sandbox: Sandbox) -> Pod | None:
        namespace, _, name = sandbox.sandbox_uid.partition("/")
        found = self._store.get(Ref(POD, namespace, name))
        return pod_of(found) if found else None

    def _executor(self, sandbox: Sandbox, session: str) -> Executor:
        pod = self._pod(sandbox)
        if pod is None or not pod.address:
            why = f"cannot reach the sandbox: pod {sandbox.sandbox_uid} {'has no address' if pod else 'is gone'}"
            raise ClaimReason.EXECUTOR_GONE.error(why, sandbox.sandbox_id)
        address = f"{pod.address}:{self._port}"
        trusts = EGRESS_SECRETS in pod.annotations
        return Executor(address=address, pod_uid=pod.uid, session_id=session, contract=sandbox.contract, trusts=trusts)


def _failed(error: ContactError) -> FleetError:
    if isinstance(error, ClaimInvalid):
        return ClaimReason.INVALID_CLAIM.error(str(error))
    code = Code.FAILED_PRECONDITION if isinstance(error, RuntimeMismatch) else Code.INTERNAL
    if isinstance(error, Unreachable):
        code = Code.UNAVAILABLE
    return FleetError(Problem(code, error.reason.value, str(error)))

"""The fleet's service as the client sees it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import replace
from functools import cached_property, partial
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, Unpack
from weakref import WeakValueDictionary

from sandfleet._arguments import checked
from sandfleet._calls import Opening
from sandfleet._fleets import claim, cluster, embedded, watch
from sandfleet._fleets.connection import FLEET_ENDED, FleetConnection
from sandfleet._fleets.package_hosts import resolved
from sandfleet._fleets.relay import Relay, Relays
from sandfleet._fleets.snapshots import TRANSFER_TIMEOUT, AsyncSnapshots
from sandfleet._wire import api
from sandfleet._wire.convert import common as convert
from sandfleet._wire.convert import egress as egress_messages
from sandfleet._wire.convert import journals
from sandfleet._wire.convert import marks as marks_of
from sandfleet._wire.convert import queues as queue_messages
from sandfleet._wire.convert import suspension as suspensions
from sandfleet._wire.link import Link
from sandfleet.errors import InvalidArgument, SandboxEnded, SandboxPreempted, SandboxSuspended
from sandfleet.journal.heads import KeptHeads
from sandfleet.observe import tracing
from sandfleet.values.egress import Egress
from sandfleet.values.options import DEFAULT_MAX_WAIT
from sandfleet.values.sandbox import Isolation

if TYPE_CHECKING:
    from sandfleet._fleets.cluster import Place
    from sandfleet._fleets.reviews import AsyncReviews
    from sandfleet.journal.heads import SignedHead
    from sandfleet.values.egress import EgressReport
    from sandfleet.values.fleet import Bound, Explanation, OnQueued, PoolInfo, QueueInfo, SandboxChange
    from sandfleet.values.options import ExplainOptions
    from sandfleet.values.sandbox import SandboxInfo
    from sandfleet.values.suspension import Resumption, Suspension
    from sandfleet.values.tools import Decision

_RPC_TIMEOUT = 30.0
# A session is suspended after its variables are saved.
_SUSPEND_TIMEOUT = 120.0
# How long a call other than a claim waits for a fleet that is away, in seconds.
_PATIENCE = 10.0
_LIST_LIMIT = 100_000


class AsyncFleet:
    """A fleet hands out sandboxes. Most programs need only `AsyncSandbox.create`, which finds a fleet by itself."""

    def __init__(
        self,
        address: str,
        place: Place | None = None,
        *,
        namespace: str = "",
        find: Callable[[str], Place] | None = None,
    ) -> None:
        """Use `connect`."""
        self._connection = FleetConnection(address, place, find)
        self._relays = Relays(self._connection)
        self._namespace = namespace

    @classmethod
    @checked
    def connect(
        cls,
        address: str | None = None,
        *,
        namespace: str | None = None,
        pool_size: int | None = None,
        max_sandboxes: int | None = None,
        isolation: Isolation | Literal["none", "namespace", "gvisor"] | None = None,
        preload: Sequence[str] | None = None,
        queues: str | PathLike[str] | None = None,
        ca_file: str | None = None,
        token_file: str | None = None,
    ) -> Opening[Self]:
        """Connect to a fleet: at `address`, else as the environment says (see `Sandbox.create`), else this process's
        own.

        address              "unix:/path"; "kubernetes": the fleet of this pod's cluster, or of kubectl's.
        ca_file, token_file  with them, `address` is the "host:port" of a cluster's fleet. The file has a Kubernetes
                             token for the audience sandfleet.
        namespace            the namespace of the fleet's sandboxes, unless a call names another.
        pool_size            number of warm sandboxes of this process's own fleet; None means SANDFLEET_POOL_SIZE.
        max_sandboxes        its largest number of sandboxes; None means SANDFLEET_MAX_SANDBOXES.
        isolation            its isolation; None means SANDFLEET_ISOLATION.
        preload              modules that are in the memory of each of its contexts from their start, as "pandas"; None
                             means SANDFLEET_PRELOAD. On a cluster the template names them.
        queues               a YAML file with its SandboxQueues, as kubectl applies them; None means SANDFLEET_QUEUES.

        A process's own fleet ("embedded") is started at its first use, once a process, and ends with it. Raises
        UnavailableError when the fleet cannot be found or started, InvalidArgument when it runs with other options.
        """
        found = address or os.environ.get("SANDFLEET_ADDRESS")
        if ca_file or token_file:
            return Opening(cls._of_named(found or "", ca_file or "", token_file or "", namespace))
        modules = None if preload is None else tuple(preload)
        asked = embedded.Options(
            pool_size,
            max_sandboxes,
            Isolation(isolation) if isolation else None,
            modules,
            Path(queues).absolute() if queues else None,
        )
        return Opening(cls._of_address(found, namespace, asked))

    @classmethod
    async def _of_address(cls, found: str | None, namespace: str | None, asked: embedded.Options) -> Self:
        """Connect to the fleet at an address, else to the environment's, else to this process's own."""
        chosen = asked == embedded.Options() and cluster.is_chosen(asked=namespace is not None)
        if found == cluster.KUBERNETES or (not found and chosen):
            return await cls._of_cluster(namespace)
        if not found:
            found = await asyncio.to_thread(embedded.start, asked.filled())
        made = cls(found)
        try:
            await made._connection.reach()
        except BaseException:  # Also a cancellation: the caller never gets it.
            await made.close()
            raise
        return made

    @classmethod
    async def _of_cluster(cls, namespace: str | None) -> Self:
        """Connect to the fleet of the environment's cluster, for sandboxes of a namespace. Raises UnavailableError."""
        where = namespace
        if not where:
            where = await asyncio.to_thread(cluster.sandbox_namespace)
        find = partial(cluster.find, where)
        place = await asyncio.to_thread(find)
        return cls(place.address, place, namespace=where, find=find)

    @classmethod
    async def _of_named(cls, address: str, ca_file: str, token_file: str, namespace: str | None) -> Self:
        """Connect to the fleet of a cluster at this address. Raises UnavailableError."""

        def find(_: str) -> Place:
            return cluster.named(address, ca_file, token_file)

        where = namespace or cluster.sandbox_namespace(ask_kubectl=False)
        return cls(address, find(address), namespace=where, find=find)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.address})"

    @property
    def address(self) -> str:
        """The fleet's address: "unix:/path" or "host:port"."""
        return self._connection.address

    @property
    def connection(self) -> FleetConnection:
        """The connection that its calls use."""
        return self._connection

    @property
    def is_on_cluster(self) -> bool:
        """Whether it is the fleet of a Kubernetes cluster."""
        return self._connection.place is not None

    @property
    def namespace(self) -> str:
        """The namespace of its sandboxes, unless a call names another; "" on one machine."""
        return self._namespace

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connection. Sandboxes, and an embedded fleet, keep running."""
        await self._relays.close()
        await self._connection.close()

    @cached_property
    def reviews(self) -> AsyncReviews:
        """What waits for approval in its reviewed sandboxes."""
        from sandfleet._fleets.reviews import AsyncReviews

        return AsyncReviews(self._connection, self._namespace)

    @cached_property
    def snapshots(self) -> AsyncSnapshots:
        """Sessions that were saved, with their files and variables."""
        return AsyncSnapshots(self._connection, self._namespace)

    @checked
    async def pools(self, *, namespace: str | None = None) -> tuple[PoolInfo, ...]:
        """List the pools of a namespace, by name: None means the fleet's, "" all of them."""
        request = api.fleet.ListPoolsRequest(namespace=self._in(namespace))
        answer = await self._call("ListPools", request, _RPC_TIMEOUT)
        return tuple(map(convert.pool, answer.pools))

    @checked
    async def queues(self, *, namespace: str | None = None) -> tuple[QueueInfo, ...]:
        """List the queues of a namespace, by name: None means the fleet's, "" all of them."""
        request = api.fleet.ListQueuesRequest(namespace=self._in(namespace))
        answer = await self._call("ListQueues", request, _RPC_TIMEOUT)
        return tuple(map(queue_messages.queue, answer.queues))

    @checked
    async def explain(
        self,
        *,
        sandbox_id: str = "",
        request_id: str = "",
        namespace: str | None = None,
        **options: Unpack[ExplainOptions],
    ) -> Explanation:
        """Explain why a claim waits and what would let it in: of a sandbox, or the one of a request id.

        With neither, of a claim that is not made: what would become of it. Its `options` are in `ExplainOptions`:
        template, pool, queue, priority. Raises InvalidArgument, SandboxEnded, NotFoundError (the caller has no such
        claim).
        """
        where = self._in(namespace)
        if bool(sandbox_id) + bool(request_id) + bool(options) > 1:
            why = "name a sandbox_id, a request_id, or a claim that is not made"
            raise InvalidArgument(f"cannot explain more than one thing at once: {why}", reason="InvalidArgument")
        if sandbox_id:
            request = api.fleet.ExplainRequest(sandbox_id=sandbox_id)
        elif request_id:
            request = api.fleet.ExplainRequest(request_id=request_id, namespace=where)
        else:
            request = api.fleet.ExplainRequest(claim=claim.imagined(options, where))
        return queue_messages.explanation(await self._call("Explain", request, _RPC_TIMEOUT))

    @checked
    async def watch(self, label_selector: str = "", *, namespace: str | None = None) -> AsyncIterator[SandboxChange]:
        """Yield changes of sandboxes: first each existing sandbox, then `synced`, then every change, without end.

        `namespace`: None means the fleet's, "" all. After a broken connection the watch reconnects and reports the
        current state, without the steps in between. Raises UnavailableError when that takes too long, SandboxError with
        the reason Unimplemented on one machine.
        """
        request = api.fleet.WatchRequest(label_selector=label_selector, namespace=self._in(namespace))
        async for change in watch.changes(self._connection, request):
            yield change

    async def list_within(
        self, label_selector: str, wait: float, namespace: str | None = None, *, warm: bool = False
    ) -> list[SandboxInfo]:
        """List sandboxes; each page within `wait` seconds."""
        found: list[SandboxInfo] = []
        request = api.fleet.ListRequest(
            label_selector=label_selector, page_size=1000, namespace=self._in(namespace), warm=warm
        )
        while True:
            page = await self._call("List", request, wait)
            found += map(convert.sandbox, page.sandboxes)
            if not page.next_page_token or len(found) >= _LIST_LIMIT:
                return found
            request.page_token = page.next_page_token

    @checked
    async def list(
        self, label_selector: str = "", *, namespace: str | None = None, warm: bool = False
    ) -> list[SandboxInfo]:
        """List the sandboxes of sessions whose labels match "key=value,key2=value2". Raises InvalidArgument.

        `namespace`, on Kubernetes: None means the fleet's, "" all. `warm`, on one machine: also those that no session
        has yet (see `pools`).
        """
        return await self.list_within(label_selector, _RPC_TIMEOUT, namespace, warm=warm)

    @checked
    async def get(self, sandbox_id: str) -> SandboxInfo:
        """Describe a sandbox. Raises SandboxEnded."""
        return await self.get_within(sandbox_id, _RPC_TIMEOUT)

    @checked
    async def release(self, sandbox_id: str, *, unless_suspended: bool = False) -> bool:
        """End a sandbox. Returns whether it existed; releasing an ended sandbox is no error.

        `unless_suspended` leaves a suspended session as it is, and returns False then.
        """
        request = api.fleet.ReleaseRequest(sandbox_id=sandbox_id, unless_suspended=unless_suspended)
        try:
            answer = await self._call("Release", request, _RPC_TIMEOUT)
        except SandboxEnded:
            return False
        self._take_signed(sandbox_id, answer.journal_heads)
        if answer.released:
            embedded.asleep.pop(sandbox_id, None)
        return bool(answer.released)

    async def get_within(self, sandbox_id: str, wait: float) -> SandboxInfo:
        """Describe a sandbox, within `wait` seconds."""
        request = api.fleet.GetRequest(sandbox_id=sandbox_id)
        return convert.sandbox((await self._call("Get", request, wait)).sandbox)

    async def access(self, sandbox_id: str, *, wait: float) -> tuple[api.fleet.Sandbox, api.fleet.Access]:
        """Open a sandbox; waits for an executor that is being replaced. Raises SandboxEnded."""
        request = api.fleet.GetRequest(sandbox_id=sandbox_id, with_access=True)
        answer = await self._call("Get", request, wait)
        await self._relays.look(answer.access)
        return answer.sandbox, answer.access

    def relay(self, sandbox_id: str, access: api.fleet.Access) -> Relay | None:
        """Return the way to a sandbox's executor if its own address cannot be reached from here."""
        return self._relays.to(sandbox_id, access)

    async def check_gateway(self) -> None:
        """Ask the gateway, and the fleet behind it. Raises SandfleetError unless both answer."""
        await self._relays.check()

    async def renew(self, sandbox_id: str, lease: float | None) -> tuple[api.fleet.Sandbox, api.fleet.Access]:
        """Renew the lease for so many seconds (None: as at the claim), and get a new token. Raises SandboxEnded."""
        request = api.fleet.RenewRequest(sandbox_id=sandbox_id, lease=convert.seconds(lease))
        answer = await self._call("Renew", request, _RPC_TIMEOUT)
        self._take_signed(sandbox_id, answer.journal_heads)
        return answer.sandbox, answer.access

    async def open_claim(
        self, request: api.fleet.ClaimRequest, *, rpc_timeout: float, on_queued: OnQueued | None = None
    ) -> tuple[Link, Bound]:
        """Claim a sandbox and open it. Raises ClaimError, InvalidArgument, AccessDenied, UnavailableError."""
        request.namespace = request.namespace or self._namespace
        with tracing.call(*tracing.rpc(request.DESCRIPTOR)) as span:
            bound = await claim.claim(self._connection, request, on_queued)
            span.set("sandfleet.sandbox.id", bound.sandbox.sandbox_id)
        return await self._link(bound, rpc_timeout), convert.bound(bound)

    @checked
    async def suspend(
        self,
        sandbox_id: str,
        *,
        force: bool = False,
        timeout: float | None = None,
        to: Literal["volume", "snapshot"] = "volume",
    ) -> Suspension:
        """Suspend a session by its id, as `Sandbox.suspend` does."""
        request = suspensions.suspend_request(sandbox_id, force=force, timeout=timeout, to=to)
        wait = _SUSPEND_TIMEOUT if to == "volume" else TRANSFER_TIMEOUT
        kept = suspensions.suspension(await self._call("Suspend", request, wait))
        if to == "snapshot" or self.address != embedded.running():
            return kept
        embedded.asleep[sandbox_id] = kept.until
        return replace(kept, ends_with_process=True)

    async def open_resumed(
        self, sandbox_id: str, *, max_wait: float, rpc_timeout: float, on_queued: OnQueued | None = None
    ) -> tuple[Link, Bound, Resumption]:
        """Take a suspended session on, and open it. Raises SandboxEnded, ClaimError, UnavailableError."""
        request = api.fleet.ResumeRequest(sandbox_id=sandbox_id, max_wait=convert.seconds(max_wait))
        with tracing.call(*tracing.rpc(request.DESCRIPTOR)):
            answer = await claim.resume(self._connection, request, on_queued)
        embedded.asleep.pop(sandbox_id, None)
        link = await self._link(answer.bound, rpc_timeout)
        return link, convert.bound(answer.bound), suspensions.resumption(answer)

    async def wake(self, sandbox_id: str, *, wait: float) -> tuple[api.fleet.Sandbox, api.fleet.Access]:
        """Open a sandbox as `access` does; one that sleeps is resumed. Raises SandboxEnded, ClaimError, too."""
        try:
            return await self.access(sandbox_id, wait=wait)
        except SandboxPreempted:
            raise
        except (SandboxSuspended, SandboxEnded) as error:
            if error.reason == FLEET_ENDED:
                raise
            request = api.fleet.ResumeRequest(sandbox_id=sandbox_id, max_wait=convert.seconds(DEFAULT_MAX_WAIT))
            try:
                bound = (await claim.resume(self._connection, request, None)).bound
                embedded.asleep.pop(sandbox_id, None)
            except SandboxEnded:
                raise error from None
            return bound.sandbox, bound.access

    async def note_received(self, sandbox_id: str, marks: Sequence[str] = ()) -> frozenset[str]:
        """Add marks ("untrusted", "secret") that never fall, as tool servers do; return all. Raises SandfleetError."""
        numbers: Any = marks_of.numbers(marks)
        request = api.fleet.NoteReceivedRequest(sandbox_id=sandbox_id, marks=numbers)
        return marks_of.words((await self._call("NoteReceived", request, _RPC_TIMEOUT)).marks)

    async def review_call(self, request: api.fleet.ReviewCallRequest) -> Decision:
        """Wait until reviewers have decided about a call of a tool. Raises SandfleetError."""
        from sandfleet._fleets.reviews import decision

        return await decision(self._connection, request)

    @cached_property
    def _heads(self) -> WeakValueDictionary[str, KeptHeads]:
        """By the ids of sandboxes, as long as an object of one lives."""
        return WeakValueDictionary()

    async def sign_journal(self, sandbox_id: str) -> tuple[SignedHead, ...]:
        """Have the newest head of a sandbox's journal read and signed. Raises PreconditionFailed, SandboxEnded."""
        request = api.fleet.CountersignJournalRequest(sandbox_id=sandbox_id)
        return journals.signed((await self._call("CountersignJournal", request, _RPC_TIMEOUT)).heads)

    def keeping_heads(self, link: Link) -> Link:
        """Return the link, which from now on knows the heads that other links to its sandbox know."""
        link.heads = self._heads.setdefault(link.sandbox_id, link.heads)
        return link

    @checked
    async def get_egress(self, sandbox_id: str) -> EgressReport:
        """Return what a sandbox may reach by name, and what its programs have tried. Raises SandboxEnded."""
        request = api.egress.GetEgressRequest(sandbox_id=sandbox_id)
        return egress_messages.report(await self._egress_call("GetEgress", request))

    @checked
    async def set_egress(self, sandbox_id: str, egress: Egress | Sequence[str]) -> None:
        """Replace what a sandbox may reach, as `Sandbox.set_egress` does, by its id."""
        if isinstance(egress, Egress):
            egress = await resolved(egress)
        request = api.egress.SetEgressRequest(sandbox_id=sandbox_id, names=egress_messages.names(egress))
        await self._egress_call("SetEgress", request)

    async def _egress_call(self, name: str, request: api.message.Message) -> Any:
        return await self._connection.unary(name, request, _RPC_TIMEOUT, 0.0, stub=api.egress_grpc.EgressServiceStub)

    def _take_signed(self, sandbox_id: str, heads: Iterable[api.fleet.JournalHead]) -> None:
        if (kept := self._heads.get(sandbox_id)) is not None:
            kept.keep_signed(journals.signed(heads))

    async def _link(self, bound: api.fleet.Bound, rpc_timeout: float) -> Link:
        await self._relays.look(bound.access)
        return self.keeping_heads(Link(self, bound.sandbox, bound.access, rpc_timeout=rpc_timeout))

    def _in(self, namespace: str | None) -> str:
        return self._namespace if namespace is None else namespace

    async def _call(self, name: str, request: api.message.Message, wait: float) -> Any:
        """Make a call that may be made twice. Each attempt has `wait` seconds."""
        return await self._connection.unary(name, request, wait, min(wait, _PATIENCE))

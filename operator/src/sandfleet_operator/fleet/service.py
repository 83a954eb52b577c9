"""The gRPC face of the fleet: messages in and out, no decisions."""

from collections.abc import AsyncIterator, Awaitable
from dataclasses import replace
from typing import NoReturn, TypeVar

import grpc
from sandfleet_api.fleet.v1 import fleet_pb2
from sandfleet_api.fleet.v1.fleet_pb2_grpc import FleetServiceServicer

from sandfleet_operator.api.errors import Code, FleetError, Problem, invalid
from sandfleet_operator.api.validate import MAX_LEASE, check_duration, check_id
from sandfleet_operator.api.values import Isolation, Sandbox, Template
from sandfleet_operator.effects.telemetry import ClaimSpan
from sandfleet_operator.fleet import convert
from sandfleet_operator.fleet.loop import Fleet
from sandfleet_operator.fleet.watches import Watch
from sandfleet_operator.plan.queue import Queued

DEFAULT_PAGE, MAX_PAGE = 100, 1000
MAX_SELECTOR_BYTES = 16 << 10
NO_NETWORK = fleet_pb2.EgressStatus(
    state=fleet_pb2.EGRESS_STATE_DENIED, reason="NoNetwork", message="it has no network but its own loopback"
)
MACHINES_NETWORK = fleet_pb2.EgressStatus(
    reason="MachinesNetwork", message="nothing keeps it from the machine's network"
)
# Characters of what a refusal says.
MAX_MESSAGE = 1000

Context = grpc.aio.ServicerContext[object, object]
T = TypeVar("T")


class FleetServicer(FleetServiceServicer):
    """`holder` is whom the transport lets in: on one machine the owner of the socket's private directory."""

    def __init__(self, fleet: Fleet, template: Template, holder: str) -> None:
        self._fleet = fleet
        self._template = template
        self._holder = holder

    async def Claim(self, request: fleet_pb2.ClaimRequest, context: Context) -> AsyncIterator[fleet_pb2.ClaimResponse]:  # noqa: N802 - gRPC's name
        span = ClaimSpan(metadata_text(context, "traceparent"), request.request_id, request.template)
        try:
            claim = convert.claim(request, self._holder, self._template, span.traceparent)
            self._check_of_one_machine(request)
            watch = self._fleet.claim(claim)
            # Called however the stream ends; a generator that nobody asks again might not be told.
            context.add_done_callback(lambda _: watch.leave())  # type: ignore[arg-type] # the stubs want generics that are none
            async for response in self._responses(watch, span):
                yield response
        except FleetError as error:
            span.failed(error.problem.reason, str(error))
            await abort(context, error.problem)
        finally:
            span.end()

    def _check_of_one_machine(self, request: fleet_pb2.ClaimRequest) -> None:
        """See that nothing is asked for that only a cluster has. A pool is called as its template here. Raises FleetError."""
        if request.name:
            why = "sandboxes of one machine have the names that it makes up"
            raise invalid("NoCluster", f"cannot claim with the name {request.name[:80]!r}: {why}")
        _check_no_namespace(request.namespace, doing="claim")
        if request.pool and {request.pool, request.template} - {""} != {self._template.name}:
            what = f"pool {request.pool[:80]!r}" + (
                f" of template {request.template[:80]!r}" if request.template else ""
            )
            raise FleetError(
                Problem(Code.NOT_FOUND, "PoolNotFound", f"cannot claim: there is no {what} on one machine")
            )

    async def _responses(self, watch: Watch, span: ClaimSpan) -> AsyncIterator[fleet_pb2.ClaimResponse]:
        sequence = 0
        while True:
            sequence += 1
            news = await watch.next()
            if not isinstance(news, Queued):
                span.bound(news.sandbox_id, warm=news.warm)
                yield fleet_pb2.ClaimResponse(sequence=sequence, bound=await self._bound(news))
                return
            span.queued(news.position, news.reason)
            yield fleet_pb2.ClaimResponse(sequence=sequence, queued=convert.queued_message(news))

    async def _bound(self, sandbox: Sandbox) -> fleet_pb2.Bound:
        # A claim that is asked again may find its sandbox recovering.
        present = await self._fleet.get(sandbox.sandbox_id, reachable=False)
        return fleet_pb2.Bound(
            sandbox=_message(present),
            access=self._access(present),
            warm=present.warm,
            egress=_message(present).egress.state,
        )

    async def Release(self, request: fleet_pb2.ReleaseRequest, context: Context) -> fleet_pb2.ReleaseResponse:  # noqa: N802 - gRPC's name
        return await _or_abort(self._release(request), context)

    async def _release(self, request: fleet_pb2.ReleaseRequest) -> fleet_pb2.ReleaseResponse:
        check_id(request.sandbox_id, "sandbox id", doing="release")
        return fleet_pb2.ReleaseResponse(released=await self._fleet.release(request.sandbox_id))

    async def Renew(self, request: fleet_pb2.RenewRequest, context: Context) -> fleet_pb2.RenewResponse:  # noqa: N802 - gRPC's name
        return await _or_abort(self._renew(request), context)

    async def _renew(self, request: fleet_pb2.RenewRequest) -> fleet_pb2.RenewResponse:
        check_id(request.sandbox_id, "sandbox id", doing="renew the lease")
        lease = convert.seconds(request, "lease")
        if lease is not None:
            check_duration(lease, "lease", most=MAX_LEASE, doing="renew the lease")
        sandbox = await self._fleet.renew(request.sandbox_id, lease)
        return fleet_pb2.RenewResponse(sandbox=_message(sandbox), access=self._access(sandbox))

    async def Get(self, request: fleet_pb2.GetRequest, context: Context) -> fleet_pb2.GetResponse:  # noqa: N802 - gRPC's name
        return await _or_abort(self._get(request), context)

    async def _get(self, request: fleet_pb2.GetRequest) -> fleet_pb2.GetResponse:
        check_id(request.sandbox_id, "sandbox id", doing="get")
        sandbox = await self._fleet.get(request.sandbox_id, reachable=request.with_access)
        access = self._access(sandbox) if request.with_access else None
        return fleet_pb2.GetResponse(sandbox=_message(sandbox), access=access)

    async def List(self, request: fleet_pb2.ListRequest, context: Context) -> fleet_pb2.ListResponse:  # noqa: N802 - gRPC's name
        return await _or_abort(self._list(request), context)

    async def _list(self, request: fleet_pb2.ListRequest) -> fleet_pb2.ListResponse:
        _check_no_namespace(request.namespace, doing="list")
        if request.page_token:
            check_id(request.page_token, "page token", doing="list")
        if len(request.label_selector) > MAX_SELECTOR_BYTES:
            raise invalid(
                "InvalidSelector", f"cannot list: the selector is longer than {MAX_SELECTOR_BYTES} characters"
            )
        size = min(request.page_size or DEFAULT_PAGE, MAX_PAGE)
        found = self._fleet.select(request.label_selector, request.page_token, size + 1)
        page = found[:size]
        following = page[-1].sandbox_id if len(found) > size else ""
        return fleet_pb2.ListResponse(sandboxes=[_message(one) for one in page], next_page_token=following)

    async def Watch(self, request: fleet_pb2.WatchRequest, context: Context) -> AsyncIterator[fleet_pb2.WatchResponse]:  # noqa: ARG002, N802 - gRPC's name
        why = "cannot watch: only the sandboxes of a cluster can be watched; list those of one machine"
        await abort(context, Problem(Code.UNIMPLEMENTED, "Unimplemented", why))
        yield fleet_pb2.WatchResponse()

    async def ListPools(self, request: fleet_pb2.ListPoolsRequest, context: Context) -> fleet_pb2.ListPoolsResponse:  # noqa: N802 - gRPC's name
        return await _or_abort(self._list_pools(request), context)

    async def _list_pools(self, request: fleet_pb2.ListPoolsRequest) -> fleet_pb2.ListPoolsResponse:
        _check_no_namespace(request.namespace, doing="list pools")
        return fleet_pb2.ListPoolsResponse(pools=[convert.pool_message(*one) for one in self._fleet.pools()])

    def _access(self, sandbox: Sandbox) -> fleet_pb2.Access:
        return convert.access_message(*self._fleet.access(sandbox))


def _message(sandbox: Sandbox) -> fleet_pb2.Sandbox:
    message = convert.sandbox_message(sandbox)
    message.egress.CopyFrom(MACHINES_NETWORK if sandbox.isolation is Isolation.NONE else NO_NETWORK)
    return message


def _check_no_namespace(namespace: str, *, doing: str) -> None:
    """Raises FleetError where one is named."""
    if namespace:
        raise invalid(
            "NoCluster", f"cannot {doing} in namespace {namespace[:80]!r}: this fleet is of one machine, which has none"
        )


async def _or_abort(work: Awaitable[T], context: Context) -> T:
    try:
        return await work
    except FleetError as error:
        await abort(context, error.problem)


async def abort(context: Context, problem: Problem) -> NoReturn:
    # What a caller has said may stand in it; gRPC gives up a call whose answer does not fit its metadata.
    problem = replace(problem, message=problem.message[:MAX_MESSAGE], subject=problem.subject[:MAX_MESSAGE])
    detail = convert.error_detail(problem).SerializeToString()
    await context.abort(grpc.StatusCode[problem.code.name], problem.message, (("sandfleet-error-bin", detail),))
    raise AssertionError("abort never returns")


def metadata_text(context: Context, name: str) -> str:
    return next((str(value) for key, value in context.invocation_metadata() or () if key == name), "")

"""The fleet's API over CodeSandboxes. Each call says who the caller is and what it may do before anything is looked at."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import TypeVar, cast

from sandfleet_api.fleet.v1 import fleet_pb2
from sandfleet_api.fleet.v1.fleet_pb2_grpc import FleetServiceServicer

from sandfleet_operator.api.errors import Code, FleetError, Problem, invalid
from sandfleet_operator.api.kube import CODE_SANDBOX, KubeError, NotFound, Ref
from sandfleet_operator.api.parse import code_sandbox
from sandfleet_operator.api.resources import CodeSandbox
from sandfleet_operator.api.selectors import parse_selector
from sandfleet_operator.effects.contact import Credentials
from sandfleet_operator.effects.kubeapi import KubeApi
from sandfleet_operator.effects.reviews import Caller, Reviews
from sandfleet_operator.effects.telemetry import ClaimSpan
from sandfleet_operator.effects.tokens import CALLER_SCOPES
from sandfleet_operator.fleet import convert
from sandfleet_operator.fleet.kubernetes import view
from sandfleet_operator.fleet.kubernetes.claims import CONNECT, MAX_HOLDER, Claims
from sandfleet_operator.fleet.kubernetes.fleet import KubernetesFleet
from sandfleet_operator.fleet.service import DEFAULT_PAGE, MAX_PAGE, MAX_SELECTOR_BYTES, Context, abort, metadata_text
from sandfleet_operator.plan.session import session_id

# Seconds: so long does a caller's access outlive its rights. Clients fetch the next one by themselves.
TOKEN_LIFETIME = 900.0
BEARER = "Bearer "
T = TypeVar("T")


class KubernetesFleetServicer(FleetServiceServicer):
    def __init__(self, kube: KubeApi, reviews: Reviews, credentials: Credentials, kubernetes: KubernetesFleet) -> None:
        self._kube = kube
        self._reviews = reviews
        self._credentials = credentials
        self._claims = Claims(kube, kubernetes, reviews, credentials)

    async def Get(self, request: fleet_pb2.GetRequest, context: Context) -> fleet_pb2.GetResponse:  # noqa: N802 - gRPC's name
        return await self._answer(context, lambda caller: self._get(caller, request))

    async def List(self, request: fleet_pb2.ListRequest, context: Context) -> fleet_pb2.ListResponse:  # noqa: N802 - gRPC's name
        return await self._answer(context, lambda caller: self._list(caller, request))

    async def Claim(self, request: fleet_pb2.ClaimRequest, context: Context) -> AsyncIterator[fleet_pb2.ClaimResponse]:  # noqa: N802 - gRPC's name
        span = ClaimSpan(metadata_text(context, "traceparent"), request.request_id, request.template or request.pool)
        try:
            caller = await self._reviews.authenticate(_token(context))
            watch = await self._claims.ask(caller, request, span)
            # Called however the stream ends; a generator that nobody asks again might not be told.
            context.add_done_callback(lambda _: watch.leave())  # type: ignore[arg-type] # the stubs want generics that are none
            async for response in self._claims.responses(caller, watch, span):
                yield response
        except FleetError as error:
            span.failed(error.problem.reason, str(error))
            await abort(context, error.problem)
        except KubeError as error:
            span.failed("ApiServerFailed", str(error))
            await abort(context, _api_server_failed(error))
        finally:
            span.end()

    async def Release(self, request: fleet_pb2.ReleaseRequest, context: Context) -> fleet_pb2.ReleaseResponse:  # noqa: N802 - gRPC's name
        return await self._answer(context, lambda caller: self._release(caller, request))

    async def _release(self, caller: Caller, request: fleet_pb2.ReleaseRequest) -> fleet_pb2.ReleaseResponse:
        namespace, name = view.parse_id(request.sandbox_id, doing="release")
        await self._reviews.authorize(caller, "delete", namespace, name)
        released = await self._claims.release(request.sandbox_id)
        if released is None:
            # Of somebody who made it with kubectl, or of a claim that is over.
            released = await self._kube.delete(Ref(CODE_SANDBOX, namespace, name))
        return fleet_pb2.ReleaseResponse(released=released)

    async def Renew(self, request: fleet_pb2.RenewRequest, context: Context) -> fleet_pb2.RenewResponse:  # noqa: N802 - gRPC's name
        return await self._answer(context, lambda caller: self._renew(caller, request))

    async def _renew(self, caller: Caller, request: fleet_pb2.RenewRequest) -> fleet_pb2.RenewResponse:
        renewed = await self._claims.renew(caller, request)
        if renewed is not None:
            return renewed
        namespace, name = view.parse_id(request.sandbox_id, doing="renew the lease")
        # NOT_FOUND where it has ended.
        await self._read(namespace, name)
        text = "it lives for its lifetimeSeconds, or until the CodeSandbox is deleted"
        why = f"cannot renew the lease: sandbox {request.sandbox_id} has none; {text}"
        raise FleetError(Problem(Code.FAILED_PRECONDITION, "NoLease", why, request.sandbox_id))

    async def Watch(self, request: fleet_pb2.WatchRequest, context: Context) -> AsyncIterator[fleet_pb2.WatchResponse]:  # noqa: N802 - gRPC's name
        try:
            caller = await self._reviews.authenticate(_token(context))
            await self._reviews.authorize(caller, "watch", request.namespace, "")
            matches = parse_selector(request.label_selector)
            async for response in self._claims.watch(request.namespace, matches):
                yield response
        except FleetError as error:
            await abort(context, error.problem)

    async def ListPools(self, request: fleet_pb2.ListPoolsRequest, context: Context) -> fleet_pb2.ListPoolsResponse:  # noqa: N802 - gRPC's name
        return await self._answer(context, lambda caller: self._list_pools(caller, request))

    async def _list_pools(self, caller: Caller, request: fleet_pb2.ListPoolsRequest) -> fleet_pb2.ListPoolsResponse:
        await self._reviews.authorize(caller, "list", request.namespace, "")
        return fleet_pb2.ListPoolsResponse(pools=self._claims.pools(request.namespace))

    async def _answer(self, context: Context, work: Callable[[Caller], Awaitable[T]]) -> T:
        """The one way in: nothing is done for a caller that nobody knows."""
        try:
            return await work(await self._reviews.authenticate(_token(context)))
        except FleetError as error:
            await abort(context, error.problem)
        except KubeError as error:
            await abort(context, _api_server_failed(error))

    async def _get(self, caller: Caller, request: fleet_pb2.GetRequest) -> fleet_pb2.GetResponse:
        namespace, name = view.parse_id(request.sandbox_id, doing="get")
        await self._reviews.authorize(caller, "get", namespace, name)
        if request.with_access:
            # To run code is more than to look: as pods/exec is more than pods.
            await self._reviews.authorize(caller, "create", namespace, name, CONNECT)
        known = self._claims.known(request.sandbox_id)
        if known is not None:
            # No question to the API server, also while the CodeSandbox is not written yet.
            present = await self._claims.reachable(known)
            access = self._claims.access(caller, present) if request.with_access else None
            return fleet_pb2.GetResponse(sandbox=self._claims.message(present), access=access)
        sandbox = await self._read(namespace, name)
        access = self._access(caller, sandbox) if request.with_access else None
        return fleet_pb2.GetResponse(sandbox=self._claims.described(sandbox), access=access)

    async def _read(self, namespace: str, name: str) -> CodeSandbox:
        try:
            return code_sandbox(await self._kube.get(Ref(CODE_SANDBOX, namespace, name)))
        except NotFound as error:
            identity = f"{namespace}/{name}"
            text = f"cannot get sandbox {identity}: there is no CodeSandbox {name} in namespace {namespace}"
            raise FleetError(Problem(Code.NOT_FOUND, "SandboxNotFound", text, identity)) from error

    def _access(self, caller: Caller, sandbox: CodeSandbox) -> fleet_pb2.Access:
        door = view.door(sandbox)
        token = self._credentials.signer.issue(
            sandbox_id=session_id(sandbox.meta.namespace, sandbox.meta.name),
            sandbox_uid=door.pod_uid,
            holder=caller.username[:MAX_HOLDER],
            scopes=CALLER_SCOPES,
            lifetime=TOKEN_LIFETIME,
        )
        access = convert.access_message(door.address, token)
        access.ca_pem = self._credentials.authority.pem
        return access

    async def _list(self, caller: Caller, request: fleet_pb2.ListRequest) -> fleet_pb2.ListResponse:
        if request.page_token:
            view.parse_id(request.page_token, doing="list")
        if len(request.label_selector) > MAX_SELECTOR_BYTES:
            text = f"cannot list: the selector is longer than {MAX_SELECTOR_BYTES} characters"
            raise invalid("InvalidSelector", text)
        # The same selectors as everywhere; the API server would take more kinds of them.
        parse_selector(request.label_selector)
        await self._reviews.authorize(caller, "list", request.namespace, "")
        found = (await self._kube.list(CODE_SANDBOX, request.namespace or None, request.label_selector)).items
        after = sorted((one for one in map(code_sandbox, found)), key=view.sandbox_id)
        rest = [one for one in after if view.sandbox_id(one) > request.page_token]
        size = min(request.page_size or DEFAULT_PAGE, MAX_PAGE)
        following = view.sandbox_id(rest[size - 1]) if len(rest) > size else ""
        return fleet_pb2.ListResponse(sandboxes=map(self._claims.described, rest[:size]), next_page_token=following)


def _api_server_failed(error: KubeError) -> Problem:
    text = f"cannot serve: the API server answered {error.status} {error.reason}"
    return Problem(Code.UNAVAILABLE, "ApiServerFailed", text)


def _token(context: Context) -> str:
    """Of the one `authorization`; several are none."""
    metadata = cast("Iterable[tuple[str, str | bytes]]", context.invocation_metadata() or ())
    said = [value for key, value in metadata if key == "authorization"]
    text = said[0] if len(said) == 1 and isinstance(said[0], str) else ""
    return text.removeprefix(BEARER) if text.startswith(BEARER) else ""

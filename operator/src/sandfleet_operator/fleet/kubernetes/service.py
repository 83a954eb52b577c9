"""The fleet's API over CodeSandboxes. Each call says who the caller is and what it may do before anything is looked at."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import NoReturn, TypeVar, cast

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
from sandfleet_operator.effects.tokens import CALLER_SCOPES
from sandfleet_operator.fleet import convert
from sandfleet_operator.fleet.kubernetes import view
from sandfleet_operator.fleet.service import DEFAULT_PAGE, MAX_PAGE, MAX_SELECTOR_BYTES, Context, abort
from sandfleet_operator.plan.session import session_id

# Seconds: so long does a caller's access outlive its rights. Clients fetch the next one by themselves.
TOKEN_LIFETIME = 900.0
MAX_HOLDER = 256
BEARER = "Bearer "
T = TypeVar("T")

# The subresource that roles name; nothing is served under it.
CONNECT = "connect"


class KubernetesFleetServicer(FleetServiceServicer):
    def __init__(self, kube: KubeApi, reviews: Reviews, credentials: Credentials) -> None:
        self._kube = kube
        self._reviews = reviews
        self._credentials = credentials

    async def Get(self, request: fleet_pb2.GetRequest, context: Context) -> fleet_pb2.GetResponse:  # noqa: N802 - gRPC's name
        return await self._answer(context, lambda caller: self._get(caller, request))

    async def List(self, request: fleet_pb2.ListRequest, context: Context) -> fleet_pb2.ListResponse:  # noqa: N802 - gRPC's name
        return await self._answer(context, lambda caller: self._list(caller, request))

    async def Claim(self, request: fleet_pb2.ClaimRequest, context: Context) -> AsyncIterator[fleet_pb2.ClaimResponse]:  # noqa: N802, ARG002 - gRPC's name
        yield await self._answer(context, lambda _: _refuse("claim", "make a CodeSandbox and connect to it"))

    async def Release(self, request: fleet_pb2.ReleaseRequest, context: Context) -> fleet_pb2.ReleaseResponse:  # noqa: N802, ARG002 - gRPC's name
        return await self._answer(context, lambda _: _refuse("release", "delete the CodeSandbox"))

    async def Renew(self, request: fleet_pb2.RenewRequest, context: Context) -> fleet_pb2.RenewResponse:  # noqa: N802, ARG002 - gRPC's name
        why = "the sandbox lives for its lifetimeSeconds, or until the CodeSandbox is deleted"
        return await self._answer(context, lambda _: _refuse("renew", why))

    async def _answer(self, context: Context, work: Callable[[Caller], Awaitable[T]]) -> T:
        """The one way in: nothing is done for a caller that nobody knows."""
        try:
            return await work(await self._reviews.authenticate(_token(context)))
        except FleetError as error:
            await abort(context, error.problem)
        except KubeError as error:
            text = f"cannot serve: the API server answered {error.status} {error.reason}"
            await abort(context, Problem(Code.UNAVAILABLE, "ApiServerFailed", text))

    async def _get(self, caller: Caller, request: fleet_pb2.GetRequest) -> fleet_pb2.GetResponse:
        namespace, name = view.parse_id(request.sandbox_id, doing="get")
        await self._reviews.authorize(caller, "get", namespace, name)
        if request.with_access:
            # To run code is more than to look: as pods/exec is more than pods.
            await self._reviews.authorize(caller, "create", namespace, name, CONNECT)
        sandbox = await self._read(namespace, name)
        access = self._access(caller, sandbox) if request.with_access else None
        return fleet_pb2.GetResponse(sandbox=view.message(sandbox), access=access)

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
        await self._reviews.authorize(caller, "list", "", "")
        found = (await self._kube.list(CODE_SANDBOX, None, request.label_selector)).items
        after = sorted((one for one in map(code_sandbox, found)), key=view.sandbox_id)
        rest = [one for one in after if view.sandbox_id(one) > request.page_token]
        size = min(request.page_size or DEFAULT_PAGE, MAX_PAGE)
        following = view.sandbox_id(rest[size - 1]) if len(rest) > size else ""
        return fleet_pb2.ListResponse(sandboxes=map(view.message, rest[:size]), next_page_token=following)


async def _refuse(doing: str, instead: str) -> NoReturn:
    text = f"cannot {doing}: this fleet has no pools to claim from; {instead}"
    raise FleetError(Problem(Code.UNIMPLEMENTED, "Unimplemented", text))


def _token(context: Context) -> str:
    """Of the one `authorization`; several are none."""
    metadata = cast("Iterable[tuple[str, str | bytes]]", context.invocation_metadata() or ())
    said = [value for key, value in metadata if key == "authorization"]
    text = said[0] if len(said) == 1 and isinstance(said[0], str) else ""
    return text.removeprefix(BEARER) if text.startswith(BEARER) else ""

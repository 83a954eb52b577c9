"""One claim: its request, and the wait until the fleet answers, even if the connection breaks in between."""

from __future__ import annotations

import asyncio
import inspect
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from sandfleet._fleets.connection import is_broken
from sandfleet._fleets.embedded import default_isolation
from sandfleet._fleets.package_hosts import with_hosts
from sandfleet._wire import api
from sandfleet._wire.convert import common as convert
from sandfleet._wire.convert import egress, queues
from sandfleet._wire.link import receive
from sandfleet._wire.status import to_claim_error, to_error, to_resume_error
from sandfleet.errors import InvalidArgument, ProtocolError
from sandfleet.values.fleet import FLEET_UNAVAILABLE, OnQueued, Queued
from sandfleet.values.options import DEFAULT_LEASE, DEFAULT_MAX_WAIT, CreateOptions, ExplainOptions
from sandfleet.values.sandbox import Isolation, Limits

if TYPE_CHECKING:
    from sandfleet._fleets.connection import FleetConnection, Stub
    from sandfleet._fleets.snapshots import AsyncSnapshots
    from sandfleet._wire.link import Metadata
    from sandfleet.values.suspension import Snapshot

Request = TypeVar("Request", "api.fleet.ClaimRequest", "api.fleet.ResumeRequest")
Response = TypeVar("Response", "api.fleet.ClaimResponse", "api.fleet.ResumeResponse")

DEFAULT_TEMPLATE = "python"
_SIZE = re.compile(r"(\d{1,18}(?:\.\d{1,9})?) ?((?:[KMGTkmgt]i?)?)[Bb]?")
_UNITS = {"": 1} | {f"{unit}i": 1024**power for power, unit in enumerate("kmgt", 1)}
_UNITS |= {unit: 1000**power for power, unit in enumerate("kmgt", 1)}
# Plain words name these fields of `Limits`.
_WORDS = {"memory": "memory_bytes", "disk": "disk_bytes", "tmp": "tmp_bytes", "timeout": "max_timeout"}
# Folders of this machine begin so in `mounts`; others are folders of the workspace.
_HOST = ("/", "./", "../", "~/")
_ON_IDLE = {"end": 1, "suspend": 2, "snapshot": 3}
_RECOVERY = {"workspace": 1, "snapshot": 2}
# How much longer than its wait a claim may take, in seconds: a cold start that has begun may end.
_MARGIN = 30.0
# How long the end of the stream may take after the sandbox has come, in seconds.
_END = 5.0
# Streams of answered claims that are being read to their end in the background.
_ending: set[asyncio.Task[None]] = set()


def in_full(options: CreateOptions) -> CreateOptions:
    """Write `env`, `limits`, `memory` and `cpus` of a claim in full. Raises InvalidArgument."""
    env, limits = options.get("env"), options.get("limits")
    if env:
        options = {**options, "envs": {**env, **(options.get("envs") or {})}}
    short = {name: each for name in ("memory", "cpus") if (each := options.get(name)) is not None}
    if isinstance(limits, Mapping) or short:
        words = {**(limits if isinstance(limits, Mapping) else {}), **short}
        given = limits_of(options)
        options = {**options, "limits": replace(given, **dict(_limit(*each) for each in words.items()))}
    return options


def limits_of(options: CreateOptions) -> Limits:
    """Return the limits of options that `in_full` has written in full."""
    limits = options.get("limits")
    return limits if isinstance(limits, Limits) else Limits()


def _limit(word: str, value: Any) -> tuple[str, Any]:
    """Return the field of `Limits` that a word means, and its value. Raises InvalidArgument."""
    name = _WORDS.get(word, word)
    known = {each.name: each.default for each in fields(Limits)}
    if name not in known:
        raise InvalidArgument(f"cannot claim with limits of {word!r}: there are {', '.join([*_WORDS, *known])}")
    if name.endswith("_bytes"):
        return name, _bytes(word, value)
    if isinstance(value, str):
        raise InvalidArgument(f"cannot claim with {word} {value!r}: it has to be a number")
    return name, value if isinstance(known[name], float) else int(value)


def _bytes(word: str, size: str | float) -> int:
    found = _SIZE.fullmatch(str(size).strip())
    if found is None or not (number := float(found[1]) * _UNITS[found[2].lower()]):
        raise InvalidArgument(f'cannot claim with {word} {size!r}: it has to be bytes, or a text as "4Gi" or "500M"')
    return int(number)


def claim_request(
    template: str,
    options: CreateOptions,
    isolation: Isolation,
    gang: api.fleet.Gang | None = None,
    like: str = "",
) -> api.fleet.ClaimRequest:
    """Build the request of `Sandbox.create`; `like` names the sandbox that it is a copy of. Raises InvalidArgument."""
    pool, reached = options.get("pool", ""), options.get("egress")
    return api.fleet.ClaimRequest(
        request_id=options.get("request_id") or os.urandom(16).hex(),
        # A pool has its template.
        template=template or ("" if pool else DEFAULT_TEMPLATE),
        labels=dict(options.get("labels") or {}),
        envs={**egress.envs(reached), **(options.get("envs") or {})},
        lease=convert.seconds(options.get("timeout", None if like else DEFAULT_LEASE)),
        idle_timeout=convert.seconds(options.get("idle_timeout")),
        workspace_id=options.get("workspace_id", ""),
        keep_workspace=options.get("keep_workspace", False),
        max_wait=convert.seconds(options.get("max_wait", DEFAULT_MAX_WAIT)),
        limits=convert.limits_message(limits_of(options)),
        min_isolation=convert.isolation_number(isolation),
        namespace=options.get("namespace") or "",
        pool=pool,
        name=options.get("name", ""),
        contract=options.get("contract", "") or ("brokered" if options.get("tools") else ""),
        egress=convert.egress_number(reached if isinstance(reached, str) else None),
        egress_names=egress.names(reached),
        credentials=egress.credentials(options.get("credentials") or {}),
        mounts=_mounts(options.get("mounts") or {}),
        queue=options.get("queue", ""),
        priority=options.get("priority", ""),
        gang=gang,
        on_idle=_number(_ON_IDLE, options.get("on_idle", "end"), "on_idle"),
        on_timeout=_number(_ON_IDLE, options.get("on_timeout", "end"), "on_timeout"),
        recovery=_number(_RECOVERY, options.get("recovery", "workspace"), "recovery"),
        snapshot_period=convert.seconds(options.get("snapshot_period")),
        like=like,
    )


async def whole_request(
    template: str,
    options: CreateOptions,
    isolation: Isolation,
    gang: api.fleet.Gang | None,
    like: str,
    *,
    on_cluster: bool,
) -> api.fleet.ClaimRequest:
    """Build the request with its image, which one machine unpacks at its first use. Raises InvalidArgument."""
    from sandfleet._fleets.images import with_image

    request = claim_request(template, options, isolation, gang, like)
    return await with_image(request, options, on_cluster=on_cluster)


def _number(known: Mapping[str, int], word: str, what: str) -> Any:
    if word not in known:
        raise InvalidArgument(f"cannot claim with {what} {word!r}: only {', '.join(known)}", reason="InvalidArgument")
    return known[word]


async def begun_with(snapshots: AsyncSnapshots, options: CreateOptions) -> tuple[Snapshot | None, CreateOptions]:
    """Return the snapshot that a claim begins with, and its options: contract and limits, where none are given.

    The hosts of package managers are read now. Raises NotFoundError, InvalidArgument.
    """
    from sandfleet._fleets.snapshots import within

    options = await with_hosts(in_full(options))
    if not options.get("snapshot"):
        return None, options
    snapshot = await within(snapshots, options.get("namespace") or "").get(options["snapshot"])
    known = asdict(snapshot.limits)
    asked = asdict(limits_of(options))
    limits = Limits(**{name: asked[name] or value for name, value in known.items()})
    contract = options.get("contract") or ("brokered" if options.get("tools") else snapshot.contract)
    begun: CreateOptions = {**options, "limits": limits, "contract": contract}  # type: ignore[typeddict-item] # one of its words
    return snapshot, begun


def imagined(options: ExplainOptions, namespace: str) -> api.fleet.ClaimRequest:
    """Build the request of a claim that is not made, to ask what would become of it."""
    wish = CreateOptions(
        pool=options.get("pool", ""),
        queue=options.get("queue", ""),
        priority=options.get("priority", ""),
        namespace=namespace,
    )
    return claim_request(options.get("template", ""), wish, default_isolation())


def _mounts(wished: Mapping[str, str] | Sequence[str]) -> dict[str, str]:
    """Path → folder; the fleet takes an empty folder for the one of the same path. Raises InvalidArgument."""
    if not isinstance(wished, Mapping):
        return dict.fromkeys(wished, "")
    return {path: _of_host(path, folder) if folder.startswith(_HOST) else folder for path, folder in wished.items()}


def _of_host(path: str, folder: str) -> str:
    """Return the absolute path of a folder of this machine. Raises InvalidArgument."""
    found = Path(folder).expanduser().resolve()
    if not found.is_dir():
        raise InvalidArgument(f"cannot mount {path}: {folder} is no folder of this machine", subject=path)
    return str(found)


async def claim(
    connection: FleetConnection, request: api.fleet.ClaimRequest, on_queued: OnQueued | None
) -> api.fleet.Bound:
    """Claim a sandbox.

    After a broken connection, and after a refusal that says when to come back, the request is sent again with its
    request id: it gives the same sandbox.

    Raises ClaimError, UnavailableError when no fleet answers within the request's `max_wait`, and what `on_queued`
    raises.
    """
    news = _News(on_queued)
    try:
        return (await _served(connection, request, lambda stub: stub.Claim, news)).bound
    except api.aio.AioRpcError as error:
        raise to_claim_error(error, news.last) from error


async def resume(
    connection: FleetConnection, request: api.fleet.ResumeRequest, on_queued: OnQueued | None
) -> api.fleet.ResumeResponse:
    """Take a suspended session on; return the last answer, which has `bound`.

    Raises SandboxEnded, ClaimError, UnavailableError when no fleet answers within the request's `max_wait`.
    """
    news = _News(on_queued)
    try:
        return await _served(connection, request, lambda stub: stub.Resume, news)
    except api.aio.AioRpcError as error:
        raise to_resume_error(error, news.last) from error


class _News:
    """What a claim that waits is told; `last` is the fleet's last word."""

    def __init__(self, on_queued: OnQueued | None) -> None:
        self._on_queued = on_queued
        self.last: Queued | None = None

    async def tell(self, news: Queued) -> None:
        if news.position:
            self.last = news
        answer = self._on_queued(news) if self._on_queued else None
        if inspect.isawaitable(answer):
            await answer

    async def away(self, error: api.aio.AioRpcError) -> None:
        """Tell that the claim is in no queue now, and why."""
        if is_broken(error):
            await self.tell(Queued(0, None, FLEET_UNAVAILABLE))
            return
        refusal = to_error(error, "claim a sandbox")
        await self.tell(Queued(0, refusal.retry_after, refusal.reason, refusal.message))


async def _served(
    connection: FleetConnection,
    request: Request,
    method: Callable[[Stub], api.aio.UnaryStreamMultiCallable[Request, Response]],
    news: _News,
) -> Response:
    """Send a request that waits, again after a break or when the fleet says; return the answer that has `bound`."""
    clock = asyncio.get_running_loop().time
    max_wait = request.max_wait.ToNanoseconds() / 1e9
    deadline = clock() + max_wait

    async def attempt(stub: Stub, metadata: Metadata) -> Response:
        left = max(0.0, deadline - clock())
        request.max_wait.FromNanoseconds(round(left * 1e9))
        call = method(stub)(request, metadata=metadata, timeout=left + _MARGIN)
        try:
            while (response := await receive(call)) is not None:
                if response.WhichOneof("event") == "bound":
                    _read_to_the_end(call)
                    return response
                if response.WhichOneof("event") == "queued":
                    _keep_place(request, response.queued)
                    await news.tell(queues.queued(response.queued))
        except BaseException:  # The caller waits no longer: the fleet undoes the claim.
            call.cancel()
            raise
        raise ProtocolError("cannot claim a sandbox: the fleet ended the claim without an answer", reason="NoEnd")

    return await connection.call(attempt, max_wait, news.away)


def _keep_place(request: api.fleet.ClaimRequest | api.fleet.ResumeRequest, said: api.fleet.Queued) -> None:
    """Show the ticket of a place again with the next request: another leader of the fleet restores the place by it."""
    if said.ticket and isinstance(request, api.fleet.ClaimRequest):
        request.ticket = said.ticket


def _read_to_the_end(call: api.aio.UnaryStreamCall[Request, Response]) -> None:
    """Let the fleet end the stream: if the client dropped the call earlier, it would look as if the caller had gone."""

    async def read() -> None:
        try:
            async with asyncio.timeout(_END):
                await call.code()
        except TimeoutError:
            call.cancel()

    task = asyncio.ensure_future(read())
    _ending.add(task)
    task.add_done_callback(_ending.discard)

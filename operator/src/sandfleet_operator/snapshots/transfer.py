"""Moves a session from its executor into the store, and back. What an executor says is input."""

import asyncio
import contextlib
import math
from collections.abc import AsyncIterable, AsyncIterator, Callable
from dataclasses import dataclass

import grpc
from sandfleet_api.executor.v1 import snapshot_pb2 as pb
from sandfleet_api.executor.v1.snapshot_pb2_grpc import SnapshotServiceStub

from sandfleet_operator.plan.snapshots.entries import Entry, Extent, Kind
from sandfleet_operator.plan.snapshots.errors import Reason, SnapshotError
from sandfleet_operator.plan.snapshots.manifest import Manifest
from sandfleet_operator.plan.snapshots.pace import Pace, unpacking_seconds
from sandfleet_operator.snapshots.aio import AsyncReader, AsyncWriter

# Messages of an executor: pieces are small, facts may have a mebibyte.
MESSAGE_BYTES = 4 << 20
# Of one piece to an executor, which takes no more than a mebibyte and 1,000 entries.
PIECE_BYTES = 1 << 20
UNHOLD_SECONDS = 10.0
# Of a restore, whatever its size.
RESTORE_SECONDS = 24 * 3600.0

TREES = {pb.SNAPSHOT_TREE_VARIABLES: "state", pb.SNAPSHOT_TREE_WORKSPACE: "workspace"}
KINDS = {pb.SnapshotEntryKind.Value(f"SNAPSHOT_ENTRY_KIND_{kind.name}"): kind for kind in Kind}
NUMBERS_OF_TREES = {tree: number for number, tree in TREES.items()}


@dataclass(frozen=True, slots=True)
class Progress:
    """`total` bytes are to come; 0: not known yet."""

    entries: int = 0
    bytes: int = 0
    total: int = 0


Tell = Callable[[Progress], None]


@dataclass(frozen=True)
class Place:
    """Where an executor is, and the token for one transfer."""

    address: str
    token: str
    ca_pem: bytes = b""
    # The name in its certificate.
    name: str = ""

    def channel(self) -> grpc.aio.Channel:
        options = [("grpc.max_receive_message_length", MESSAGE_BYTES), ("grpc.enable_http_proxy", 0)]
        if not self.ca_pem:
            return grpc.aio.insecure_channel(self.address, options=options)
        credentials = grpc.ssl_channel_credentials(self.ca_pem)
        options.append(("grpc.ssl_target_name_override", self.name))  # type: ignore[arg-type] # the stubs want numbers
        return grpc.aio.secure_channel(self.address, credentials, options=options)

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        return (("authorization", f"Bearer {self.token}"),)


@dataclass(slots=True)
class Hold:
    """Of a session that ends with its save: nothing begins in it any more. `force`: what runs is ended.

    `unused`: refused while a service is to run, too. `since` is the loop's time from which on its executor holds it for
    so long, once it has said all.
    """

    force: bool = False
    unused: bool = False
    since: float = math.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class Filling:
    """How a sandbox is filled. `force`: what runs is ended.

    Attributes:
        undone_since: the session was lost, and is told so, in seconds of the epoch.
        prepare: the id of the snapshot, for a warm sandbox; empty: it has a session.

    """

    force: bool = False
    undone_since: float | None = None
    prepare: str = ""


async def save(place: Place, writer: AsyncWriter, tell: Tell, hold: Hold | None = None) -> Manifest:
    """Raises SnapshotError, AioRpcError and TimeoutError."""
    request = pb.SaveRequest()
    if hold is not None:
        request = pb.SaveRequest(hold=True, force=hold.force, unused=hold.unused)
    if writer.base_facts is not None:
        request.base = facts_of(writer.base_facts).save_id
    pace = Pace()
    async with place.channel() as channel:
        call = SnapshotServiceStub(channel).Save(request, metadata=place.metadata)
        total = entries = 0
        async for response in _heard(call, pace):
            match response.WhichOneof("part"):
                case "begun":
                    total = response.begun.bytes
                    tell(Progress(0, 0, total))
                case "piece":
                    piece = response.piece
                    known = frozenset(at for at, one in enumerate(piece.entries) if one.known)
                    await writer.add([entry_of(one) for one in piece.entries], piece.data, known)
                    entries += len(piece.entries)
                    tell(Progress(entries, writer.progress.bytes, total))
                case "end":
                    if hold is not None:
                        hold.since = asyncio.get_running_loop().time()
                    return await writer.commit(response.end.facts.SerializeToString())
    raise SnapshotError(Reason.HOSTILE, "cannot save the sandbox: its executor did not say the end")


async def unhold(place: Place) -> None:
    """Lets a session go on whose last save could not be kept. One that does not answer goes on by itself."""
    with contextlib.suppress(grpc.aio.AioRpcError):
        async with place.channel() as channel:
            stub = SnapshotServiceStub(channel)
            await stub.Unhold(pb.UnholdRequest(), metadata=place.metadata, timeout=UNHOLD_SECONDS)


async def restore(place: Place, reader: AsyncReader, filling: Filling, *, tell: Tell) -> pb.RestoreResponse:
    """Raises SnapshotError and AioRpcError, and TimeoutError for an executor that stalls."""
    header = pb.RestoreRequest.Header(
        facts=facts_of(reader.facts), replace=True, force=filling.force, prepare=filling.prepare
    )
    if filling.undone_since is not None:
        header.undone_since.FromNanoseconds(round(filling.undone_since * 1e9))
    failures: list[BaseException] = []
    async with place.channel() as channel, asyncio.timeout(None) as limit:
        stub = SnapshotServiceStub(channel)
        requests = _paced(_requests(reader, header, tell=tell, failures=failures), limit)
        try:
            return await stub.Restore(requests, metadata=place.metadata, timeout=RESTORE_SECONDS)
        except (grpc.aio.AioRpcError, asyncio.CancelledError):
            if failures and isinstance(failures[0], SnapshotError):
                # The stream was broken for it.
                raise failures[0] from None
            raise


async def _heard(call: AsyncIterable[pb.SaveResponse], pace: Pace) -> AsyncIterator[pb.SaveResponse]:
    """Raises TimeoutError for an executor that stalls. The time that the store takes is not its own."""
    responses, now = aiter(call), asyncio.get_running_loop().time
    while True:
        began = now()
        async with asyncio.timeout(pace.patience):
            response = await anext(responses, None)
        if response is None:
            return
        pace.moved(now() - began, len(response.piece.data), len(response.piece.entries))
        yield response


async def _paced(
    requests: AsyncIterator[pb.RestoreRequest], limit: asyncio.Timeout
) -> AsyncIterator[pb.RestoreRequest]:
    """`limit` runs while the executor is waited for."""
    pace, now = Pace(), asyncio.get_running_loop().time
    async for request in requests:
        began = now()
        is_last = request.WhichOneof("part") == "end"
        limit.reschedule(began + (unpacking_seconds(request.end.bytes) if is_last else pace.patience))
        # It comes back when there is room for the next.
        yield request
        if not is_last:
            pace.moved(now() - began, len(request.piece.data), len(request.piece.entries))
            limit.reschedule(None)


async def _requests(
    reader: AsyncReader, header: pb.RestoreRequest.Header, *, tell: Tell, failures: list[BaseException]
) -> AsyncIterator[pb.RestoreRequest]:
    """`failures` gets why it ended early: gRPC tells only that it did."""
    try:
        yield pb.RestoreRequest(header=header)
        total, entries, size = reader.manifest.totals.bytes, 0, 0
        async for part in reader:
            data = memoryview(part.data)
            piece = pb.SnapshotPart(entries=map(message_of, part.entries), data=bytes(data[:PIECE_BYTES]))
            yield pb.RestoreRequest(piece=piece)
            for at in range(PIECE_BYTES, len(data), PIECE_BYTES):
                yield pb.RestoreRequest(piece=pb.SnapshotPart(data=bytes(data[at : at + PIECE_BYTES])))
            entries, size = entries + len(part.entries), size + len(data)
            tell(Progress(entries, size, total))
        yield pb.RestoreRequest(end=pb.SnapshotTotals(entries=entries, bytes=size))
    except BaseException as error:
        failures.append(error)
        raise


def facts_of(text: bytes) -> pb.SnapshotFacts:
    """What an executor once said. Raises SnapshotError."""
    try:
        return pb.SnapshotFacts.FromString(text)
    except Exception as error:
        # protobuf's DecodeError, and what its other implementations raise.
        raise SnapshotError(Reason.HOSTILE, "cannot use the snapshot: its facts are none") from error


def entry_of(message: pb.SnapshotEntry) -> Entry:
    """Raises SnapshotError for a tree or a kind that is none; the store checks the rest."""
    if message.tree not in TREES or message.kind not in KINDS:
        raise SnapshotError(Reason.HOSTILE, "cannot save the sandbox: an entry is neither a file, a folder nor a link")
    extents = tuple(Extent(one.offset, one.length) for one in message.extents) if message.sparse else None
    return Entry(
        tree=TREES[message.tree],
        path=message.path,
        kind=KINDS[message.kind],
        mode=message.mode,
        mtime_ns=message.modified_ns,
        size=message.size,
        extents=extents,
        target=message.target,
        linked=message.linked,
        xattrs=tuple((one.name, one.value) for one in message.attributes),
    )


def message_of(entry: Entry) -> pb.SnapshotEntry:
    return pb.SnapshotEntry(
        tree=NUMBERS_OF_TREES[entry.tree],
        path=entry.path,
        kind=f"SNAPSHOT_ENTRY_KIND_{entry.kind.name}",
        mode=entry.mode,
        modified_ns=entry.mtime_ns,
        target=entry.target,
        attributes=[pb.ExtendedAttribute(name=name, value=value) for name, value in entry.xattrs],
        size=entry.size,
        sparse=entry.extents is not None,
        extents=[pb.Extent(offset=one.offset, length=one.length) for one in entry.extents or ()],
        linked=entry.linked,
    )

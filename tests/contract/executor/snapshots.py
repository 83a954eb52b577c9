"""Snapshots of executors under test: their messages kept in memory, as a store would."""

from dataclasses import dataclass, field

from contract.executor.harness import PATIENCE
from sandfleet_api.executor.v1 import snapshot_pb2 as pb
from sandfleet_api.executor.v1 import snapshot_pb2_grpc


@dataclass
class Snapshot:
    """What an executor has said in a Save."""

    entries: list[pb.SnapshotEntry] = field(default_factory=list)
    data: bytearray = field(default_factory=bytearray)
    facts: pb.SnapshotFacts = field(default_factory=pb.SnapshotFacts)

    @property
    def totals(self):
        return pb.SnapshotTotals(entries=len(self.entries), bytes=len(self.data))

    @property
    def unsaved(self):
        return {one.path: one.reason for one in self.facts.unsaved.listed}

    def files(self):
        """Of the workspace: path → entry."""
        return {one.path: one for one in self.entries if one.tree == pb.SNAPSHOT_TREE_WORKSPACE}


def stub_of(executor, channel, **claims):
    return snapshot_pb2_grpc.SnapshotServiceStub(channel), (("authorization", f"Bearer {executor.token(**claims)}"),)


async def save(executor, *, known=False, **options):
    """`known`: data may be missing, of entries that an earlier save has. Raises AioRpcError."""
    found = Snapshot()
    async with executor.channel() as channel:
        stub, metadata = stub_of(executor, channel)
        async for response in stub.Save(pb.SaveRequest(**options), metadata=metadata, timeout=PATIENCE):
            match response.WhichOneof("part"):
                case "piece":
                    found.entries += response.piece.entries
                    found.data += response.piece.data
                case "end":
                    found.facts = response.end.facts
                    assert known or response.end.totals == found.totals
    return found


def requests_of(snapshot, *, replace=True, force=False, prepare="", piece_bytes=100_000, piece_entries=200):
    """The messages of a Restore."""
    header = pb.RestoreRequest.Header(facts=snapshot.facts, replace=replace, force=force, prepare=prepare)
    yield pb.RestoreRequest(header=header)
    for at in range(0, len(snapshot.entries), piece_entries):
        yield pb.RestoreRequest(piece=pb.SnapshotPart(entries=snapshot.entries[at : at + piece_entries]))
    for at in range(0, len(snapshot.data), piece_bytes):
        yield pb.RestoreRequest(piece=pb.SnapshotPart(data=bytes(snapshot.data[at : at + piece_bytes])))
    yield pb.RestoreRequest(end=snapshot.totals)


async def restore(executor, snapshot, **options):
    """Raises AioRpcError."""
    return await send(executor, requests_of(snapshot, **options))


async def send(executor, requests, **claims):
    """A Restore of these messages. Raises AioRpcError."""
    async with executor.channel() as channel:
        stub, metadata = stub_of(executor, channel, **claims)
        return await stub.Restore(iter(requests), metadata=metadata, timeout=PATIENCE)

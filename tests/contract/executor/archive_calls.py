"""Extract and Archive as they are, for what the client would never send."""

import os

from contract.executor.harness import PATIENCE
from sandfleet_api.executor.v1 import filesystem_pb2 as pb
from sandfleet_api.executor.v1 import filesystem_pb2_grpc


async def extract(executor, data, path=b".", *, compression=0, keep=False, size=None, chunk=100_000):
    """Sends an archive as it is. Raises AioRpcError."""
    header = pb.ExtractHeader(path=path, compression=compression, keep_existing=keep)

    async def requests():
        yield pb.ExtractRequest(header=header)
        for start in range(0, len(data), chunk):
            yield pb.ExtractRequest(data=data[start : start + chunk])
        yield pb.ExtractRequest(end=pb.ExtractEnd(size=len(data) if size is None else size))

    async with executor.channel() as channel:
        stub = filesystem_pb2_grpc.FilesystemServiceStub(channel)
        metadata = (("authorization", f"Bearer {executor.token()}"),)
        return await stub.Extract(requests(), metadata=metadata, timeout=PATIENCE)


async def archive(executor, path, compression=0):
    """An archive as it comes, and what its end says."""
    request = pb.ArchiveRequest(path=path, compression=compression)
    async with executor.channel() as channel:
        stub = filesystem_pb2_grpc.FilesystemServiceStub(channel)
        data, end = bytearray(), None
        async for part in stub.Archive(request, metadata=(("authorization", f"Bearer {executor.token()}"),)):
            assert end is None
            data += part.data
            end = part.end if part.WhichOneof("part") == "end" else None
        assert end is not None
        return bytes(data), end


async def tree(sandbox, path):
    """Name → kind, mode, content or target, as the sandbox sees it."""
    found = await sandbox.files.list(path, depth=20)
    return {os.fsencode(info.path).removeprefix(b"/workspace/" + os.fsencode(path) + b"/"): info for info in found}


def stop(answer):
    return pb.ExtractStop.Name(answer.stop).removeprefix("EXTRACT_STOP_")


def skipped(answer):
    return {entry.path: entry.reason for entry in answer.skipped}

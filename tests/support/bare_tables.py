"""A gRPC server that takes the bytes of tables and gives as many, and does nothing else: what a bench has beside it.

    python -m support.bare_tables SOCKET SIZE

It prints a line when it serves.
"""

import asyncio
import sys
from collections.abc import AsyncIterator
from typing import Any

import grpc
from sandfleet_api.executor.v1 import interpreter_pb2 as pb
from sandfleet_api.executor.v1 import interpreter_pb2_grpc

PIECE = 1 << 20
LARGEST = 32 << 20


class Bare(interpreter_pb2_grpc.InterpreterServiceServicer):
    """GetTable and PutTable without tables."""

    def __init__(self, size: int) -> None:
        self._size = size

    async def GetTable(  # type: ignore[override]  # noqa: N802
        self, request: pb.GetTableRequest, context: Any
    ) -> AsyncIterator[pb.GetTableResponse]:
        yield pb.GetTableResponse(info=pb.TableInfo(kind="pyarrow"))
        data = bytes(PIECE)
        for start in range(0, self._size, PIECE):
            yield pb.GetTableResponse(data=data[: self._size - start])

    async def PutTable(  # type: ignore[override]  # noqa: N802
        self, request_iterator: AsyncIterator[pb.PutTableRequest], context: Any
    ) -> pb.PutTableResponse:
        size = 0
        async for request in request_iterator:
            size += len(request.data)
        return pb.PutTableResponse(info=pb.TableInfo(size_bytes=size))


async def serve(socket: str, size: int) -> None:
    options = [("grpc.max_receive_message_length", LARGEST), ("grpc.max_send_message_length", LARGEST)]
    server = grpc.aio.server(options=options)
    interpreter_pb2_grpc.add_InterpreterServiceServicer_to_server(Bare(size), server)
    server.add_insecure_port(f"unix:{socket}")
    await server.start()
    print("serving", flush=True)
    await server.wait_for_termination()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], int(sys.argv[2])))

"""Tables between this process and the contexts of a sandbox."""

from __future__ import annotations

import asyncio
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Literal

from sandfleet_rules import tables

from sandfleet._arguments import checked
from sandfleet._wire import api
from sandfleet._wire.convert import arrow
from sandfleet._wire.convert import common as convert
from sandfleet._wire.heads import hear
from sandfleet._wire.link import receive_within, within
from sandfleet.errors import InvalidArgument, LimitReached, ProtocolError
from sandfleet.observe import tracing
from sandfleet.resources import looks
from sandfleet.resources.contexts import context_name
from sandfleet.resources.files.transfer import sending, server_rejected_upload
from sandfleet.values.execution import Completion, Context, Inspection

if TYPE_CHECKING:
    from sandfleet._wire.link import Connection, Link
    from sandfleet.values.options import LookOptions

Library = Literal["pandas", "polars", "pyarrow"]
# The stream has heads of batches and a schema beside the columns.
_SLACK = 16 * 1024 * 1024
_PIECE = 1024 * 1024
# The timeout by default, and how much longer an answer may take, in seconds.
_DEFAULT, _MARGIN = 60.0, 10.0


class AsyncTables:
    """Tables of one sandbox: pandas and polars frames and Arrow tables, by the names of their variables.

    They move as streams of Arrow, never as pickles. Both sides need pyarrow: here the extra `sandfleet[arrow]`. Pandas'
    index comes along; one that has a name comes as a column.

    Raises PreconditionFailed (ContextBusy: a cell runs or waits; LanguageCannot: the context's language has no tables;
    NotATable; UnsupportedColumn, which the message names; NotTaken: SQL says why; LibraryMissing: the sandbox has no
    pyarrow), NotFoundError (no such context or variable), LimitReached (TooLarge, OutOfMemory, TooMany),
    InvalidArgument, ProtocolError (what came is no such table), and SandboxError with the reason NoAnswer.
    """

    def __init__(self, link: Link) -> None:
        """Use `sandbox.tables`."""
        self._link = link

    @checked
    async def get(
        self,
        name: str,
        *,
        context: str | Context = "default",
        library: Library | None = None,
        limit: int = 256 << 20,
        timeout: float | None = None,
    ) -> Any:
        """Return a copy of the table that a variable holds.

        library  of the table here; None means that of the variable where it is installed here, else pyarrow.
        limit    largest size of the table, in bytes as Arrow; at most 1 GiB.
        timeout  of the whole transfer, in seconds; None means 60, at most 600.
        """
        _check_installed()
        request = api.interpreter.GetTableRequest(
            context_id=context_name(context), name=name, max_bytes=limit, timeout=convert.seconds(timeout)
        )

        async def attempt(connection: Connection) -> tuple[api.interpreter.TableInfo, bytearray]:
            call = connection.interpreter.GetTable(request, metadata=connection.metadata())
            patience = _patience(self._link, timeout)
            try:
                first = await receive_within(patience, call)
                if first is None or first.WhichOneof("part") != "info":
                    raise ProtocolError(f"cannot get {name}: the executor did not begin with its description")
                data = bytearray()
                while (part := await receive_within(patience, call)) is not None:
                    data += part.data
                    if len(data) > limit + _SLACK:
                        raise LimitReached(f"cannot get {name}: it has more than {limit} bytes")
                return first.info, data
            finally:
                call.cancel()

        with tracing.call(*tracing.rpc(request.DESCRIPTOR)):
            info, data = await self._link.run(attempt, resend=True)
        return await asyncio.to_thread(_read, name, data, library or info.kind, info.rows)

    @checked
    async def put(
        self,
        name: str,
        table: Any,
        *,
        context: str | Context = "default",
        library: Library | None = None,
        timeout: float | None = None,
    ) -> None:
        """Make a variable of a context from a table: a frame of pandas or polars, or what has Arrow's interface.

        library  of the variable, where the sandbox has it, else pyarrow; None means that of the table.
        timeout  of the whole transfer, in seconds; None means 60, at most 600.

        The variable is replaced when the whole table is there. A reviewed sandbox takes none (NotReviewable).
        """
        data = await asyncio.to_thread(_written, name, table)
        kind = library or tables.kind_of(table)
        await put(self._link, name, data, context_id=context_name(context), kind=kind, timeout=timeout)


class AsyncContextHandle(Context):
    """A context as `create_context`, `fork_context`, `list_contexts` and `restart_context` return it.

    It has the fields of `Context`, which say what was known when it was asked for, and the tables in its variables.
    Completion and inspection ask this context.
    """

    _tables: AsyncTables
    _link: Link

    def __init__(self, context: Context, tables: AsyncTables, link: Link) -> None:
        """Use `create_context` or `list_contexts`."""
        super().__init__(**{each.name: getattr(context, each.name) for each in fields(context)})
        object.__setattr__(self, "_tables", tables)
        object.__setattr__(self, "_link", link)

    @checked
    async def get(
        self,
        name: str,
        *,
        library: Library | None = None,
        limit: int = 256 << 20,
        timeout: float | None = None,
    ) -> Any:
        """Return a copy of the table that a variable of this context holds, as `sandbox.tables.get` does."""
        return await self._tables.get(name, context=self, library=library, limit=limit, timeout=timeout)

    @checked
    async def put(self, name: str, table: Any, *, library: Library | None = None, timeout: float | None = None) -> None:
        """Make a variable of this context from a table, as `sandbox.tables.put` does."""
        await self._tables.put(name, table, context=self, library=library, timeout=timeout)

    @checked
    async def complete(self, code: str, cursor_pos: int | None = None, *, timeout: float | None = None) -> Completion:
        """Complete code at a position, in characters (None: its end), as `sandbox.complete` does."""
        return await looks.complete(self._link, self.context_id, code, cursor_pos, {"timeout": timeout})

    @checked
    async def inspect(
        self, code: str, cursor_pos: int | None = None, *, detail_level: int = 0, timeout: float | None = None
    ) -> Inspection:
        """Describe the object at a position of code, as `sandbox.inspect` does; false where there is none."""
        options: LookOptions = {"detail_level": detail_level, "timeout": timeout}
        return await looks.inspect(self._link, self.context_id, code, cursor_pos, options)


async def put(
    link: Link, name: str, data: bytes | memoryview, *, context_id: str, kind: str, timeout: float | None = None
) -> None:
    """Make a variable of a stream of Arrow."""
    header = api.interpreter.PutTableHeader(
        context_id=context_id, name=name, kind=kind, timeout=convert.seconds(timeout), size_bytes=len(data)
    )
    patience = _patience(link, timeout)

    async def attempt(connection: Connection) -> None:
        call = connection.interpreter.PutTable(None, metadata=connection.metadata())
        async with sending(call):
            await call.write(api.interpreter.PutTableRequest(header=header))
            await _send(call, data, patience)
        await within(patience, call)
        await hear(link.heads, connection.uid, call)

    with tracing.call(*tracing.rpc(api.interpreter.PutTableRequest.DESCRIPTOR)):
        await link.run(attempt, resend=True)


async def _send(
    call: api.aio.StreamUnaryCall[api.interpreter.PutTableRequest, api.interpreter.PutTableResponse],
    data: bytes | memoryview,
    patience: float,
) -> None:
    async with server_rejected_upload(call) as rejected:
        for start in range(0, len(data), _PIECE):
            piece = api.interpreter.PutTableRequest(data=bytes(data[start : start + _PIECE]))
            await within(patience, call.write(piece))
            if rejected():
                return
        end = api.interpreter.PutTableEnd(size=len(data))
        await call.write(api.interpreter.PutTableRequest(end=end))


def _patience(link: Link, timeout: float | None) -> float:
    return (_DEFAULT if timeout is None else timeout) + _MARGIN + link.rpc_timeout


def _check_installed() -> None:
    if not tables.has("pyarrow"):
        raise InvalidArgument("cannot move tables: pyarrow is not installed; it comes with the extra sandfleet[arrow]")


def _read(name: str, data: bytearray, library: str, rows: int) -> Any:
    try:
        return arrow.read(data, library, rows)
    except arrow.TableError as error:
        if error.reason == "TooLarge":
            raise LimitReached(f"cannot get {name}: {error}", reason=error.reason) from None
        raise ProtocolError(f"cannot get {name}: {error}", reason=error.reason) from None
    except ValueError as error:
        raise ProtocolError(f"cannot get {name}: {error}") from None


def _written(name: str, table: Any) -> memoryview:
    try:
        return arrow.streamed(arrow.as_arrow(table))
    except arrow.TableError as error:
        raise InvalidArgument(f"cannot put {name}: {error}", reason=error.reason) from None

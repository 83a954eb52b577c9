"""The journal of one sandbox: its head, its records, and a copy of it in a file."""

from __future__ import annotations

import asyncio
import contextlib
import os
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from sandfleet._arguments import checked
from sandfleet._wire import api
from sandfleet._wire.convert import journals as convert
from sandfleet._wire.link import receive_within
from sandfleet._wire.status import to_error
from sandfleet.errors import ProtocolError, SandfleetError
from sandfleet.journal import headfile
from sandfleet.journal.headfile import Exported
from sandfleet.journal.records import BadRecordError, Line, Record, Splitter, read
from sandfleet.journal.status import JournalExport
from sandfleet.journal.verify import Verifier

if TYPE_CHECKING:
    from os import PathLike

    from sandfleet._wire.link import Connection, Link
    from sandfleet.journal.heads import KeptHead, SignedHead
    from sandfleet.journal.status import JournalStatus

# An executor keeps 64 MiB and a file that is being filled.
_MAX_BYTES = 128 << 20
# Of one call. gRPC takes in what an executor sends faster than its lines are checked, so this bounds the memory.
_PAGE_BYTES = 1 << 20

_Call = api.aio.UnaryStreamCall[api.journal.JournalServiceReadRequest, api.journal.JournalServiceReadResponse]


class AsyncJournal:
    """The record of everything that changed a session, in which a later change is found.

    Its executor writes it. Heads prove its records also to a reader who does not trust the executor: those that this
    object keeps of each call that changed the session, and those that the fleet has read and signed.
    """

    def __init__(self, link: Link) -> None:
        """Use `sandbox.journal`."""
        self._link = link

    @property
    def kept_head(self) -> KeptHead | None:
        """The newest head that a call of this process ended with; None before the first.

        That of a cell or a command comes a moment after its result, and at the latest with the end of this object.
        """
        return self._link.heads.newest

    @property
    def kept_heads(self) -> tuple[KeptHead, ...]:
        """The heads that calls of this process ended with, at most 1,024 of each pod."""
        return self._link.heads.all

    @property
    def signed_heads(self) -> tuple[SignedHead, ...]:
        """The heads that the fleet has signed, as far as this process has received them."""
        return self._link.heads.signed

    @checked
    async def head(self, *, pod_uid: str = "") -> JournalStatus:
        """Ask the executor for the newest record. `pod_uid` names an earlier pod on the same workspace.

        Raises NotFoundError (there is no journal of that pod), SandboxEnded, UnavailableError, ProtocolError.
        """
        request = api.journal.HeadRequest(pod_uid=pod_uid)
        uid = self._link.uid
        said = convert.status(await self._link.unary(lambda c: c.journal.Head, request, idempotent=True))
        if not pod_uid and said.head.number:
            self._link.heads.keep(uid, said.head)
        return said

    @checked
    async def countersign(self) -> tuple[SignedHead, ...]:
        """Have the fleet read the newest head from the executor and sign it; return what it has signed so far.

        The fleet does the same by itself when leases are renewed, and at the end of the sandbox. Raises
        PreconditionFailed (JournalChanged: the executor has changed what was signed), SandboxEnded, UnavailableError.
        """
        signed = tuple(await self._link.fleet.sign_journal(self._link.sandbox_id))
        self._link.heads.keep_signed(signed)
        return signed

    @checked
    async def records(self, first: int = 0, *, pod_uid: str = "") -> AsyncIterator[Record]:
        """Yield the records from number `first` on, up to the newest one at the time of the call.

        Each is checked to follow the one before. Raises ProtocolError (one does not), NotFoundError, InvalidArgument
        (no record has that number yet), SandboxEnded, UnavailableError.
        """
        splitter, before = Splitter(), ""
        async for data in self._read(first, pod_uid):
            for line in splitter.feed(data):
                record = _record(line)
                if before and record.prev != before:
                    raise ProtocolError(
                        f"cannot read the journal: record {record.number} does not follow the one before"
                    )
                before = record.head.hash
                yield record

    @checked
    async def export(self, path: str | PathLike[str], *, pod_uid: str = "", sign: bool = True) -> JournalExport:
        """Copy the journal to a file of this machine, and the heads that prove it to `path` with ".heads" added.

        The file is replaced when the copy is complete; the memory does not grow with it. With `sign`, the fleet is
        asked first to sign the newest head. A journal with faults is copied as well: `verification` names them.

        Raises OSError, NotFoundError, SandboxEnded, UnavailableError, ProtocolError.
        """
        is_signed = sign and not pod_uid and await self._try_countersign()
        status = await self.head(pod_uid=pod_uid)
        about = await self._about(status)
        heads = headfile.Heads(about, list(self.kept_heads), list(self.signed_heads))
        target = Path(path)
        beside = target.with_name(target.name + headfile.SUFFIX)
        with _replacing(target) as file:
            verifier, splitter, size = Verifier(heads), Splitter(), 0
            async for data in self._read(0, pod_uid, most=status.head.number):
                size += len(data)
                await asyncio.to_thread(_check, file, data, splitter, verifier)
            for line in splitter.end():
                verifier.take(line)
        written = headfile.dump(about, heads.kept, heads.signed)
        with _replacing(beside) as file:
            await asyncio.to_thread(_write, file, written)
        return JournalExport(
            path=target, heads_path=beside, size=size, verification=verifier.end(), is_signed=is_signed
        )

    async def _try_countersign(self) -> bool:
        try:
            return bool(await self.countersign())
        except SandfleetError:
            # A fleet of an earlier release, or one that is away: the heads that were kept prove what they prove.
            return False

    async def _about(self, status: JournalStatus) -> Exported:
        known = None
        with contextlib.suppress(SandfleetError):
            known = await self._link.known()
        return Exported(
            sandbox=self._link.sandbox_id,
            pod_uid=status.pod_uid,
            template=known.template if known else "",
            contract=known.contract if known else "",
            head=status.head,
            anchor=status.anchor,
        )

    async def _read(self, first: int, pod_uid: str, most: int = 0) -> AsyncIterator[bytes]:
        """Yield the lines in pieces. `most`: the last record that is wanted; 0 wants all that there are now."""
        if most and first > most:
            return
        size = 0
        while True:
            following = 0
            async with contextlib.aclosing(self._page(first, pod_uid)) as messages:
                async for message in messages:
                    size += len(message.lines)
                    if size > _MAX_BYTES:
                        why = f"it is larger than {_MAX_BYTES} bytes"
                        raise ProtocolError(f"cannot read the journal: {why}", reason="TooLong")
                    yield message.lines
                    following = message.next_number
            if not following:
                return
            if following <= first:
                raise ProtocolError(f"cannot read the journal: record {following} is said to follow record {first}")
            most = most or (await self.head(pod_uid=pod_uid)).head.number
            if following > most:
                return
            first = following

    async def _page(self, first: int, pod_uid: str) -> AsyncGenerator[api.journal.JournalServiceReadResponse, None]:
        """Yield the messages of one call."""
        request = api.journal.JournalServiceReadRequest(from_number=first, pod_uid=pod_uid, most_bytes=_PAGE_BYTES)
        patience = self._link.rpc_timeout

        async def attempt(connection: Connection) -> tuple[_Call, api.journal.JournalServiceReadResponse | None]:
            call = connection.journal.Read(request, metadata=connection.metadata())
            return call, await receive_within(patience, call)

        call, message = await self._link.run(attempt, resend=True)
        try:
            while message is not None:
                yield message
                message = await receive_within(patience, call)
        except api.aio.AioRpcError as error:
            raise to_error(error, "read the journal") from error
        finally:
            call.cancel()


def _record(line: Line) -> Record:
    try:
        if line.oversized:
            raise BadRecordError("cannot read the record: it is too large")  # noqa: TRY301  handled as the others are
        return read(line.data)
    except BadRecordError as error:
        raise ProtocolError(str(error), reason="BadRecord") from error


def _write(file: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(file, rest) :]


def _check(file: int, data: bytes, splitter: Splitter, verifier: Verifier) -> None:
    _write(file, data)
    for line in splitter.feed(data):
        verifier.take(line)


@contextlib.contextmanager
def _replacing(target: Path) -> Iterator[int]:
    """A new file, open for writing, that takes the target's place at the end, and is removed if that is not reached."""
    made, name = tempfile.mkstemp(prefix=f".{target.name[:100]}.", dir=target.parent)
    try:
        yield made
        os.fsync(made)
        Path(name).replace(target)
    except BaseException:  # Also a cancellation: half a file must not be left.
        Path(name).unlink(missing_ok=True)
        raise
    finally:
        os.close(made)

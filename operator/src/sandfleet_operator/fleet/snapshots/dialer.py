"""The snapshotter's process on Kubernetes: it dials the fleet that leads, takes jobs from it, and listens nowhere."""

import asyncio
import contextlib
import json
import logging
import os
import shutil
import signal
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import grpc
from sandfleet_api.fleet.v1 import snapshotter_pb2 as pb
from sandfleet_api.fleet.v1.snapshotter_pb2_grpc import SnapshotterServiceStub
from sandfleet_rules.backoff import Backoff

from sandfleet_operator.api.errors import FleetError
from sandfleet_operator.api.quantities import parse_quantity
from sandfleet_operator.fleet.links.fleet_link import FleetLink, problem_of
from sandfleet_operator.fleet.snapshots.jobs import Event
from sandfleet_operator.fleet.snapshots.scratch_files import scratch_file
from sandfleet_operator.plan.snapshots.errors import Reason, SnapshotError
from sandfleet_operator.plan.snapshots.imports import granted
from sandfleet_operator.plan.snapshots.scratch import Scratch
from sandfleet_operator.snapshots import bundle
from sandfleet_operator.snapshots.aio import AsyncSnapshots, open_store, share_heaps
from sandfleet_operator.snapshots.backends.places import keys_path, store_url
from sandfleet_operator.snapshots.keys import key_file
from sandfleet_operator.snapshots.worker import Worker, shown
from sandfleet_operator.telemetry.probes import Probes, Standing

EVENT_BYTES, PIECE_BYTES = 256 << 10, 512 << 10
# Of a piece of a caller; and of an entry in a file, at most but for the longest paths.
MOST_BYTES, ENTRY_BYTES = 1 << 20, 1 << 10
BACKOFF = Backoff(0.5, 15.0)
TOLD_SECONDS = 1.0
# Of four saves, and of four restores, at once: those of one namespace.
SHARE = 2

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """`fleet` is its HOST:PORT. `credentials` is a folder with `ca.crt`, and with `token` of the own account."""

    fleet: str
    credentials: Path
    # Of the probes; 0: none, as outside a pod.
    health_port: int = 0


class RemoteWorker(Worker):
    """A worker whose exports and imports are files of the fleet's callers: their pieces go over the stream.

    The other side asks for each piece, so that neither holds more than one.
    """

    def __init__(self, store: AsyncSnapshots, said: "asyncio.Queue[Event | None]", scratch: Scratch) -> None:
        super().__init__(store, said.put_nowait)
        self._said = said
        self._scratch = scratch
        self._heard: dict[int, asyncio.Queue[Event]] = {}

    def take(self, request: Mapping[str, Any]) -> None:
        if request["op"] in ("more", "piece"):
            if (heard := self._heard.get(int(request["id"]))) is not None:
                heard.put_nowait(dict(request))
            return
        super().take(request)

    async def _export(self, request: Mapping[str, Any]) -> dict[str, Any]:
        manifest, tenant = await self._find(request), request["tenant"]
        size = manifest.totals.bytes + ENTRY_BYTES * manifest.totals.entries
        async with self._hearing(request) as heard, self._room(tenant, size) as (path, _):
            await self._store.export(request["tenant"], manifest.id, path)
            with path.open("rb", buffering=0) as file:
                while data := await asyncio.to_thread(file.read, PIECE_BYTES):
                    self._said.put_nowait({"id": request["id"], "event": "piece", "data": data})
                    await heard.get()
        return shown(manifest)

    async def _import(self, request: Mapping[str, Any]) -> dict[str, Any]:
        async with self._hearing(request) as heard, self._room(request["tenant"], 0) as (path, more):
            with path.open("xb", buffering=0) as file:
                await self._received(request, heard, file, more)
            said = await self._store.requested(path)
            contract, limits = granted(said, request["offers"])
            about = bundle.imported(said, contract=contract, limits=limits, **request["words"])
            return shown(await self._store.import_file(request["tenant"], path, about))

    async def _received(
        self, request: Mapping[str, Any], heard: "asyncio.Queue[Event]", file: IO[bytes], more: Callable[[int], None]
    ) -> None:
        while True:
            # Before it is asked for: no byte comes that has no room.
            more(MOST_BYTES)
            self._said.put_nowait({"id": request["id"], "event": "more"})
            piece = await heard.get()
            if piece["last"]:
                return
            more(len(piece["data"]) - MOST_BYTES)
            try:
                await asyncio.to_thread(file.write, piece["data"])
            except OSError as error:
                why = f"cannot import: its file has no room in the snapshotter: {error.strerror}"
                raise SnapshotError(Reason.FULL, why) from error

    @asynccontextmanager
    async def _room(self, tenant: str, size: int) -> AsyncGenerator[tuple[Path, Callable[[int], None]], None]:
        """The path of a new file, and what takes more room for it. Raises SnapshotError."""
        taken = 0

        def more(size: int) -> None:
            nonlocal taken
            self._scratch.take(tenant, size)
            taken += size

        more(size)
        try:
            async with scratch_file() as path:
                yield path, more
        finally:
            self._scratch.give(tenant, taken)

    @asynccontextmanager
    async def _hearing(self, request: Mapping[str, Any]) -> "AsyncGenerator[asyncio.Queue[Event], None]":
        number = int(request["id"])
        heard = self._heard[number] = asyncio.Queue()
        try:
            yield heard
        finally:
            del self._heard[number]


class Dialer:
    """Works for the fleet that leads, and looks for the next one when the stream ends."""

    def __init__(self, fleet: FleetLink, credentials: Path, store: AsyncSnapshots) -> None:
        self._fleet = fleet
        self._credentials = credentials
        self._store = store
        self._scratch = Scratch(_scratch_bytes(os.environ))
        self.connected = asyncio.Event()

    async def run(self) -> None:
        """Until it is cancelled."""
        failures = 0
        while True:
            try:
                await self._work()
                failures = 0
            except (FleetError, SnapshotError, OSError, UnicodeDecodeError) as error:
                _LOG.warning("cannot work for the fleet: %s", error)
            except grpc.aio.AioRpcError as error:
                failures = 0 if self.connected.is_set() else failures
                _LOG.warning("the stream to the fleet has ended: %s", problem_of(error).message)
            self.connected.clear()
            self._fleet.leave()
            failures += 1
            await asyncio.sleep(BACKOFF.after(failures))

    async def _work(self) -> None:
        token = (self._credentials / "token").read_text(encoding="ascii").strip()
        said: asyncio.Queue[Event | None] = asyncio.Queue()
        worker = RemoteWorker(self._store, said, self._scratch)
        call = self._fleet.open(lambda channel: SnapshotterServiceStub(channel).Work, _requests(said), token)
        try:
            await self._own(await call.read(), said)
            self.connected.set()
            while isinstance(response := await call.read(), pb.WorkResponse):
                request = json.loads(response.job)
                worker.take({**request, "data": response.data} if "last" in request else request)
        finally:
            # What was begun for this fleet is not gone on with: its caller has been told that it failed.
            await worker.close()
            call.cancel()
            # A cancel of a call that has ended would leave the reader of these events waiting.
            said.put_nowait(None)

    async def _own(self, response: pb.WorkResponse | Any, said: "asyncio.Queue[Event | None]") -> None:
        """Takes the store for the fleet's cluster. Raises SnapshotError where it cannot, and tells the fleet why."""
        first = json.loads(response.job) if isinstance(response, pb.WorkResponse) and response.job else {}
        message = "" if first.get("op") == "own" else "cannot work for the fleet: it is of another version"
        try:
            if not message:
                await self._store.own(first["cluster"])
        except SnapshotError as error:
            message = str(error)
        said.put_nowait({"id": 0, "event": "owned", "message": message})
        if message:
            # The fleet is to hear of it before the stream ends.
            await asyncio.sleep(TOLD_SECONDS)
            raise SnapshotError(Reason.DENIED, message)


def _scratch_bytes(environment: Mapping[str, str]) -> int:
    """SANDFLEET_SNAPSHOT_SCRATCH, as of Kubernetes; else what is free now. Raises FleetError."""
    text = environment.get("SANDFLEET_SNAPSHOT_SCRATCH", "")
    return (
        int(parse_quantity(text, "SANDFLEET_SNAPSHOT_SCRATCH"))
        if text
        else shutil.disk_usage(tempfile.gettempdir()).free
    )


async def _requests(said: "asyncio.Queue[Event | None]") -> AsyncIterator[pb.WorkRequest]:
    while (event := await said.get()) is not None:
        data = event.pop("data", b"")
        text = json.dumps(event, separators=(",", ":")).encode("ascii")
        while len(text) > EVENT_BYTES:
            yield pb.WorkRequest(event=text[:EVENT_BYTES], continues=True)
            text = text[EVENT_BYTES:]
        yield pb.WorkRequest(event=text, data=data)


def serve(options: Options) -> int:
    """Serves until SIGTERM or SIGINT; returns an exit code."""
    share_heaps()
    try:
        store = open_store(store_url(os.environ), key_file(keys_path(os.environ)), share=SHARE)
        asyncio.run(_serve(options, store))
    except (SnapshotError, OSError) as error:
        _LOG.error("cannot serve: %s", error)
        return 1
    return 0


async def _serve(options: Options, store: AsyncSnapshots) -> None:
    ended, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    fleet = FleetLink(options.fleet, options.credentials / "ca.crt")
    dialer = Dialer(fleet, options.credentials, store)
    probes = Probes(lambda: True, lambda: Standing(ready=dialer.connected.is_set(), leads=False))
    tasks = [asyncio.create_task(one) for one in (probes.serve(options.health_port), dialer.run(), ended.wait())]
    done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    with contextlib.suppress(grpc.aio.AioRpcError):
        await fleet.close()
    for task in done:
        task.result()

"""What a snapshotter does. On one machine it is a process beside the fleet, with JSON lines as its input and output.

The fleet starts it at the first snapshot. It ends with its input. Requests have an `id` and an `op`; each gets any
number of {"id", "event": "progress", …}, then {"id", "event": "done", …} or {"id", "event": "failed", …}.
On Kubernetes the same goes over a stream (fleet/snapshots/dialer.py).
"""

import asyncio
import base64
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import grpc

from sandfleet_operator.executors.calls import error_detail
from sandfleet_operator.plan.snapshots.errors import Reason, SnapshotError
from sandfleet_operator.plan.snapshots.imports import granted
from sandfleet_operator.plan.snapshots.manifest import ID, About, Manifest, Retention, narrowed
from sandfleet_operator.plan.snapshots.objects import KEEPING, ORPHANS
from sandfleet_operator.snapshots import bundle
from sandfleet_operator.snapshots.aio import AsyncSnapshots, open_store, share_heaps
from sandfleet_operator.snapshots.backends.places import keys_path, store_url
from sandfleet_operator.snapshots.keys import key_file
from sandfleet_operator.snapshots.transfer import Filling, Hold, Place, Progress, restore, save, unhold

MAX_LINE_BYTES = 4 << 20
MOST_LISTED = 10_000
# Snapshots that an error names.
MOST_NAMED = 10
# Progress is told so often at most, in seconds.
PROGRESS_SECONDS = 0.2
# What the fleet is told of a snapshot beside its size.
SHOWN = ("name", "sandbox", "template", "contract", "received", "limits", "labels", "reason", "owner", "parents")

Say = Callable[[dict[str, Any]], None]


class Worker:
    def __init__(self, store: AsyncSnapshots, say: Say) -> None:
        self._store = store
        self._say = say
        self._tasks: dict[int, asyncio.Task[None]] = {}

    def take(self, request: Mapping[str, Any]) -> None:
        """Begins a job, or ends one."""
        number = int(request["id"])
        if request["op"] == "cancel":
            if task := self._tasks.get(number):
                task.cancel()
            return
        task = self._tasks[number] = asyncio.create_task(self._run(number, request))
        task.add_done_callback(lambda _: self._tasks.pop(number, None))

    async def close(self) -> None:
        """Ends all jobs."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, number: int, request: Mapping[str, Any]) -> None:
        try:
            answer = await getattr(self, f"_{request['op']}", _unknown)(request)
        except SnapshotError as error:
            failed = {"source": "store", "reason": error.reason.value, "message": str(error)}
        except grpc.aio.AioRpcError as error:
            failed = {"source": "executor", **_detail(error)}
        except TimeoutError:
            failed = {"source": "executor", "reason": "", "message": "its executor does not answer"}
        else:
            self._say({"id": number, "event": "done", **answer})
            return
        self._say({"id": number, "event": "failed", **failed})

    def _teller(self, number: int) -> Callable[[Progress], None]:
        due = 0.0

        def tell(progress: Progress) -> None:
            nonlocal due
            now = asyncio.get_running_loop().time()
            if now >= due:
                due = now + PROGRESS_SECONDS
                self._say({"id": number, "event": "progress", **asdict(progress)})

        return tell

    async def _save(self, request: Mapping[str, Any]) -> dict[str, Any]:
        tenant, about = request["tenant"], _about(request["about"])
        earlier = [
            one for one in await self._store.list(tenant) if about.sandbox and one.about.sandbox == about.sandbox
        ]
        if taken := next((one for one in earlier if about.name and one.about.name == about.name), None):
            why = f"its snapshot {taken.id} has that name already; delete that one, or take another name"
            raise SnapshotError(Reason.NAME_TAKEN, f"cannot save snapshot {about.name!r} of {about.sandbox}: {why}")
        # It may have most of what the sandbox has now; its executor decides what of it holds.
        newest = max(earlier, key=lambda one: one.created_ms, default=None)
        how = {"base": newest.id if newest else "", "sandbox": about.sandbox}
        async with self._store.writer(tenant, about, **how) as writer:
            # A fleet of the version before does not say `unused`.
            hold = Hold(force=request["force"], unused=request.get("unused", False)) if request["hold"] else None
            try:
                manifest = await save(_place(request), writer, self._teller(int(request["id"])), hold)
            except BaseException:  # A job that is ended, too.
                if hold:
                    await asyncio.shield(unhold(_place(request)))
                raise
        # A session that ends with it is not ended before it was read back.
        if about.keep.days is not None or about.keep.count is not None:
            # Those of sessions that have ended without their fleet, and of saves whose fleet has ended.
            await self._store.retain(tenant)
        if hold is None:
            return shown(manifest)
        facts = await self._facts(tenant, manifest)
        held = asyncio.get_running_loop().time() - hold.since
        return shown(manifest) | {"facts": _text(facts), "held_seconds": held}

    async def _restore(self, request: Mapping[str, Any]) -> dict[str, Any]:
        manifest = await self._kept(request)
        narrowed(manifest.about, request["contract"], request["limits"])
        how = {"digest": manifest.digest, "sandbox": request.get("name", "")}
        async with self._store.reader(request["tenant"], manifest.id, **how) as reader:
            tell = self._teller(int(request["id"]))
            prepare, since = manifest.id if request["prepare"] else "", request["undone_since"]
            filling = Filling(force=request["force"], undone_since=since, prepare=prepare)
            answer = await restore(_place(request), reader, filling, tell=tell)
        return shown(manifest) | {"answer": _text(answer.SerializeToString())}

    async def _unhold(self, request: Mapping[str, Any]) -> dict[str, Any]:
        await unhold(_place(request))
        return {}

    async def _get(self, request: Mapping[str, Any]) -> dict[str, Any]:
        manifest = await self._find(request)
        return shown(manifest) | {"facts": _text(await self._facts(request["tenant"], manifest))}

    async def _facts(self, tenant: str, manifest: Manifest) -> bytes:
        """All entries are checked on the way."""
        async with self._store.reader(tenant, manifest.id, digest=manifest.digest) as reader:
            return reader.facts

    async def _keeps(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """The newest snapshot that keeps a session, or nothing."""
        found = [
            one
            for one in await self._store.list(request["tenant"])
            if one.about.sandbox == request["sandbox"] and one.about.reason in KEEPING
        ]
        if not found:
            return {}
        newest = max(found, key=lambda one: one.created_ms)
        return shown(newest) | {"claim": newest.about.claim}

    async def _list(self, request: Mapping[str, Any]) -> dict[str, Any]:
        unread: list[str] = []
        deleted = request.get("deleted", False)
        listed = self._store.deleted(request["tenant"]) if deleted else self._store.list(request["tenant"], unread)
        found = [one for one in await listed if request["sandbox"] in ("", one.about.sandbox)]
        for one in found[:MOST_LISTED]:
            self._say({"id": int(request["id"]), "event": "snapshot", **shown(one)})
        return {"unread": unread[:MOST_LISTED], "whole": max(len(found), len(unread)) <= MOST_LISTED}

    async def _delete(self, request: Mapping[str, Any]) -> dict[str, Any]:
        tenant, wanted = request["tenant"], request["snapshot"]
        if not ID.fullmatch(wanted):
            found = await self._store.named(tenant, wanted)
            if not found:
                return {"existed": False}
            if len(found) > 1:
                raise _ambiguous(wanted, found)
            wanted = found[0].id
        # One that cannot be read can go.
        now = request.get("now", False)
        existed = await self._store.delete(tenant, wanted, now=now, by=request.get("by", "caller"))
        if existed or now:
            await self._store.collect(tenant)
        return {"existed": existed}

    async def _undelete(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """By id, or the newest of that name among those that can be taken back."""
        tenant, wanted = request["tenant"], request["snapshot"]
        if not ID.fullmatch(wanted):
            found = next((one for one in await self._store.deleted(tenant) if one.about.name == wanted), None)
            if found is None:
                raise _absent(wanted)
            wanted = found.id
        return shown(await self._store.undelete(tenant, wanted, by=request.get("by", "")))

    async def _kept(self, request: Mapping[str, Any]) -> Manifest:
        """As `_find`. What keeps a session (`kept`), and was deleted as if it kept none, is taken back."""
        try:
            return await self._find(request)
        except SnapshotError as error:
            if error.reason is not Reason.NOT_FOUND or not request.get("kept", False):
                raise
        return await self._store.undelete(request["tenant"], request["snapshot"], by=ORPHANS)

    async def _export(self, request: Mapping[str, Any]) -> dict[str, Any]:
        manifest = await self._find(request)
        await self._store.export(request["tenant"], manifest.id, Path(request["path"]))
        return shown(manifest)

    async def _import(self, request: Mapping[str, Any]) -> dict[str, Any]:
        path = Path(request["path"])
        said = await self._store.requested(path)
        contract, limits = granted(said, request["offers"])
        about = bundle.imported(said, contract=contract, limits=limits, **request["words"])
        return shown(await self._store.import_file(request["tenant"], path, about))

    async def _find(self, request: Mapping[str, Any]) -> Manifest:
        """By id, or the newest of that name, of the request's `sandbox` first: no name looks like an id.

        `digest` of the request, where it has one, is that of the snapshot that is meant. Raises SnapshotError.
        """
        tenant, wanted = request["tenant"], request["snapshot"]
        if ID.fullmatch(wanted):
            return await self._store.get(tenant, wanted, digest=request.get("digest") or None)
        if (found := await self._store.find(tenant, wanted, request.get("sandbox", ""))) is not None:
            return found
        raise _absent(wanted)


def _ambiguous(wanted: str, found: Sequence[Manifest]) -> SnapshotError:
    named = ", ".join(f"{one.id} (of {one.about.sandbox or 'a file'})" for one in found[:MOST_NAMED])
    return SnapshotError(
        Reason.NAME_TAKEN, f"cannot delete snapshot {wanted!r}: several have that name; name one of {named}"
    )


def _absent(wanted: str) -> SnapshotError:
    return SnapshotError(Reason.NOT_FOUND, f"cannot find snapshot {wanted[:80]!r}: none has that id or name")


async def _unknown(request: Mapping[str, Any]) -> dict[str, Any]:
    """Raises SnapshotError."""
    why = "the fleet is of another version"
    raise SnapshotError(Reason.UNAVAILABLE, f"cannot do {request['op'][:40]!r}: {why}")


def _place(request: Mapping[str, Any]) -> Place:
    authority = request.get("authority", "").encode("ascii")
    return Place(request["address"], request["token"], authority, request.get("name", ""))


def _about(said: Mapping[str, Any]) -> About:
    lists = {name: tuple(said[name]) for name in ("received", "parents")}
    return About(**{**said, **lists, "keep": Retention(**said["keep"])})


def shown(manifest: Manifest) -> dict[str, Any]:
    about = asdict(manifest.about)
    return {
        "snapshot": {
            "id": manifest.id,
            "created_ms": manifest.created_ms,
            "entries": manifest.totals.entries,
            "bytes": manifest.totals.bytes,
            "new_bytes": manifest.new_bytes,
            "stored_bytes": manifest.stored_bytes,
            "digest": manifest.digest,
            **{name: about[name] for name in SHOWN},
        }
    }


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _detail(error: grpc.aio.AioRpcError) -> dict[str, str]:
    """An executor's own words."""
    detail = error_detail(error)
    return {"reason": detail.reason, "message": (detail.message or error.details() or error.code().name)[:500]}


async def serve() -> None:
    """Until the end of the input."""
    out = sys.stdout.buffer

    def say(message: dict[str, Any]) -> None:
        out.write(json.dumps(message, separators=(",", ":")).encode("ascii") + b"\n")
        out.flush()

    reader = asyncio.StreamReader(limit=MAX_LINE_BYTES)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    try:
        store = open_store(store_url(os.environ), key_file(keys_path(os.environ)))
    except SnapshotError as error:
        say({"id": 0, "event": "failed", "source": "store", "reason": error.reason.value, "message": str(error)})
        return
    say({"id": 0, "event": "ready"})
    worker = Worker(store, say)
    while line := await reader.readline():
        worker.take(json.loads(line))


if __name__ == "__main__":
    share_heaps()
    asyncio.run(serve())

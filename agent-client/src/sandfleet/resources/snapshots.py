"""The part of a sandbox that is saved and brought back as a whole."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sandfleet._arguments import checked
from sandfleet._by_id import snapshot_by_id
from sandfleet._calls import also_by_id

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sandfleet._wire.link import Link
    from sandfleet.values.suspension import Restoration, Resumption, Snapshot


class HasSnapshots:
    """The part of a sandbox that is saved and brought back as a whole."""

    _link: Link
    _resumption: Resumption | None = None
    _restoration: Restoration | None = None

    @property
    def resumption(self) -> Resumption | None:
        """What has come back of the session. None except after `resume` and `create(snapshot=…)`."""
        return self._resumption

    @property
    def restoration(self) -> Restoration | None:
        """What came back of the snapshot that `create(snapshot=…)` began with; else None."""
        return self._restoration

    @property
    def id(self) -> str:
        """The same as `sandbox_id`."""
        return self._link.sandbox_id

    async def is_running(self) -> bool:
        """Return whether the session has its processes: it has neither ended nor is it suspended. Wakes none."""
        from sandfleet.errors import SandboxEnded

        try:
            return (await self._link.known()).state == "claimed"
        except SandboxEnded:
            return False

    @also_by_id(snapshot_by_id)
    @checked
    async def snapshot(self, name: str = "", *, labels: Mapping[str, str] | None = None) -> Snapshot:
        """Save files, variables and declared services while code runs; `contents` of the answer says what is missing.

        The processes stand still for a moment, so that all names, modes and small files are of one moment; a large file
        that changes meanwhile is listed. Variables are those after the last cell that had ended.

        name    for `create(snapshot=name)`: at most 63 of a-z, 0-9, "-" and "."; "" means none. Each snapshot of a
                session has its own.
        labels  for people and programs.

        Raises SandboxEnded, PreconditionFailed (SnapshotRunning, SnapshotNameTaken), LimitReached (no room),
        InvalidArgument. The class has the same call by id: `Sandbox.snapshot(sandbox_id)`, and so `fork`.
        """
        return await self._taken(name, labels or {}, "manual")

    @checked
    async def rollback(self, snapshot: str | Snapshot, *, force: bool = False) -> Restoration:
        """Put a snapshot in the place of the files, contexts and services of this sandbox; return what came back.

        `snapshot` is a `Snapshot`, its id, or a name: of this session's first. Contexts and services that it does
        not have end. Running executions refuse it unless `force` ends them. It happens as a whole or not at all.

        Raises NotFoundError (no such snapshot), PreconditionFailed (ExecutionRunning, SnapshotRunning,
        SnapshotWidened), LimitReached (no room).
        """
        back: Restoration = await self._snapshots.restore_snapshot(self._link.sandbox_id, snapshot, force=force)
        return back

    async def _forked(self, count: int, given: Mapping[str, Any]) -> tuple[Any, ...]:
        """Take a snapshot, claim sandboxes that begin with it, and delete it."""
        import asyncio

        # Options that are not given are not said: the fleet takes them from the claim of this sandbox.
        options: Any = {name: value for name, value in given.items() if value is not None}
        taken = await self._taken("", {}, "fork")
        options |= {"namespace": self._namespace or None, "snapshot": taken}
        # The sandbox's class is above this one.
        copy: Any = getattr(self, "_copy")  # noqa: B009
        try:
            claims = [
                asyncio.ensure_future(copy(taken.template, self._link.fleet, options, self._link.sandbox_id))
                for _ in range(count)
            ]
            made = await asyncio.gather(*claims, return_exceptions=True)
            if failures := [one for one in made if isinstance(one, BaseException)]:
                await asyncio.gather(*(one.kill() for one in made if not isinstance(one, BaseException)))
                raise failures[0]
            copies = tuple(one for one in made if not isinstance(one, BaseException))
            for each in copies:
                each._link.wakes = self._link.wakes  # noqa: SLF001 - one of this class
                each._link.cwd = self._link.cwd  # noqa: SLF001 - as above
            return copies
        finally:
            await self._snapshots.delete(taken)

    async def _taken(self, name: str, labels: Mapping[str, str], reason: str) -> Snapshot:
        taken = await self._snapshots.take_snapshot(self._link.sandbox_id, name=name, labels=labels, reason=reason)
        described: Snapshot = await self._snapshots.get(taken)
        return described

    @property
    def _snapshots(self) -> Any:
        # A link needs less of its fleet.
        from sandfleet._fleets.snapshots import within

        fleet: Any = self._link.fleet
        return within(fleet.snapshots, self._namespace)

    @property
    def _namespace(self) -> str:
        return self._link.sandbox_id.rpartition("/")[0]

"""Journals of sandboxes that live, and the plots of their cells, for a report."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from sandfleet.errors import NotFoundError, SandfleetError
from sandfleet.observe import provider
from sandfleet.observe.report import pictures
from sandfleet.observe.report.journal import Journal
from sandfleet.sandbox import AsyncSandbox

# Sandboxes that one report reads, and for how many seconds it reads all of them.
MAX_LIVE, PATIENCE = 50, 60.0


def journals(sandboxes: Iterable[str]) -> tuple[list[Journal], list[str]]:
    """The journals of those sandboxes that live, and why the others are missing, one sentence each."""
    # A report of a session is no part of its trace.
    with provider.use(None):
        return asyncio.run(_all(list(dict.fromkeys(sandboxes))))


async def _all(sandboxes: list[str]) -> tuple[list[Journal], list[str]]:
    found: list[Journal] = []
    missing: list[str] = []
    if len(sandboxes) > 1:
        try:
            lives = {one.sandbox_id for one in await AsyncSandbox.list()}
        except SandfleetError as error:
            return [], [f"No journal was read: {error.message}."]
        gone = len(sandboxes) - len(lives.intersection(sandboxes))
        sandboxes = [one for one in sandboxes if one in lives]
        if gone:
            missing.append(f"{gone} sandboxes have ended, and their journals with them.")
    for sandbox in sandboxes[:MAX_LIVE]:
        try:
            async with asyncio.timeout(PATIENCE):
                found.append(await _read(sandbox))
        except SandfleetError as error:
            missing.append(f"The journal of sandbox {sandbox} is missing: {error.message}.")
        except TimeoutError:
            missing.append(f"The journal of sandbox {sandbox} is missing: it was not read in {PATIENCE:.0f} s.")
    if len(sandboxes) > MAX_LIVE:
        missing.append(f"{len(sandboxes) - MAX_LIVE} journals were not read: a report reads {MAX_LIVE}.")
    return found, missing


async def _read(sandbox_id: str) -> Journal:
    found = Journal(sandbox_id)
    async with AsyncSandbox.connect(sandbox_id) as sandbox:
        async for record in sandbox.journal.records():
            found.take(record.kind, record.body, record.at)
        left = pictures.MAX_ALL
        for call, wanted in [(call, one.pictures) for call, one in found.executions.items() if one.pictures]:
            if left > 0 and not all(picture.data for picture in wanted):
                found.show(call, await _shown(sandbox, call, wanted))
            left -= sum(len(picture.data) for picture in found.executions[call].pictures)
    return found


async def _shown(
    sandbox: AsyncSandbox, call: str, wanted: tuple[pictures.Picture, ...]
) -> tuple[pictures.Picture, ...]:
    """The pictures with their bytes, which the executor has as long as it keeps the results of the cell."""
    try:
        results = (await sandbox.attach(call)).results
    except NotFoundError:
        return wanted
    parts = (part for result in results for part in result.parts.values())
    return pictures.filled(wanted, (part if isinstance(part, bytes) else part.encode() for part in parts))

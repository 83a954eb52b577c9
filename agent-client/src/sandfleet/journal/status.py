"""What a sandbox says of its journal, and what an export has written."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sandfleet.journal.records import Head
from sandfleet.journal.verify import Verification


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalStatus:
    """A journal as its executor describes it.

    head      the newest record: its number, from 1, and its hash; 0 where there is none.
    anchor    the newest record that was dropped for room; 0 where none was.
    missed    records that could not be written since the newest one; `missed_reason` is why, in one word.
    lasting   whether the journal outlives the pod. Where it does not, only an export keeps it.
    """

    head: Head
    anchor: Head
    pod_uid: str
    session: str
    missed: int
    missed_reason: str
    lasting: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalExport:
    """A journal that was written to a file.

    path          the records, byte for byte as the executor hashed them.
    heads_path    beside it: the heads that this client has kept and those that the fleet has signed.
    size          bytes of the records.
    verification  what a check of the records has found on the way.
    is_signed     whether the fleet has signed the journal's newest record for this export.
    """

    path: Path
    heads_path: Path
    size: int
    verification: Verification
    is_signed: bool

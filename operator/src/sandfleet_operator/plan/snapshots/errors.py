"""Why a snapshot cannot be saved, read, moved or removed."""

from enum import Enum


class Reason(Enum):
    """One word for programs."""

    NOT_FOUND = "NotFound"
    # Another snapshot has this id, or another save makes it at the moment.
    EXISTS = "Exists"
    # The session has a snapshot of this name, or snapshots of several sessions have the one to delete.
    NAME_TAKEN = "NameTaken"
    # What the store gave back is not what was written to it.
    CORRUPT = "Corrupt"
    # It is another tenant's, or was written with a key that this tenant does not have.
    FOREIGN = "Foreign"
    # It is whole, and not the one that was asked for.
    CHANGED = "Changed"
    # Names, order or sizes that no save writes.
    HOSTILE = "Hostile"
    # More than the caller allows, or than any snapshot may be.
    TOO_LARGE = "TooLarge"
    # It asks for more than the snapshot, or its template, allows.
    WIDENED = "Widened"
    # The save took so long that a collection has given it up.
    FENCED = "Fenced"
    FULL = "Full"
    DENIED = "Denied"
    UNAVAILABLE = "Unavailable"


class SnapshotError(Exception):
    """Its message is "cannot X: why"."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason = reason


def hostile(why: str) -> SnapshotError:
    return SnapshotError(Reason.HOSTILE, f"cannot use the snapshot: {why}")


def corrupt(why: str) -> SnapshotError:
    return SnapshotError(Reason.CORRUPT, f"cannot read the snapshot: {why}")

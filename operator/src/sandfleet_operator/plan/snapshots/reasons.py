"""Why calls about snapshots fail."""

from sandfleet_operator.api.errors import CallReason, Code


class SnapshotReason(CallReason):
    """Why a snapshot is not taken, restored or moved."""

    SNAPSHOT_NOT_FOUND = (
        "SnapshotNotFound",
        Code.NOT_FOUND,
        "No snapshot has this id or name, or it was deleted.",
        "List the snapshots: `sandfleet snapshot ls`, and with `--deleted` those that `undelete` takes back.",
    )
    SNAPSHOT_RUNNING = (
        "SnapshotRunning",
        Code.FAILED_PRECONDITION,
        "Another snapshot of the sandbox is being taken, or one is being restored in it.",
        "Wait for its end.",
    )
    SNAPSHOT_NAME_TAKEN = (
        "SnapshotNameTaken",
        Code.FAILED_PRECONDITION,
        "The session has a snapshot of this name already, or it names several that would be deleted.",
        "Take another name, delete the one before, or name the id. The message has the ids.",
    )
    SNAPSHOT_WIDENED = (
        "SnapshotWidened",
        Code.FAILED_PRECONDITION,
        "The sandbox would allow more than the snapshot: a wider contract, a higher limit, or unreviewed code of a file.",
        "Ask for a sandbox with the contract and the limits of the snapshot, or less. The message says which.",
    )
    SNAPSHOT_DAMAGED = (
        "SnapshotDamaged",
        Code.INTERNAL,
        "What the store gave back is not what was written, or was written with another key. Nothing of it was restored.",
        "Use another snapshot. Check the store and the key file.",
    )
    SNAPSHOT_INVALID = (
        "SnapshotInvalid",
        Code.INVALID_ARGUMENT,
        "It has paths, sizes or an order that no sandbox writes, or the file is no exported snapshot.",
        "Use a file that `sandfleet snapshot export` has written.",
    )
    SNAPSHOT_TOO_LARGE = (
        "SnapshotTooLarge",
        Code.RESOURCE_EXHAUSTED,
        "It has more files or bytes than a snapshot, or the sandbox, may have.",
        "Remove files, or ask for a sandbox with a higher `disk_bytes`.",
    )
    SNAPSHOT_STORE_FULL = (
        "SnapshotStoreFull",
        Code.RESOURCE_EXHAUSTED,
        "The store has no room.",
        "Delete snapshots for good (`sandfleet snapshot delete --now`), or make room where the store is.",
    )
    SNAPSHOT_STORE_DENIED = (
        "SnapshotStoreDenied",
        Code.PERMISSION_DENIED,
        "The store, or the file of its keys, does not let the fleet in.",
        "Check the rights on the folder or bucket, and the credentials.",
    )
    SNAPSHOT_OVERTAKEN = (
        "SnapshotOvertaken",
        Code.UNAVAILABLE,
        "The session received untrusted or secret content while it was saved, which its snapshot would not say.",
        "Retry.",
    )
    SNAPSHOT_IMPORT_DENIED = (
        "SnapshotImportDenied",
        Code.PERMISSION_DENIED,
        "The caller may not make snapshots of files: what is in them was written elsewhere.",
        "Ask for that right. On one machine, leave SANDFLEET_SNAPSHOT_IMPORTS unset.",
    )
    SNAPSHOT_STORE_UNAVAILABLE = (
        "SnapshotStoreUnavailable",
        Code.UNAVAILABLE,
        "The store does not answer, or the snapshotter has ended.",
        "Retry.",
    )

"""Why calls of the fleet fail, why claims wait, and why sandboxes end.

Made by scripts/reference.py from the operator's api/reasons.py: change that file and run the script again.
"""

from enum import StrEnum


class ClaimReason(StrEnum):
    """Why a call of the fleet fails: the reason of a SandfleetError."""

    INVALID_ID = "InvalidId"
    """The id of a sandbox, a workspace, a request or a page is malformed.

    On Kubernetes a sandbox's id is NAMESPACE/NAME; other ids are 1 to 64 of [A-Za-z0-9._-].
    """
    INVALID_LABEL = "InvalidLabel"
    """A label is malformed or reserved, or there are too many labels.

    Write labels as Kubernetes does, without the prefixes of Kubernetes and Sandfleet.
    """
    INVALID_ENVIRONMENT = "InvalidEnvironment"
    """An environment variable is malformed, or the environment is too large.

    Shorten the environment; write large values to files instead.
    """
    INVALID_DURATION = "InvalidDuration"
    """A lease, an idle timeout or a wait is out of its bounds.

    The message names the bounds.
    """
    INVALID_LIMIT = "InvalidLimit"
    """A limit is negative, or higher than the template allows.

    Ask for less, or raise the template's limits.
    """
    INVALID_ISOLATION = "InvalidIsolation"
    """The claim asks for an isolation that does not exist.

    Ask for one of the isolations of the API.
    """
    INVALID_MOUNT = "InvalidMount"
    """A mount is malformed, overlaps another one, or covers a path of the system.

    The message says which, and docs/howto/mounts.md what can be mounted.
    """
    IMAGE_UNAVAILABLE = "ImageUnavailable"
    """There is no such root on this machine, or the template does not let a claim name this image.

    The message says which. On Kubernetes the template lists such images in its field images.
    """
    INVALID_EGRESS = "InvalidEgress"
    """A name of the egress list is malformed, or there are too many, or this fleet has no egress by name.

    Write host names as packages.example.com, *.example.org or api.example.com:8443, 100 at most.
    """
    NO_EGRESS = "NoEgress"
    """The session was claimed without names that it may reach.

    Claim with egress=[…]; the list can be changed then, at any time.
    """
    INVALID_SELECTOR = "InvalidSelector"
    """The label selector is malformed or too long.

    Write key=value, key==value or key!=value, joined by commas.
    """
    INVALID_CLAIM = "InvalidClaim"
    """The executor refuses the claim's environment, limits or mounts, or an object of Kubernetes has no room for them.

    The message says which. Put large values in files of the workspace.
    """
    NO_CLUSTER = "NoCluster"
    """The request names a namespace or a sandbox, and the fleet runs on one machine, which has neither.

    Leave them out, or connect to a fleet on Kubernetes.
    """
    UNIMPLEMENTED = "Unimplemented"
    """A fleet on one machine does not serve this call.

    Connect to a fleet on Kubernetes.
    """
    INVALID_MARK = "InvalidMark"
    """A mark of what a session has received is unknown to the fleet.

    Use a client and a fleet of one release.
    """
    TOKEN_MISSING = "TokenMissing"
    """The call has no bearer token.

    Send `authorization: Bearer TOKEN` with a service account's token for the audience "sandfleet".
    """
    TOKEN_INVALID = "TokenInvalid"
    """The API server does not accept the token.

    Fetch a new token.
    """
    FORBIDDEN = "Forbidden"
    """RBAC does not allow the caller this verb on CodeSandboxes, or on the SandboxQueue.

    Bind a role that allows it; the message names verb, resource and namespace.
    """
    REVIEW_FAILED = "ReviewFailed"
    """The API server could not say who calls, or what the caller may do.

    Retry. If it lasts, look at the API server.
    """
    POOL_NOT_FOUND = "PoolNotFound"
    """There is no such pool in the namespace, it is of another template, or it was removed.

    List the pools.
    """
    TEMPLATE_NOT_FOUND = "TemplateNotFound"
    """There is no such SandboxTemplate in the namespace.

    List the templates.
    """
    WORKSPACE_NOT_FOUND = "WorkspaceNotFound"
    """No released sandbox has left a workspace of this id.

    Claim without a workspace, and keep the workspace of the new sandbox.
    """
    CLAIM_NOT_FOUND = "ClaimNotFound"
    """The caller has no claim of this request id that waits or was answered.

    Use the request id of the claim, and the same service account.
    """
    SANDBOX_NOT_FOUND = "SandboxNotFound"
    """There is no such sandbox, or it has ended; the message says why.

    Claim a new one.
    """
    SANDBOX_UNREADABLE = "SandboxUnreadable"
    """The fleet cannot read the CodeSandbox: a newer release or a person wrote it. Lists leave it out, and watches say why.

    Upgrade the fleet, or correct the field that the message names.
    """
    WORKSPACE_BUSY = "WorkspaceBusy"
    """Another sandbox uses the workspace.

    Release that sandbox first. Retry only if the answer says so: that sandbox is ending.
    """
    WORKSPACE_EPHEMERAL = "WorkspaceEphemeral"
    """Workspaces of the template are directories of their pods, and end with them.

    Use a template whose workspace is a volume.
    """
    TOO_MANY_WORKSPACES = "TooManyWorkspaces"
    """The fleet keeps as many workspaces of released sandboxes as it may.

    Claim a kept workspace and release it without keeping it.
    """
    ISOLATION_UNAVAILABLE = "IsolationUnavailable"
    """The template, or this machine, isolates less than the claim asks for.

    Use a template with a stronger runtime, or ask for less.
    """
    CONTRACT_NOT_SUPPORTED = "ContractNotSupported"
    """The fleet, or the pool that the claim names, does not serve the contract.

    Claim with a contract that the fleet serves, and a pool of that contract or none.
    """
    CLAIM_ENDED = "ClaimEnded"
    """The sandbox that this request id was answered with has ended; the message says why.

    Claim under a new request id.
    """
    SANDBOX_SUSPENDED = "SandboxSuspended"
    """The session is suspended: its processes have ended, and it is kept.

    Resume it: `Sandbox.resume(id)`, or `sandfleet resume ID`.
    """
    NO_LEASE = "NoLease"
    """The sandbox has no lease to renew: it lives as long as its CodeSandbox.

    Set lifetimeSeconds, or delete the CodeSandbox when it is no longer needed.
    """
    JOURNAL_CHANGED = "JournalChanged"
    """The executor does not have a record of the session's journal any more that the fleet has signed before.

    Trust what was signed, and nothing that this executor says since: it was taken over, or has lost its disk.
    """
    QUEUE_FULL = "QueueFull"
    """As many claims wait as the queue or the fleet lets wait.

    Retry later, or add capacity.
    """
    NAMESPACE_QUEUE_FULL = "NamespaceQueueFull"
    """As many claims wait in the namespace as the settings let wait in one, or as many as others could still add.

    Retry later, or raise settings.maxWaitingPerNamespace.
    """
    TOO_MANY_WATCHES = "TooManyWatches"
    """The caller, or all callers of the namespace together, have as many watches as the fleet lets be open.

    Share one watch among the parts of your program, and close watches that you do not read.
    """
    SANDBOX_LIMIT = "SandboxLimit"
    """The pool or the fleet has as many sandboxes as it may have, and none became free in time.

    Release sandboxes, or raise the limit.
    """
    QUOTA_EXCEEDED = "QuotaExceeded"
    """A ResourceQuota of the namespace is used up, and no sandbox became free in time.

    Release sandboxes, or raise the quota; the message names it.
    """
    CREATION_FORBIDDEN = "CreationForbidden"
    """Rights, an admission policy or the end of the namespace keep the fleet from creating pods or volumes.

    The message has the API server's words. Correct the policy or the rights, then retry.
    """
    NOT_BOUND_IN_TIME = "NotBoundInTime"
    """No sandbox became ready within the claim's longest wait.

    Retry, wait longer, or keep more sandboxes warm.
    """
    START_FAILED = "StartFailed"
    """Sandboxes of the pool end before they are ready; the message has the last one's words.

    Correct the template or the machine.
    """
    START_TIMEOUT = "StartTimeout"
    """Sandboxes of the pool are not ready in time.

    Look at the pods' events: images, volumes and nodes are the usual causes.
    """
    SANDBOX_UNFIT = "SandboxUnfit"
    """The executor is not the expected one: its protocol, its isolation or its session differs.

    Use images of one release.
    """
    EXECUTOR_UNREACHABLE = "ExecutorUnreachable"
    """The executor does not answer the fleet, or answers with a failure (INTERNAL).

    Retry. If it lasts, look at the sandbox's log and at the network policies.
    """
    EXECUTOR_GONE = "ExecutorGone"
    """The sandbox's executor is gone, or its pod has no address.

    Retry: the executor is replaced, or the sandbox has ended.
    """
    RECOVERING = "Recovering"
    """The sandbox's executor is still being replaced.

    Retry.
    """
    STILL_ENDING = "StillEnding"
    """The released sandbox's executor has not ended in time.

    Retry. If it lasts, look at the pod and its node.
    """
    NOT_SERVING = "NotServing"
    """The fleet is starting or stopping, or another one leads.

    Retry; a Claim under the same request id.
    """
    CLAIM_REFUSED = "ClaimRefused"
    """The API server refuses what the fleet writes for this claim: by an admission policy, a quota or a limit of size.

    The message has the API server's words. Change the claim or the policy, then claim again.
    """
    API_SERVER_FAILED = "ApiServerFailed"
    """The API server refused or did not answer a request of the fleet.

    Retry. If it lasts, look at the API server and at the fleet's role.
    """


class AdmissionReason(StrEnum):
    """Why a queue does not take a claim: the reason of a SandfleetError."""

    QUEUE_NOT_FOUND = "QueueNotFound"
    """There is no such SandboxQueue in the namespace, or it was removed while the claim waited.

    List the queues.
    """
    PRIORITY_NOT_FOUND = "PriorityNotFound"
    """The queue has no such priority class.

    Name one of the queue's priorityClasses, or none for the last of them.
    """
    PRIORITY_FORBIDDEN = "PriorityForbidden"
    """RBAC does not allow the caller the priority class, which is restricted.

    Bind a role with the verb prioritize on the SandboxQueue, or name another class.
    """
    QUOTA_TOO_SMALL = "QuotaTooSmall"
    """One sandbox of the template requests more than the queue may use at all, also with all that its cohort lends.

    Claim from a smaller template, or raise the queue's quota or borrowing limit.
    """
    INVALID_GANG = "InvalidGang"
    """The claim does not fit its gang: queue, priority, size or number of claims differ, or it names a workspace.

    Make the claims of a gang alike, as many as its size, under an id that no other gang has.
    """
    GANG_TOO_LARGE = "GangTooLarge"
    """The pool, the fleet or the queue can never have as many sandboxes as the gang has claims.

    Claim fewer at once, or raise the pool's maxSize or the queue's quota.
    """
    GANG_BROKEN = "GangBroken"
    """Another claim of the gang was left or failed, so that all of them are undone.

    Claim the gang again.
    """
    WAIT_TOO_LONG = "WaitTooLong"
    """Claims of the queue wait longer than the claim or the queue's maxWaitSeconds allows.

    Come back after the time that the answer says, or raise the queue's quota or its maxWaitSeconds.
    """


class SuspendReason(StrEnum):
    """Why a session is not suspended: the reason of a SandfleetError."""

    EXECUTION_RUNNING = "ExecutionRunning"
    """An execution or a command runs in the session, which a suspension would end; the message names it.

    Wait for its end, or suspend with `force`.
    """
    PACKAGES_INSTALLING = "PackagesInstalling"
    """The packages of the template are being installed.

    Wait until they are, or suspend with `force`.
    """
    CONNECTION_OPEN = "ConnectionOpen"
    """A connection to a port of the sandbox is open, which a suspension would end.

    Close it, or suspend with `force`.
    """
    STATE_NOT_SAVED = "StateNotSaved"
    """The variables of a whole context cannot be saved; the message says why.

    Delete the context or make room, or suspend with `force`, which goes without them.
    """
    SERVICE_RUNNING = "ServiceRunning"
    """A service of the sandbox is to run, so the session is not preempted.

    Nothing is to be done: no call answers this.
    """
    SANDBOX_PREEMPTED = "SandboxPreempted"
    """The owner of its quota needs it. The session is suspended, waits in its old place, and is resumed.

    Wait, or `Sandbox.resume(id)`, which waits with a limit of time. Raise the queue's nominal quota if it lasts.
    """
    NOT_CLAIMED = "NotClaimed"
    """The CodeSandbox was made without the fleet, so the fleet does not suspend or resume it.

    Set `spec.operatingMode` of the CodeSandbox.
    """
    WORKSPACE_KEPT = "WorkspaceKept"
    """The workspace of the session is to be kept on its volume, so a snapshot does not take its place.

    Suspend to the volume, or claim without `workspace_id` and `keep_workspace`.
    """
    TOO_MANY_SUSPENDED = "TooManySuspended"
    """As many sessions are suspended as the fleet keeps.

    Resume or release suspended sessions.
    """


class SnapshotReason(StrEnum):
    """Why a snapshot is not taken, restored or moved: the reason of a SandfleetError."""

    SNAPSHOT_NOT_FOUND = "SnapshotNotFound"
    """No snapshot has this id or name, or it was deleted.

    List the snapshots: `sandfleet snapshot ls`, and with `--deleted` those that `undelete` takes back.
    """
    SNAPSHOT_RUNNING = "SnapshotRunning"
    """Another snapshot of the sandbox is being taken, or one is being restored in it.

    Wait for its end.
    """
    SNAPSHOT_NAME_TAKEN = "SnapshotNameTaken"
    """The session has a snapshot of this name already, or it names several that would be deleted.

    Take another name, delete the one before, or name the id. The message has the ids.
    """
    SNAPSHOT_WIDENED = "SnapshotWidened"
    """The sandbox would allow more than the snapshot: a wider contract, a higher limit, or unreviewed code of a file.

    Ask for a sandbox with the contract and the limits of the snapshot, or less. The message says which.
    """
    SNAPSHOT_DAMAGED = "SnapshotDamaged"
    """What the store gave back is not what was written, or was written with another key. Nothing of it was restored.

    Use another snapshot. Check the store and the key file.
    """
    SNAPSHOT_INVALID = "SnapshotInvalid"
    """It has paths, sizes or an order that no sandbox writes, or the file is no exported snapshot.

    Use a file that `sandfleet snapshot export` has written.
    """
    SNAPSHOT_TOO_LARGE = "SnapshotTooLarge"
    """It has more files or bytes than a snapshot, or the sandbox, may have.

    Remove files, or ask for a sandbox with a higher `disk_bytes`.
    """
    SNAPSHOT_STORE_FULL = "SnapshotStoreFull"
    """The store has no room.

    Delete snapshots for good (`sandfleet snapshot delete --now`), or make room where the store is.
    """
    SNAPSHOT_STORE_DENIED = "SnapshotStoreDenied"
    """The store, or the file of its keys, does not let the fleet in.

    Check the rights on the folder or bucket, and the credentials.
    """
    SNAPSHOT_OVERTAKEN = "SnapshotOvertaken"
    """The session received untrusted or secret content while it was saved, which its snapshot would not say.

    Retry.
    """
    SNAPSHOT_IMPORT_DENIED = "SnapshotImportDenied"
    """The caller may not make snapshots of files: what is in them was written elsewhere.

    Ask for that right. On one machine, leave SANDFLEET_SNAPSHOT_IMPORTS unset.
    """
    SNAPSHOT_STORE_UNAVAILABLE = "SnapshotStoreUnavailable"
    """The store does not answer, or the snapshotter has ended.

    Retry.
    """


class ReviewReason(StrEnum):
    """Why a review is not listed or answered: the reason of a SandfleetError."""

    NOT_REVIEWER = "NotReviewer"
    """The caller may not review what runs in the sandbox; who has claimed it never may.

    Answer as a reviewer: on one machine with the token in the fleet's directory, on Kubernetes as another account.
    """
    REVIEW_NOT_FOUND = "ReviewNotFound"
    """No such review waits: it was answered, or its caller has gone.

    List the reviews again.
    """
    REVIEW_CHANGED = "ReviewChanged"
    """The sandbox has let something run since the reviewer looked, or another request waits.

    Look at the review again, and answer what it shows now.
    """
    REVIEW_NOT_EDITABLE = "NotEditable"
    """What waits cannot be edited.

    Approve it, or deny it with a reason.
    """
    INVALID_ANSWER = "InvalidAnswer"
    """The answer to a review is missing, or its reason or its edit is too long.

    Approve, edit or deny; a reason has at most 2,000 characters, an edit 2 MiB of text.
    """
    INVALID_CALL = "InvalidCall"
    """The call of a tool cannot be shown to a reviewer: it is too long, or no text.

    Give the tool smaller arguments, or let the policy decide without a person.
    """
    TOO_MANY_REVIEWS = "TooManyReviews"
    """Too many calls of tools wait for reviewers of the session.

    Answer those that wait first.
    """


class GatewayReason(StrEnum):
    """Why the gateway refuses or ends a connection, beside what the fleet says."""

    INVALID_TUNNEL = "InvalidTunnel"
    """A message of a tunnel is out of order or too large, or its token is of another caller.

    Use the client of the same release.
    """
    INVALID_SIGNING_REQUEST = "InvalidSigningRequest"
    """The gateway's request for a certificate is malformed, or asks for another name than sandfleet-gateway.

    Use a gateway of the same release.
    """
    TOO_MANY_TUNNELS = "TooManyTunnels"
    """The caller, or all callers together, have as many connections through the gateway as allowed.

    Close sandboxes that are not in use, or raise gateway.maxTunnels and gateway.maxTunnelsPerCaller.
    """
    SANDBOX_REPLACED = "SandboxReplaced"
    """Another pod serves the sandbox than the one that the connection through the gateway leads to.

    Connect again; the client does so by itself.
    """
    ROUTE_UNKNOWN = "RouteUnknown"
    """The gateway cannot ask the fleet where the sandbox is and whether the caller may still connect.

    Retry. If it lasts, look at the log of the fleet.
    """


class QueueReason(StrEnum):
    """Why a claim waits: the reason of a Queued, beside the reasons of its pool."""

    POOL_EMPTY = "PoolEmpty"
    """No sandbox of the pool is warm; one is being started or will be.

    Wait, or keep more sandboxes warm.
    """
    COLD_START = "ColdStart"
    """A sandbox is being started for this claim alone, as for a claim on an earlier workspace.

    Wait.
    """
    SANDBOX_LIMIT = "SandboxLimit"
    """The pool or the fleet has as many sandboxes as it may have.

    Release sandboxes, or raise the limit.
    """
    QUOTA_REACHED = "QuotaReached"
    """The claim's queue uses all of its quota and of its borrowing limit.

    Wait until a sandbox of the queue is released, or raise the quota.
    """
    COHORT_EXHAUSTED = "CohortExhausted"
    """The cohort has nothing left that the claim's queue could use: other queues use it.

    Wait. Quota that others have borrowed returns to its owner as they release sandboxes.
    """
    QUEUE_HELD = "QueueHeld"
    """The stopPolicy of the claim's queue lets it admit nothing now.

    Wait until stopPolicy is None again.
    """
    GANG_INCOMPLETE = "GangIncomplete"
    """Not all claims of the gang have come yet.

    Send as many claims as the gang's size says.
    """
    TAKING_OVER = "TakingOver"
    """A new leader of the fleet still learns which sandboxes exist.

    Wait: it takes seconds.
    """


class EndReason(StrEnum):
    """Why a sandbox ended, or its executor was replaced."""

    RELEASED = "Released"
    """Its holder released it, or its CodeSandbox was deleted."""
    LEASE_EXPIRED = "LeaseExpired"
    """Its lease ran out."""
    IDLE = "Idle"
    """It was unused for its idle timeout."""
    SUSPENSION_OVER = "SuspensionOver"
    """It was suspended for as long as it may be."""
    EXPIRED = "Expired"
    """Its CodeSandbox has expired."""
    CLOSED = "Closed"
    """Its executor was told to end the session."""
    CLAIM_UNDONE = "ClaimUndone"
    """The caller left before it was answered."""
    CLAIM_SUPERSEDED = "ClaimSuperseded"
    """Another pod serves the same request."""
    RECORD_REFUSED = "RecordRefused"
    """The API server refuses the CodeSandbox of the claim."""
    POD_LOST = "PodLost"
    """Its pod was gone before the claim was written down."""
    CRASH_LOOP = "CrashLoop"
    """Its executor crashed too often in a row."""
    ISOLATION_UNAVAILABLE = "IsolationUnavailable"
    """Its executor could not isolate user code as it must."""
    BAD_CONFIGURATION = "BadConfiguration"
    """Its executor cannot use its configuration."""
    CRASHED = "Crashed"
    """Its executor ended with a failure, and was replaced."""
    KILLED = "Killed"
    """A signal ended its executor, which was replaced."""
    OUT_OF_MEMORY = "OutOfMemory"
    """Its pod had used all of its memory; its executor was replaced."""
    START_FAILED = "StartFailed"
    """Its next executor did not start, and another one took its place."""
    OWNER_GONE = "OwnerGone"
    """The process that had started its executor ended; the executor was replaced."""
    STUCK = "Stuck"
    """Its executor's watchdog ended it, and it was replaced."""
    POOL_REMOVED = "PoolRemoved"
    """It was warm, and its pool was removed."""
    NOT_MADE = "NotMade"
    """The API server did not create its pod or its volume."""
    NOT_NEEDED = "NotNeeded"
    """It was warm, and its pool needs fewer warm sandboxes or newer ones."""
    GANG_INCOMPLETE = "GangIncomplete"
    """The other claims of its gang did not come back to the next leader."""
    QUEUE_DRAINED = "QueueDrained"
    """The stopPolicy of its queue is HoldAndDrain."""
    PREEMPTED = "Preempted"
    """Its queue had borrowed its quota, whose owner needed it, and it could not be suspended."""
    UNHEALTHY = "Unhealthy"
    """It was warm, and its pod was no longer ready."""

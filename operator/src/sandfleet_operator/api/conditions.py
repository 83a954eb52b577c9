"""The conditions of CodeSandboxes, SandboxPools and SandboxQueues, and their reasons.

docs/reference/conditions.md is made from this.

While Ready is not True, it repeats the reason of the condition that prevents it: one column of `kubectl get csb` then
says what is wrong.
"""

from enum import Enum
from typing import Self


class ConditionType(Enum):
    """A type of condition, and what "True" means for it."""

    value: str
    meaning: str

    def __new__(cls, word: str, meaning: str) -> Self:
        one = object.__new__(cls)
        one._value_ = word
        one.meaning = meaning
        return one

    ADMITTED = (
        "Admitted",
        "The sandbox's queue has admitted it: the sandbox counts against the quota and may have a pod. Without a queue the sandbox does not have this condition.",
    )
    POD_SCHEDULED = "PodScheduled", "The sandbox has a pod, and the pod has a node."
    ISOLATED = (
        "Isolated",
        "Before any user code ran, the default-deny policy and the egress policy existed, and the executor proved its identity and its runtime. No NetworkPolicy of others opens the sandbox.",
    )
    READY = (
        "Ready",
        "The sandbox can run code: its pod belongs to it, its isolation was proved and the executor answers. Isolated is True, or its reason is OpenedByOthers and the template's networkClosure is not Required.",
    )
    SUSPENDED = "Suspended", "operatingMode is Suspended and the pod is gone. The workspace is kept."
    EXPIRED = "Expired", "The sandbox has ended for good. It gets no further pod."
    DEGRADED = "Degraded", "The sandbox has a problem that the operator cannot repair alone. It may still run."


class Word(Enum):
    """The reason of a condition: a word for programs, its meaning, and what its reader can do about it."""

    value: str
    meaning: str
    remedy: str

    def __new__(cls, word: str, meaning: str, remedy: str) -> Self:
        one = object.__new__(cls)
        one._value_ = word
        one.meaning = meaning
        one.remedy = remedy
        return one


class PoolReason(Word):
    """Reasons of a SandboxPool's condition Ready. It is True while the pool has its target number of warm sandboxes."""

    FILLED = "Filled", "The pool has its target number of warm sandboxes.", "No action is needed."
    FILLING = (
        "Filling",
        "Sandboxes are starting, because a claim took one, replicas was changed or demand has grown.",
        "Wait. If the pool never fills, claims come faster than sandboxes start: raise maxStarting, or add nodes.",
    )
    REPLACING = (
        "Replacing",
        "The template has changed, and new sandboxes replace the warm ones. Until then claims still get old ones.",
        "Wait. Claimed sandboxes stay as they are.",
    )
    POLICY_MISSING = (
        "PolicyMissing",
        "The namespace lacks its default-deny policy, the template's egress policy or the keys for tokens. Until they exist, the fleet starts and hands out no sandbox.",
        "Wait for the operator to create them. If it does not, check that it runs, and read its log for this namespace.",
    )
    OPENED_BY_OTHERS = (
        "OpenedByOthers",
        "NetworkPolicies that are not Sandfleet's open the template's sandboxes, and networkClosure of the template is Required. Until they are gone, the fleet starts and hands out no sandbox. The message names them.",
        "Delete these policies, or let their podSelector leave out pods with the label sandfleet.io/component=sandbox.",
    )
    TEMPLATE_NOT_FOUND = (
        "TemplateNotFound",
        "The namespace has no SandboxTemplate with the name in spec.templateRef.",
        "Create the template; the pool finds it without a restart. Or create another pool.",
    )
    TEMPLATE_INVALID = (
        "TemplateInvalid",
        "The template is not valid; the message names the field.",
        "Correct the template; the pool then fills without further action.",
    )
    UNREADABLE = (
        "Unreadable",
        "The fleet cannot read the pool: a newer release or a person wrote it. The message names the field. The pool starts and hands out nothing.",
        "Upgrade the fleet to the release that wrote the pool, or correct the field.",
    )
    STARTS_FAIL = (
        "StartsFail",
        "Sandboxes end before they are warm, do not answer, or have a pod that the API server calls invalid; the message says which. The fleet tries again after growing pauses.",
        "Read the message: usually an image, or a node without room or without the runtime. `kubectl describe pod -l sandfleet.io/pool=NAME` has the details.",
    )
    SCHEDULING_GATED = (
        "SchedulingGated",
        "Another controller holds the starting pods back by scheduling gates, which the message names.",
        "Wait until it lets them go: Kueue does so when their queue has quota. The start's time does not run meanwhile.",
    )
    IMAGE_PULLING = (
        "ImagePulling",
        "A node has been pulling the template's image for some seconds.",
        "Wait. The start's time does not run meanwhile, up to settings.starts.imagePulling.",
    )
    UNSCHEDULABLE = (
        "Unschedulable",
        "No node has room for the starting pods; the message is the scheduler's.",
        "Add nodes, free some, or lower the requests in the template. The scheduler tries again on its own.",
    )
    IMAGE_PULL_FAILED = (
        "ImagePullFailed",
        "A node cannot pull the template's image; the message is the node's.",
        "Check the image's name, the registry and imagePullSecrets in the template. The node tries again.",
    )
    CONTAINER_CREATE_FAILED = (
        "ContainerCreateFailed",
        "A node cannot create the container; the message is the node's.",
        "Read the message. The usual cause is a runtime that is not installed on that node.",
    )
    SECRET_NOT_FOUND = (
        "SecretNotFound",
        "The template names a Secret, or a key of a Secret, that the namespace does not have.",
        "Create the Secret; the pods then start.",
    )
    SANDBOX_LIMIT = (
        "SandboxLimit",
        "Warm and claimed sandboxes together have reached maxSize, or the limit of the whole fleet. The fleet starts no more.",
        "Raise maxSize, or find out who holds the sandboxes: `kubectl get csb -l sandfleet.io/pool=NAME`.",
    )
    MAX_WARM_REACHED = (
        "MaxWarmReached",
        "targetHitRate needs more warm sandboxes than maxWarm allows, so the pool misses its target.",
        "Raise maxWarm, shorten the start time, or lower targetHitRate.",
    )
    QUOTA_EXCEEDED = (
        "QuotaExceeded",
        "A ResourceQuota of the namespace is used up; the message names it. The fleet tries one start at a time after growing pauses, and claims wait.",
        "Raise the quota, release sandboxes, or lower the requests in the template.",
    )
    CREATION_FORBIDDEN = (
        "CreationForbidden",
        "Rights, an admission policy or the end of the namespace keep the fleet from creating pods or volumes; the message has the API server's words. Claims wait.",
        "Correct the policy or the rights; the fleet then continues on its own.",
    )
    API_SERVER_FAILED = (
        "ApiServerFailed",
        "The API server does not answer the fleet, or tells it to wait. Claims wait; running sessions are not affected.",
        "Repair the API server; the fleet then continues on its own.",
    )


class SavedReason(Word):
    """Reasons of a SandboxSnapshot's condition Saved. It is True while the snapshot is in the store."""

    SAVED = "Saved", "The snapshot is in the store, whole.", "No action is needed."
    SAVING = "Saving", "The session is being saved.", "Wait."
    NOT_SAVED = (
        "NotSaved",
        "The session could not be saved; the message says why. The fleet tries again.",
        "Do what the message says, or delete the SandboxSnapshot.",
    )
    SNAPSHOT_GONE = (
        "SnapshotGone",
        "The snapshot is not in the store any more: it was deleted, or its retention was over.",
        "Delete the SandboxSnapshot.",
    )


class GrantReason(Word):
    """Reasons of a SandboxQueue's condition Active. It is True while the queue admits what its quota permits."""

    ADMITTING = "Admitting", "Claims that come are admitted at once.", "No action is needed."
    QUOTA_REACHED = (
        "QuotaReached",
        "The queue uses all of its quota and of its borrowing limit, and claims wait.",
        "Wait, release sandboxes, or raise nominalQuota or borrowingLimit. `kubectl get csb -n TEAM` shows what runs.",
    )
    COHORT_EXHAUSTED = (
        "CohortExhausted",
        "The cohort has nothing left to lend, and claims wait.",
        "Wait: borrowed quota returns as sandboxes end. If it lasts, raise a quota of the cohort, or lower the borrowingLimit of those that borrow.",
    )
    HELD = (
        "Held",
        "stopPolicy is Hold: claims wait, and what is admitted goes on.",
        "Set stopPolicy to None to admit again.",
    )
    DRAINING = (
        "Draining",
        "stopPolicy is HoldAndDrain: claims wait, and what is admitted ends.",
        "Set stopPolicy to None to admit again.",
    )
    UNREADABLE = (
        "Unreadable",
        "The fleet cannot read the queue: a newer release or a person wrote it. The message names the field. The queue admits nothing; what is admitted goes on.",
        "Upgrade the fleet to the release that wrote the queue, or correct the field.",
    )


class ServiceReason(Word):
    """Reasons of the Events about a sandbox's declared services."""

    SERVICE_FAILED = (
        "ServiceFailed",
        "The executor has given up a declared service; the message says which one and why. The sandbox runs without it.",
        "Read the message and the log, /workspace/.sandfleet/services/NAME.log. A session can start the service again; a corrected template takes effect with the next pod.",
    )
    SERVICE_CRASH_LOOP = (
        "ServiceCrashLoop",
        "A declared service ends again and again. The executor restarts it after growing pauses.",
        "As for ServiceFailed: the message and the log say how it ended.",
    )
    SERVICE_READY = (
        "ServiceReady",
        "A declared service has recovered from one of these problems and is ready.",
        "No action is needed.",
    )


class Reason(Word):
    """Reasons of a CodeSandbox's conditions."""

    # The request cannot be fulfilled.
    TEMPLATE_NOT_FOUND = (
        "TemplateNotFound",
        "The namespace has no SandboxTemplate with the name in spec.templateRef.",
        "Create the template; the sandbox finds it without a restart. Or create the sandbox again with another template.",
    )
    TEMPLATE_INVALID = (
        "TemplateInvalid",
        "The template is not valid; the message names the field.",
        "Correct the template; the operator then tries its sandboxes again.",
    )
    INVALID_SPEC = (
        "InvalidSpec",
        "The sandbox's own spec is not valid; the message names the field.",
        "Delete the sandbox and create it again with a valid spec.",
    )
    UNREADABLE = (
        "Unreadable",
        "The operator cannot read the object: a newer release or a person wrote it. The message names the field. The operator starts nothing for it and does not follow its pod; a pod that runs goes on.",
        "Upgrade the operator to the release that wrote the object, or correct the field. Then the operator goes on by itself.",
    )
    INLINE_NOT_ALLOWED = (
        "InlineNotAllowed",
        "The operator's settings do not allow inline templates.",
        "Use spec.templateRef, or ask the platform team to allow inline templates.",
    )
    ABOVE_TEMPLATE = (
        "AboveTemplate",
        "The sandbox asks for more than its template allows or, with an inline template, more than the operator's settings allow. The message names the field and both values.",
        "Ask for less, or use a template that allows more.",
    )
    IMAGE_NOT_ALLOWED = (
        "ImageNotAllowed",
        "The image is not on the operator's list of allowed images.",
        "Use an image from the list, or ask the platform team to add this one.",
    )
    CONTRACT_NOT_ALLOWED = (
        "ContractNotAllowed",
        "The sandbox asks for a contract that its template does not allow.",
        "Use one of the template's contracts.",
    )
    EGRESS_NOT_ALLOWED = (
        "EgressNotAllowed",
        "The sandbox asks for a network that its template does not open, or that no sandbox may reach; the message names it.",
        "Change spec.egress, which is possible at any time, or use a template that opens the network.",
    )
    SECRET_NOT_FOUND = (
        "SecretNotFound",
        "The template names a Secret, or a key of a Secret, that the namespace does not have.",
        "Create the Secret; the pod then starts.",
    )
    QUOTA_EXCEEDED = (
        "QuotaExceeded",
        "A ResourceQuota of the namespace has no room for the pod or the volume.",
        "Delete unneeded sandboxes, or have the quota raised. The operator tries again.",
    )
    FORBIDDEN = (
        "Forbidden",
        "The API server refused the pod or the volume because of PodSecurity, an admission policy, a LimitRange or missing rights of the operator.",
        "Read the message, which is the API server's, and remove the cause. The operator tries again.",
    )
    STORAGE_CLASS_NOT_FOUND = (
        "StorageClassNotFound",
        "The workspace names a StorageClass that does not exist, or names none and the cluster has no default.",
        "Name a class from `kubectl get storageclass`, or mark one as the default.",
    )
    RUNTIME_CLASS_NOT_FOUND = (
        "RuntimeClassNotFound",
        "The template names a RuntimeClass that the cluster does not have.",
        "Install gVisor on the nodes and create its RuntimeClass (the chart can), or name another one in the template.",
    )

    POOL_NOT_FOUND = (
        "PoolNotFound",
        "The namespace has no SandboxPool with the name in spec.poolRef.",
        "Create the pool; the sandbox finds it without a restart. Or create the sandbox again with another pool or without one.",
    )

    # Its queue.
    ADMITTED = (
        "Admitted",
        "The queue has admitted the sandbox, which counts against the quota from now on.",
        "No action is needed.",
    )
    WAITING_FOR_ADMISSION = (
        "WaitingForAdmission",
        "The sandbox waits in its queue and gets no pod before the fleet has admitted it. The message is the fleet's.",
        "Wait, or delete sandboxes of the queue. `kubectl get sbq` shows how full the queue is. If the message does not change, check that the fleet runs and has a leader.",
    )
    QUOTA_REACHED = (
        "QuotaReached",
        "The queue uses all of its quota and of its borrowing limit; the message has the numbers.",
        "Wait until a sandbox of the queue ends, delete or suspend one, or have the quota raised.",
    )
    COHORT_EXHAUSTED = (
        "CohortExhausted",
        "The queue's cohort has nothing left that the queue could use: other queues use it.",
        "Wait. Quota that others have borrowed returns to its owner as their sandboxes end.",
    )
    QUOTA_TOO_SMALL = (
        "QuotaTooSmall",
        "The sandbox requests more than its queue may ever use.",
        "Use a template with lower requests or lower resources.limits, or have the quota raised.",
    )
    QUEUE_HELD = (
        "QueueHeld",
        "The queue admits nothing now: its stopPolicy says so, or the fleet cannot read the queue.",
        "Wait, or ask the platform team. `kubectl describe sbq NAME` has the reason.",
    )
    QUEUE_DRAINED = (
        "QueueDrained",
        "The queue's stopPolicy is HoldAndDrain: the pod ends and the workspace is kept.",
        "Wait until the platform team sets stopPolicy to None. The sandbox then gets a new pod on the same workspace.",
    )
    PRIORITY_NOT_FOUND = (
        "PriorityNotFound",
        "The queue has no priority class with the name in spec.priorityClass.",
        "Create the sandbox again with one of the queue's priorityClasses, or have the class added to the queue.",
    )
    QUEUE_NOT_FOUND = (
        "QueueNotFound",
        "The namespace has no SandboxQueue with the name in spec.queueRef.",
        "Have the platform team create the queue; the sandbox finds it without a restart. Or create the sandbox again with another queue or without one.",
    )

    # The sandbox is starting.
    WAITING_FOR_CLAIM = (
        "WaitingForClaim",
        "The sandbox waits for a pool to give it a warm sandbox.",
        "Wait. `kubectl get sbp,sbq` says whether the pool is empty or the queue is full. If the message says that the pool does not exist, create it, or create the sandbox again.",
    )
    WORKSPACE_PENDING = (
        "WorkspacePending",
        "The volume of the workspace does not exist yet.",
        "Wait. If the volume does not appear, `kubectl describe pvc` says what the storage provider waits for.",
    )
    WORKSPACE_NOT_FOUND = (
        "WorkspaceNotFound",
        "workspace.claimName names a volume claim that does not exist, or that is not a workspace left by an earlier sandbox.",
        "Create another sandbox, since the field cannot be changed. Name a claim from `kubectl get pvc -l app.kubernetes.io/managed-by=sandfleet` whose sandbox had retention Retain.",
    )
    WORKSPACE_IN_USE = (
        "WorkspaceInUse",
        "An older pod may still use the workspace, or another node may still have it attached. Two pods never share a workspace.",
        "Wait for the older pod to end. If its node is gone for good, see NodeNotResponding.",
    )
    SCHEDULING_GATED = (
        "SchedulingGated",
        "Another controller holds the pod back by scheduling gates, which the message names.",
        "Wait until it lets the pod go: Kueue does so when the pod's queue has quota.",
    )
    UNSCHEDULABLE = (
        "Unschedulable",
        "No node fits the pod; the message is the scheduler's.",
        "Add nodes, free some, or lower the requests. The scheduler tries again on its own.",
    )
    SCHEDULED = "Scheduled", "The pod has a node.", "No action is needed."
    POD_STARTING = (
        "PodStarting",
        "The container of the pod does not run yet, or the pod waits for its turn: ten start at a time on each node, shared between namespaces.",
        "Wait. The first start on a node pulls the image.",
    )
    IMAGE_PULL_FAILED = (
        "ImagePullFailed",
        "The node cannot pull the image; the message is the node's.",
        "Check the image's name, the registry and imagePullSecrets in the template. The node tries again, and a corrected template gives the sandbox a new pod.",
    )
    CONTAINER_CREATE_FAILED = (
        "ContainerCreateFailed",
        "The node cannot create the pod or its container; the message is the node's.",
        "Read the message. The usual cause is a runtime that is not installed on that node.",
    )
    EXECUTOR_UNREACHABLE = (
        "ExecutorUnreachable",
        "The container runs, but its executor does not answer the operator.",
        "Wait some seconds. If the executor still does not answer, read `kubectl logs` of the pod, and check that the policies let the operator reach the executor's port.",
    )
    BACK_OFF = (
        "BackOff",
        "The sandbox ended repeatedly. The operator waits before it creates the next pod; the message says until when.",
        "Read status.restartHistory for the causes.",
    )

    # Isolation, which the operator never gives up for readiness.
    POLICY_MISSING = (
        "PolicyMissing",
        "The namespace lacks its default-deny policy, or the sandbox its egress policy. Until they exist, the sandbox is not started or handed out.",
        "Wait for the operator to create the policy. If it cannot, the message says why.",
    )
    POLICY_IN_PLACE = "PolicyInPlace", "The policies exist; the runtime is not proved yet.", "No action is needed."
    OPENED_BY_OTHERS = (
        "OpenedByOthers",
        "NetworkPolicies that are not Sandfleet's select the sandbox and allow traffic. Policies add up, so the sandbox is more open than its template says. The message names them.",
        "Delete these policies, or let their podSelector leave out pods with the label sandfleet.io/component=sandbox. The sandbox is not handed out meanwhile if networkClosure of its template is Required.",
    )
    EXECUTOR_IDENTITY_INVALID = (
        "ExecutorIdentityInvalid",
        "The process that answers at the pod's address is not this sandbox's executor: its certificate or its pod UID is wrong.",
        "The operator sends nothing to this process and replaces the pod. If the reason stays, tell the platform team: something intercepts the connection.",
    )
    RUNTIME_MISMATCH = (
        "RuntimeMismatch",
        "The executor runs in another runtime than the template asks for.",
        "Check the handler of the RuntimeClass on that node. The sandbox runs no code until the runtime is right.",
    )
    ISOLATED = (
        "Isolated",
        "The policies exist, and the executor has proved its identity and its runtime.",
        "No action is needed.",
    )

    # Life of the sandbox.
    EXECUTOR_ANSWERS = "ExecutorAnswers", "The sandbox is ready to run code.", "No action is needed."
    MODULES_NOT_PRELOADED = (
        "ModulesNotPreloaded",
        "The sandbox runs code, but could not import all modules that its template names under preload. The message says which, and why.",
        "Correct preload of the template, or add the module to its image. Sandboxes that are made afterwards load it ahead.",
    )
    RUNNING = "Running", "operatingMode is Running.", "No action is needed."
    SUSPENDING = "Suspending", "operatingMode is Suspended, and the pod is ending.", "Wait for Suspended."
    SUSPENDED = (
        "Suspended",
        "The pod is gone and the workspace is kept.",
        "Set operatingMode to Running to get a new pod on the same workspace.",
    )
    SAVING_SNAPSHOT = "SavingSnapshot", "The pod stays until the fleet has saved the session.", "Wait for Suspended."
    RESTORING_SNAPSHOT = "RestoringSnapshot", "The fleet fills the pod with the saved session.", "Wait for Ready."
    ALIVE = "Alive", "The lifetime, the idle timeout and the lease have not ended.", "No action is needed."
    LIFETIME_OVER = (
        "LifetimeOver",
        "The sandbox has reached lifetimeSeconds, or the longest lifetime that its template allows.",
        "Create another sandbox. A retained workspace is still there.",
    )
    IDLE_TIMEOUT_OVER = (
        "IdleTimeoutOver",
        "The sandbox ran nothing for idleTimeoutSeconds.",
        "Create another sandbox, with a longer idle timeout if it should stay longer.",
    )
    LEASE_OVER = (
        "LeaseOver",
        "The holder of the claim did not renew the lease in time.",
        "Claim another sandbox. A client renews its lease for as long as it runs.",
    )
    CLAIM_OVER = (
        "ClaimOver",
        "The claim ended before the fleet wrote this object for it. The pod is gone.",
        "No action is needed: the object is deleted automatically. Claim another sandbox.",
    )
    CLOSED = "Closed", "The client that used the sandbox closed it.", "Create or claim another sandbox."
    DELETING = (
        "Deleting",
        "The object is being deleted together with its pod. The workspace is deleted too where retention is Delete.",
        "Wait. If the object stays, `kubectl get csb NAME -o yaml` names the finalizers that hold it.",
    )
    HEALTHY = "Healthy", "The sandbox has no problem that the operator cannot repair alone.", "No action is needed."

    # How a pod or a container ended. status.restartHistory uses the same words.
    OUT_OF_MEMORY = (
        "OutOfMemory",
        "The sandbox exceeded its memory before the executor could end the largest process. Variables are lost; the workspace is kept.",
        "Use less memory at a time, or a template with more.",
    )
    EXECUTOR_CRASHED = (
        "ExecutorCrashed",
        "The executor ended unexpectedly. Variables are lost; the workspace is kept.",
        "If it happens again, `kubectl logs --previous` of the pod says how it ended.",
    )
    EVICTED = (
        "Evicted",
        "The node evicted the pod, because memory or disk ran short or because the node was drained.",
        "No action is needed: the operator starts a new pod on the same workspace. If it happens again, raise the requests in the template.",
    )
    POD_DELETED = (
        "PodDeleted",
        "A user or another program deleted the pod.",
        "No action is needed: the operator starts a new pod on the same workspace. To end the sandbox, delete the CodeSandbox.",
    )
    NODE_NOT_RESPONDING = (
        "NodeNotResponding",
        "The pod's node does not answer. The pod may still run there, so the operator starts no other pod on its workspace.",
        "Wait for the node. If it is gone for good, taint it with node.kubernetes.io/out-of-service or delete it.",
    )
    NODE_LOST = (
        "NodeLost",
        "The pod's node is confirmed to be gone. If the volume can move, the operator starts a new pod on the same workspace.",
        "No action is needed.",
    )
    WORKSPACE_LOST = (
        "WorkspaceLost",
        "The volume claim or the volume of the workspace is gone, and its files with it. The operator does not replace it with an empty one.",
        "Restore the volume claim under its name, or delete the sandbox and create another one.",
    )
    TOO_MANY_RESTARTS = (
        "TooManyRestarts",
        "The sandbox ended too often without a stable period in between. The operator creates no further pod for it.",
        "Read status.restartHistory and remove the cause, then set operatingMode to Suspended and back to Running.",
    )
    DRIFTED = (
        "Drifted",
        "Another client changed or deleted an object that belongs to the sandbox. The operator restores it.",
        "No action is needed. If it happens again, find out which client writes: `kubectl get --show-managed-fields`.",
    )


def reason(word: str) -> Reason:
    """The reason that a status names by its word. Raises ValueError for an unknown word."""
    for one in Reason:
        if one.value == word:
            return one
    raise ValueError(f"cannot read the reason {word!r}: it is unknown")

"""What a CodeSandbox's status says: conditions, and the reasons for them. docs/reference/conditions.md is made from this file.

Ready repeats the reason of what keeps it from being True, so that one column of `kubectl get csb` says what is wrong.
"""

from enum import Enum
from typing import Self


class ConditionType(Enum):
    """A type, and what "True" means."""

    value: str
    meaning: str

    def __new__(cls, word: str, meaning: str) -> Self:
        one = object.__new__(cls)
        one._value_ = word
        one.meaning = meaning
        return one

    POD_SCHEDULED = "PodScheduled", "The sandbox has a pod, and a node is found for it."
    ISOLATED = (
        "Isolated",
        "Before any user code ran, both policies, default deny and egress, were there and the executor proved its identity and runtime.",
    )
    READY = "Ready", "Code can be run: the pod is the sandbox's own, Isolated is True and the executor answers."
    SUSPENDED = "Suspended", "The pod is gone because operatingMode is Suspended; the workspace is kept."
    EXPIRED = "Expired", "The sandbox is over for good: no pod is made for it any more."
    DEGRADED = "Degraded", "Something that the operator cannot repair alone; the sandbox may still run."


class Word(Enum):
    """Why a condition is what it is: a word for programs, what it means, and what its reader can do about it."""

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
    """Of the condition Ready of a SandboxPool, which is True while as many sandboxes are warm as are to be."""

    FILLED = "Filled", "As many sandboxes are warm as are to be.", "Nothing has to be done."
    FILLING = (
        "Filling",
        "Sandboxes are being started: after a claim, a change of the size or more demand.",
        "Wait. If it never ends, claims come faster than sandboxes start: raise maxStarting, or add nodes.",
    )
    REPLACING = (
        "Replacing",
        "The template has changed, and warm sandboxes are replaced by new ones. Old ones are handed out until then.",
        "Wait; sandboxes that are claimed stay as they are.",
    )
    POLICY_MISSING = (
        "PolicyMissing",
        "The default deny of the namespace, the egress policy of the template or the keys for tokens are not there, so that nothing is started or handed out.",
        "Wait for the operator, which makes them; if it lasts, see whether it runs, and what its log says of this namespace.",
    )
    TEMPLATE_NOT_FOUND = (
        "TemplateNotFound",
        "The namespace has no SandboxTemplate of the name in spec.template.",
        "Make the template, which is then found by itself, or make another pool.",
    )
    TEMPLATE_INVALID = (
        "TemplateInvalid",
        "The template cannot be used as it is written; the message names the field.",
        "Correct the template: the pool then fills by itself.",
    )
    STARTS_FAIL = (
        "StartsFail",
        "Sandboxes end or do not answer before they are warm, or the API server refuses them; the message says how. It is tried again after growing pauses.",
        "Read the message: a quota, an image, a node without room or without the runtime. `kubectl describe pod -l sandfleet.io/pool=NAME` says more.",
    )
    UNSCHEDULABLE = (
        "Unschedulable",
        "No node takes the pods that are being started; the message is the scheduler's.",
        "Add nodes, free some, or ask for less in the template; the scheduler tries again by itself.",
    )
    IMAGE_PULL_FAILED = (
        "ImagePullFailed",
        "A node cannot pull the template's image; the message is the node's.",
        "Check the image's name, the registry and imagePullSecrets in the template; the node tries again.",
    )
    CONTAINER_CREATE_FAILED = (
        "ContainerCreateFailed",
        "A node cannot create the container; the message is the node's.",
        "Read the message: a runtime that is not installed on that node is the usual cause.",
    )
    SECRET_NOT_FOUND = (
        "SecretNotFound",
        "A Secret that the template names, or a key of it, is not in the namespace.",
        "Make the Secret; the pods then start by themselves.",
    )
    SANDBOX_LIMIT = (
        "SandboxLimit",
        "No more sandboxes may be started: maxSize, or the most that the fleet holds, is reached by warm and claimed ones together.",
        "Raise maxSize, or see who holds them: `kubectl get csb -l sandfleet.io/pool=NAME`.",
    )
    MAX_WARM_REACHED = (
        "MaxWarmReached",
        "The target hit rate asks for more warm sandboxes than maxWarm, so that it is not reached.",
        "Raise maxWarm, make starts faster, or lower targetHitRate.",
    )
    API_SERVER_FAILED = (
        "ApiServerFailed",
        "The API server does not answer the fleet, or tells it to wait. Sessions that run do not notice.",
        "See to the API server; the fleet goes on by itself.",
    )


class ServiceReason(Word):
    """Of the Events that tell how a sandbox's declared services are."""

    SERVICE_FAILED = (
        "ServiceFailed",
        "A declared service is given up; the message says which, and why. The sandbox runs without it.",
        "Read the message and the log, /workspace/.sandfleet/services/NAME.log; a session can start it again, a template that is corrected counts for the next pod.",
    )
    SERVICE_CRASH_LOOP = (
        "ServiceCrashLoop",
        "A declared service ends again and again, and is started again after growing pauses.",
        "As ServiceFailed: see how it ended, in the message and in its log.",
    )
    SERVICE_READY = (
        "ServiceReady",
        "A declared service that had such trouble is ready again.",
        "Nothing has to be done.",
    )


class Reason(Word):
    """Of the conditions of a CodeSandbox."""

    # What is asked for cannot be made.
    TEMPLATE_NOT_FOUND = (
        "TemplateNotFound",
        "The namespace has no SandboxTemplate of the name in spec.template.",
        "Make the template, which is then found by itself, or make the sandbox anew with another name.",
    )
    TEMPLATE_INVALID = (
        "TemplateInvalid",
        "The template cannot be used as it is written; the message names the field.",
        "Correct the template; its sandboxes are tried again.",
    )
    INVALID_SPEC = (
        "InvalidSpec",
        "The sandbox's own spec cannot be used; the message names the field.",
        "Delete the sandbox and make it anew with a spec that can.",
    )
    INLINE_NOT_ALLOWED = (
        "InlineNotAllowed",
        "The operator's settings do not let owners write a template in place.",
        "Use spec.template, or ask the platform team to allow inline templates.",
    )
    ABOVE_TEMPLATE = (
        "AboveTemplate",
        "The sandbox asks for more than its template allows, or the settings allow a sandbox that brings its own; the message names the field and both values.",
        "Ask for less, or use a template that allows more.",
    )
    IMAGE_NOT_ALLOWED = (
        "ImageNotAllowed",
        "The image is not on the operator's list of allowed images.",
        "Use an image of the list, or ask the platform team to add this one.",
    )
    CONTRACT_NOT_ALLOWED = (
        "ContractNotAllowed",
        "The template does not have the contract that the sandbox asks for.",
        "Use one of the template's contracts.",
    )
    EGRESS_NOT_ALLOWED = (
        "EgressNotAllowed",
        "The sandbox wants to reach what its template does not allow, or what no sandbox may reach; the message names the network.",
        "Change spec.egress, which may be changed at any time, or use a template that allows it.",
    )
    SECRET_NOT_FOUND = (
        "SecretNotFound",
        "A Secret that the template names, or a key of it, is not in the namespace.",
        "Make the Secret; the pod then starts by itself.",
    )
    QUOTA_EXCEEDED = (
        "QuotaExceeded",
        "A ResourceQuota of the namespace has no room for the pod or the volume.",
        "Delete sandboxes that are not needed, or have the quota raised; it is tried again.",
    )
    FORBIDDEN = (
        "Forbidden",
        "The API server refused the pod or the volume: PodSecurity, an admission policy, a LimitRange or missing rights of the operator.",
        "Read the message, which is the API server's own, and change what it names; it is tried again.",
    )
    STORAGE_CLASS_NOT_FOUND = (
        "StorageClassNotFound",
        "The StorageClass of the workspace is not there, or none is named and the cluster has no default one.",
        "Name one of `kubectl get storageclass`, or mark one as the default.",
    )
    RUNTIME_CLASS_NOT_FOUND = (
        "RuntimeClassNotFound",
        "The cluster has no RuntimeClass of the template's name.",
        "Install gVisor on the nodes and make its RuntimeClass (the chart can), or name another in the template.",
    )

    POOL_NOT_FOUND = (
        "PoolNotFound",
        "The namespace has no SandboxPool of the name in spec.pool.",
        "Make the pool, which is then found by itself, or make the sandbox anew with another name or without a pool.",
    )

    # It is on its way.
    WAITING_FOR_CLAIM = (
        "WaitingForClaim",
        "The sandbox is to be taken from a pool, and none is bound to it yet.",
        "Wait; `kubectl get sbp,sbq` says whether the pool is empty or the queue full. Where the message says that there is no such pool, make it, or the sandbox anew.",
    )
    WORKSPACE_PENDING = (
        "WorkspacePending",
        "The volume of the workspace is not there yet.",
        "Wait; if it lasts, `kubectl describe pvc` says what the storage provider waits for.",
    )
    WORKSPACE_NOT_FOUND = (
        "WorkspaceNotFound",
        "The claim that workspace.claimName names is not there, or is no workspace that an earlier sandbox has left.",
        "Name one of `kubectl get pvc -l app.kubernetes.io/managed-by=sandfleet` whose sandbox said retention Retain; it cannot be changed, so make another sandbox.",
    )
    WORKSPACE_IN_USE = (
        "WorkspaceInUse",
        "The workspace may still be used by an older pod or attached to another node; two pods never share one.",
        "Wait for the older pod to end; if its node is gone for good, see NodeNotResponding.",
    )
    UNSCHEDULABLE = (
        "Unschedulable",
        "No node fits the pod; the message is the scheduler's.",
        "Add nodes, free some, or ask for less; the scheduler tries again by itself.",
    )
    SCHEDULED = "Scheduled", "A node is found for the pod.", "Nothing has to be done."
    POD_STARTING = (
        "PodStarting",
        "The pod is made and its container is not running yet.",
        "Wait; a first start on a node pulls the image.",
    )
    IMAGE_PULL_FAILED = (
        "ImagePullFailed",
        "The node cannot pull the image; the message is the node's.",
        "Check the image's name, the registry and imagePullSecrets in the template; the node tries again, and a template that is corrected gives it another pod.",
    )
    CONTAINER_CREATE_FAILED = (
        "ContainerCreateFailed",
        "The node cannot create the pod or its container; the message is the node's.",
        "Read the message: a runtime that is not installed on that node is the usual cause.",
    )
    EXECUTOR_UNREACHABLE = (
        "ExecutorUnreachable",
        "The container runs, and its executor does not answer the operator.",
        "Wait some seconds; if it lasts, `kubectl logs` of the pod, and check that policies let the operator reach the executor's port.",
    )
    BACK_OFF = (
        "BackOff",
        "The sandbox ended repeatedly, so that the next pod is made after a pause; the message says when.",
        "Look at status.restartHistory for what ended it.",
    )

    # Isolation, which is never given up for readiness.
    POLICY_MISSING = (
        "PolicyMissing",
        "The default deny of the namespace or the egress policy of the sandbox is not there, so that nothing is started or handed out.",
        "Wait for the operator to make it; if it lasts, the message says why it cannot.",
    )
    POLICY_IN_PLACE = (
        "PolicyInPlace",
        "The policies are there; the executor has not proved its runtime yet.",
        "Nothing has to be done.",
    )
    EXECUTOR_IDENTITY_INVALID = (
        "ExecutorIdentityInvalid",
        "Who answers at the pod's address is not this sandbox's executor: its certificate or pod UID is another.",
        "Nothing is sent to it and the pod is replaced; if it lasts, tell the platform team, since something stands between.",
    )
    RUNTIME_MISMATCH = (
        "RuntimeMismatch",
        "The executor finds itself in another runtime than the template asks for.",
        "Check the handler of the RuntimeClass on that node; no code is run until it is right.",
    )
    ISOLATED = (
        "Isolated",
        "The policies are there, and the executor has proved who it is and which runtime it is in.",
        "Nothing has to be done.",
    )

    # Life.
    EXECUTOR_ANSWERS = "ExecutorAnswers", "The sandbox is ready and code can be run.", "Nothing has to be done."
    RUNNING = "Running", "The sandbox is to run: operatingMode is Running.", "Nothing has to be done."
    SUSPENDING = "Suspending", "operatingMode is Suspended, and the pod is ending.", "Wait for Suspended."
    SUSPENDED = (
        "Suspended",
        "The pod is gone and the workspace is kept.",
        "Set operatingMode to Running to get a pod on the same workspace.",
    )
    ALIVE = "Alive", "No time that the sandbox was given is over.", "Nothing has to be done."
    LIFETIME_OVER = (
        "LifetimeOver",
        "The sandbox has lived for lifetimeSeconds, or as long as its template allows.",
        "Make another sandbox; a retained workspace is still there.",
    )
    IDLE_TIMEOUT_OVER = (
        "IdleTimeoutOver",
        "The sandbox ran nothing for idleTimeoutSeconds.",
        "Make another sandbox; a longer idle timeout keeps it.",
    )
    LEASE_OVER = (
        "LeaseOver",
        "Whoever claimed the sandbox did not renew the lease in time.",
        "Claim another; clients renew by themselves while they live.",
    )
    CLAIM_OVER = (
        "ClaimOver",
        "The claim that the sandbox was made for had ended before this object was written: its pod is gone.",
        "Nothing has to be done: the object goes by itself. Claim another sandbox.",
    )
    CLOSED = "Closed", "Whoever used the sandbox has closed it.", "Make or claim another."
    DELETING = (
        "Deleting",
        "The object is being deleted, and with it the pod and, where retention says Delete, the workspace.",
        "Wait; if it lasts, `kubectl get csb NAME -o yaml` names the finalizers that hold it.",
    )
    HEALTHY = "Healthy", "There is nothing that the operator cannot repair alone.", "Nothing has to be done."

    # What ended a pod or a container; also the words of status.restartHistory.
    OUT_OF_MEMORY = (
        "OutOfMemory",
        "The sandbox used more than its memory before the executor could end the largest process; variables are lost, the workspace is kept.",
        "Use less memory at once, or a template with more.",
    )
    EXECUTOR_CRASHED = (
        "ExecutorCrashed",
        "The executor ended by itself; variables are lost, the workspace is kept.",
        "If it repeats, `kubectl logs --previous` of the pod says how it ended.",
    )
    EVICTED = (
        "Evicted",
        "The node put the pod out, for want of memory or disk or for a drain.",
        "Nothing has to be done: another pod comes on the same workspace. If it repeats, raise the requests in the template.",
    )
    POD_DELETED = (
        "PodDeleted",
        "Somebody deleted the pod.",
        "Nothing has to be done: another pod comes on the same workspace. Delete the CodeSandbox to end it.",
    )
    NODE_NOT_RESPONDING = (
        "NodeNotResponding",
        "The node of the pod does not answer. The pod may still run there, so that no other is started on its workspace.",
        "Wait for the node; if it is off for good, taint it with node.kubernetes.io/out-of-service or delete it.",
    )
    NODE_LOST = (
        "NodeLost",
        "The node of the pod is confirmed to be gone; another pod comes on the same workspace where the volume can move.",
        "Nothing has to be done.",
    )
    WORKSPACE_LOST = (
        "WorkspaceLost",
        "The claim or the volume of the workspace is gone, and its files with it. It is not replaced by an empty one.",
        "Restore the claim under its name, or delete the sandbox and make another.",
    )
    TOO_MANY_RESTARTS = (
        "TooManyRestarts",
        "The sandbox ended too often without a stable stretch in between, and no pod is made for it any more.",
        "See status.restartHistory, correct the cause, then set operatingMode to Suspended and back to Running.",
    )
    DRIFTED = (
        "Drifted",
        "What belongs to the sandbox was changed or deleted by another hand, and is being put back.",
        "Nothing has to be done; if it repeats, find out who writes: `kubectl get --show-managed-fields`.",
    )


def reason(word: str) -> Reason:
    """By its word, as a status says it. Raises ValueError for a word that is none."""
    for one in Reason:
        if one.value == word:
            return one
    raise ValueError(f"cannot read the reason {word!r}: it is none of ours")

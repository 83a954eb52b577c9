"""Why a pod does not start, in the words of who says so: the scheduler or the kubelet."""

from sandfleet_operator.api.conditions import Reason
from sandfleet_operator.plan.sandbox.observed import Pod
from sandfleet_operator.plan.sandbox.status import Finding

# The kubelet's words for a container that does not start.
WAITING = {
    "ErrImagePull": Reason.IMAGE_PULL_FAILED,
    "ImagePullBackOff": Reason.IMAGE_PULL_FAILED,
    "InvalidImageName": Reason.IMAGE_PULL_FAILED,
    "ErrImageNeverPull": Reason.IMAGE_PULL_FAILED,
    "ImageInspectError": Reason.IMAGE_PULL_FAILED,
    "RegistryUnavailable": Reason.IMAGE_PULL_FAILED,
    "CreateContainerConfigError": Reason.CONTAINER_CREATE_FAILED,
    "CreateContainerError": Reason.CONTAINER_CREATE_FAILED,
    "RunContainerError": Reason.CONTAINER_CREATE_FAILED,
}


def start_trouble(pod: Pod) -> Finding | None:
    """None while there is nothing wrong with it."""
    if not pod.node:
        return Finding(Reason.UNSCHEDULABLE, pod.unschedulable) if pod.unschedulable else None
    if "secret" in pod.waiting_message and "not found" in pod.waiting_message:
        return Finding(Reason.SECRET_NOT_FOUND, pod.waiting_message)
    if reason := WAITING.get(pod.waiting):
        return Finding(reason, f"{pod.waiting}: {pod.waiting_message}" if pod.waiting_message else pod.waiting)
    return None

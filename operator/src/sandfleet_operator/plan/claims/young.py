"""Young claims: those that are only their pods. A short session costs no CodeSandbox.

The record on the pod is all that a fleet needs to serve, find and rebuild such a claim. Its CodeSandbox is written when
the claim is some seconds old, or when its pod ends, so that the operator recovers it.
"""

from sandfleet_operator.api.values import Claim
from sandfleet_operator.plan.claims.record import Record, object_name
from sandfleet_operator.plan.pods import names
from sandfleet_operator.plan.pods.podspec import PodState
from sandfleet_operator.plan.sandbox.observed import Pod


def may_be_young(record: Record, claim: Claim, pod: Pod | None) -> bool:
    """Whether the claim needs no CodeSandbox at once.

    A claim that asks for a name, or that has an object, a volume or a gang, does: a volume needs an owner that outlives
    the pod, and only its objects say that a gang was answered.
    """
    asks_for_name = record.object != object_name(claim.key)
    needs_object = asks_for_name or bool(record.uid) or record.gang is not None
    return not needs_object and pod is not None and not pod.workspace_claim


def young_left(record: Record, now: float, seconds: float) -> float:
    """How long it stays young. A clock that was set back keeps no claim young for longer."""
    return min(seconds, max(0.0, record.at + seconds - now))


def is_only_pod(pod: Pod, record: Record) -> bool:
    """Whether nothing but the pod says that this claim is served. Its CodeSandbox owns the pod once it is written."""
    claimed = pod.labels.get(names.STATE) == PodState.CLAIMED.value
    return claimed and not pod.owner and not record.uid and record.gang is None

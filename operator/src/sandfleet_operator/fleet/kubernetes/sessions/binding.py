"""The one write of a claim: the patch that binds a warm pod, settled also where its reply was lost."""

import asyncio

from sandfleet_operator.api.errors import FleetError, Problem
from sandfleet_operator.api.kube import Conflict, Json, KubeError, NotFound, Ref
from sandfleet_operator.api.reasons import ClaimReason
from sandfleet_operator.cluster.kube_api import KubeApi
from sandfleet_operator.cluster.lease import NotLeadingError
from sandfleet_operator.fleet.backend import RefusedError, TakenError
from sandfleet_operator.fleet.kubernetes.writer import Writer
from sandfleet_operator.plan.claims.patches import tests_hold
from sandfleet_operator.plan.claims.record import Record, record_text
from sandfleet_operator.plan.pods import names

# Seconds for which a claim asks after a write whose reply was lost, before it fails.
SETTLE_SECONDS = 10.0
SETTLE_PAUSE = 0.1
# Of a refusal that says nothing of the claim: the credentials are new or old, the API server is busy.
PASSING = frozenset({401, 408, 429})


async def bind(kube: KubeApi, writer: Writer, pod: Ref, pod_uid: str, claim: tuple[Record, list[Json]]) -> None:
    """The pod is this claim's. `claim` is its record and patch. Raises TakenError, RefusedError and FleetError."""
    record, patch = claim
    give_up = asyncio.get_running_loop().time() + SETTLE_SECONDS
    settled = True
    while True:
        try:
            writer.fencing()
            await kube.patch(pod, patch, brief=True)
        except NotLeadingError as error:
            raise unsettled(str(error)) from error
        except KubeError as error:
            # A JSON patch meets Conflict where others wrote the pod faster than the API server could try again.
            passing = error.unsettled or error.status in PASSING or isinstance(error, Conflict)
            if not passing and await _is_ours(kube, pod, pod_uid, record, patch):
                return
            if not passing:
                # What was sent before, and had no answer, may still arrive.
                raise RefusedError(_refusal(error), untouched=settled) from error
            settled = settled and not error.unsettled
            pause = error.retry_after or SETTLE_PAUSE
            if asyncio.get_running_loop().time() + pause > give_up:
                raise unsettled(str(error)) from error
            # The same pod again: where the reply was lost, what was sent may still arrive.
            await asyncio.sleep(pause)
        else:
            return


async def _is_ours(kube: KubeApi, pod: Ref, pod_uid: str, record: Record, patch: list[Json]) -> bool:
    """Asked after a refusal: False where the pod could be had, and the API server does not want this write.

    An earlier try, whose reply was lost, may have done it. Raises TakenError and FleetError.
    """
    try:
        found = await kube.get(pod)
    except NotFound:
        raise TakenError from None
    except KubeError as error:
        raise unsettled(str(error)) from error
    said = (found["metadata"].get("annotations") or {}).get(names.CLAIM)
    if found["metadata"]["uid"] == pod_uid and said == record_text(record):
        return True
    if not tests_hold(found, patch):
        raise TakenError
    return False


def _refusal(error: KubeError) -> Problem:
    return ClaimReason.CLAIM_REFUSED.problem(f"cannot claim: the API server refuses it: {error}")


def unsettled(why: str) -> FleetError:
    return ClaimReason.API_SERVER_FAILED.error(f"cannot claim: {why}")

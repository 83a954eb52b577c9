"""The one write of a claim: the patch that binds a warm pod, settled also where its reply was lost."""

import asyncio

from sandfleet_operator.api.errors import FleetError
from sandfleet_operator.api.kube import Conflict, Invalid, Json, KubeError, NotFound, Ref
from sandfleet_operator.api.reasons import ClaimReason
from sandfleet_operator.cluster.kube_api import KubeApi
from sandfleet_operator.cluster.lease import NotLeadingError
from sandfleet_operator.fleet.kubernetes.writer import Writer
from sandfleet_operator.plan.claims.record import Record, record_text
from sandfleet_operator.plan.pods import names

# Seconds for which a claim asks after a write whose reply was lost, before it fails.
SETTLE_SECONDS = 10.0
SETTLE_PAUSE = 0.1
TOO_MANY = 429


async def bind(kube: KubeApi, writer: Writer, pod: Ref, pod_uid: str, claim: tuple[Record, list[Json]]) -> bool:
    """Whether the pod is this claim's, once that is known. `claim` is its record and patch. Raises FleetError."""
    record, patch = claim
    give_up = asyncio.get_running_loop().time() + SETTLE_SECONDS
    while True:
        try:
            writer.fencing()
            await kube.patch(pod, patch, brief=True)
        except (Invalid, NotFound):
            return await _is_ours(kube, pod, pod_uid, record)
        except NotLeadingError as error:
            raise unsettled(str(error)) from error
        except KubeError as error:
            # Where the reply was lost, the same pod again: what was sent may still arrive.
            pause = error.retry_after or SETTLE_PAUSE
            # A JSON patch meets Conflict where others wrote the pod faster than the API server could try again.
            again = error.unsettled or error.status == TOO_MANY or isinstance(error, Conflict)
            if not again or asyncio.get_running_loop().time() + pause > give_up:
                raise unsettled(str(error)) from error
            await asyncio.sleep(pause)
        else:
            return True


async def _is_ours(kube: KubeApi, pod: Ref, pod_uid: str, record: Record) -> bool:
    """Asked after a refusal: an earlier try, whose reply was lost, may have done it. Raises FleetError."""
    try:
        found = await kube.get(pod)
    except NotFound:
        return False
    except KubeError as error:
        raise unsettled(str(error)) from error
    said = (found["metadata"].get("annotations") or {}).get(names.CLAIM)
    return found["metadata"]["uid"] == pod_uid and said == record_text(record)


def unsettled(why: str) -> FleetError:
    return ClaimReason.API_SERVER_FAILED.error(f"cannot claim: {why}")

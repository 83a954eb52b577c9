"""Creating one object: what the API server says against it comes back as data, so that a pure plan can decide."""

from dataclasses import replace

from sandfleet_operator.api.kube import (
    AlreadyExists,
    Cause,
    Conflict,
    Forbidden,
    Json,
    KubeError,
    NotCreated,
    NotFound,
    TooManyRequests,
    ref_of,
)
from sandfleet_operator.cluster.kube_api import KubeApi

# What the admission of a ResourceQuota says when the quota is used up.
USED_UP = "exceeded quota"


async def create(kube: KubeApi, manifest: Json) -> Json | NotCreated:
    """The object as it was created. After a lost reply the API server is asked whether the object is there."""
    try:
        return await kube.create(manifest)
    except KubeError as error:
        return await _found(kube, manifest, error) if error.unsettled else not_created(error)


async def _found(kube: KubeApi, manifest: Json, lost: KubeError) -> Json | NotCreated:
    try:
        found = await kube.get(ref_of(manifest))
    except KubeError:
        return not_created(lost)
    return found if _is_sent(found["metadata"], manifest["metadata"]) else replace(not_created(lost), exists=True)


def _is_sent(found: Json, sent: Json) -> bool:
    """Whether the object has what was sent of it that others cannot write: another account may have made it."""
    mine = ((name, value) for field in ("labels", "annotations") for name, value in (sent.get(field) or {}).items())
    theirs = {**(found.get("labels") or {}), **(found.get("annotations") or {})}
    return all(theirs.get(name) == value for name, value in mine)


def not_created(error: KubeError) -> NotCreated:
    return NotCreated(_cause(error), str(error), error.retry_after, exists=isinstance(error, AlreadyExists))


def _cause(error: KubeError) -> Cause:
    match error:
        case Forbidden() if USED_UP in error.message:
            return Cause.QUOTA
        case Forbidden() | NotFound():
            return Cause.FORBIDDEN
        case TooManyRequests() | Conflict() | AlreadyExists():
            # A conflict is that of the quota's own counters, or of a name that another pod has.
            return Cause.BUSY
        case _:
            return Cause.BUSY if error.unsettled else Cause.INVALID

"""Checks of what callers send. Each raises FleetError with INVALID_ARGUMENT and "cannot X: why"."""

import math
import re
from collections.abc import Mapping

from sandfleet_operator.api.egress import check_credentials, parse_all
from sandfleet_operator.api.kinds.mounts import check as check_mounts
from sandfleet_operator.api.limits import BOUNDS, Limits
from sandfleet_operator.api.reasons import ClaimReason
from sandfleet_operator.api.values import Claim, Template

MAX_LABELS = 64
MAX_ENVS = 256
MAX_ENVS_BYTES = 256 << 10
MAX_LEASE = 7 * 86400.0
# Of one process: the executor starts no interpreter with fewer.
LEAST_OPEN_FILES = BOUNDS["open_files"].least
LEAST_CPUS = BOUNDS["cpus"].least
MAX_WAIT = 3600.0

ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
# Kubernetes' rules, so that the same labels work there.
DNS_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
LABEL_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
LABEL_PREFIX = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")
MAX_LABEL_PREFIX = 253
LABEL_VALUE = re.compile(r"([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?")
ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,255}")
# As W3C Trace Context writes it.
TRACEPARENT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")


def check_id(value: str, what: str, *, doing: str) -> None:
    """1 to 64 of [A-Za-z0-9._-], and no name that a file system reads as a direction."""
    if not ID.fullmatch(value) or value in {".", ".."}:
        raise ClaimReason.INVALID_ID.error(
            f"cannot {doing}: the {what} {value[:80]!r} is not 1 to 64 of [A-Za-z0-9._-]", value[:80]
        )


def check_label(key: str, value: str, *, doing: str) -> None:
    prefix, slash, name = key.rpartition("/")
    is_prefix = len(prefix) <= MAX_LABEL_PREFIX and LABEL_PREFIX.fullmatch(prefix)
    if not LABEL_NAME.fullmatch(name) or (slash and not is_prefix):
        raise ClaimReason.INVALID_LABEL.error(f"cannot {doing}: {key[:100]!r} is no label key", key[:100])
    if not LABEL_VALUE.fullmatch(value):
        why = "is not at most 63 of [A-Za-z0-9._-] with a letter or digit at both ends"
        raise ClaimReason.INVALID_LABEL.error(
            f"cannot {doing}: the value {value[:100]!r} of label {key[:100]!r} {why}", key[:100]
        )


def check_labels(labels: Mapping[str, str], *, doing: str) -> None:
    if len(labels) > MAX_LABELS:
        raise ClaimReason.INVALID_LABEL.error(f"cannot {doing}: {len(labels)} labels are more than {MAX_LABELS}")
    for key, value in labels.items():
        check_label(key, value, doing=doing)


def check_envs(envs: Mapping[str, str], *, doing: str) -> None:
    size = sum(len(name) + len(value.encode("utf-8", "surrogatepass")) for name, value in envs.items())
    if len(envs) > MAX_ENVS or size > MAX_ENVS_BYTES:
        why = f"{len(envs)} variables of {size} bytes are more than {MAX_ENVS} of {MAX_ENVS_BYTES}"
        raise ClaimReason.INVALID_ENVIRONMENT.error(f"cannot {doing}: {why}")
    for name, value in envs.items():
        if not ENV_NAME.fullmatch(name) or "\0" in value:
            why = f"{name[:100]!r} is no name, or its value has a NUL byte"
            raise ClaimReason.INVALID_ENVIRONMENT.error(f"cannot {doing}: environment variable {why}", name[:100])


def check_duration(value: float, what: str, *, most: float, doing: str, zero: bool = False) -> None:
    """Seconds above 0 (or from 0) and at most `most`."""
    if not math.isfinite(value) or value < 0 or (value == 0 and not zero) or value > most:
        least = "0 or more" if zero else "more than 0"
        raise ClaimReason.INVALID_DURATION.error(
            f"cannot {doing}: the {what} of {value:g} s has to be {least}, and at most {most:g} s", what
        )


def check_limits(limits: Limits, template: Template, *, doing: str) -> None:
    """A claim may lower the template's limits, never raise them."""
    too_high = limits.above(template.limits)
    if too_high:
        most = getattr(template.limits, too_high)
        why = f"the limit {too_high} of {getattr(limits, too_high)} is above the {most} of template {template.name!r}"
        raise ClaimReason.INVALID_LIMIT.error(f"cannot {doing}: {why}", too_high)
    if min(limits.max_timeout, limits.default_timeout) < 0:
        raise ClaimReason.INVALID_LIMIT.error(f"cannot {doing}: a timeout is negative")
    # NaN is neither.
    if not (limits.cpus == 0 or limits.cpus >= LEAST_CPUS):
        why = f"the limit cpus of {limits.cpus:g} is no number of at least {LEAST_CPUS:g}"
        raise ClaimReason.INVALID_LIMIT.error(f"cannot {doing}: {why}", "cpus")
    if 0 < limits.open_files < LEAST_OPEN_FILES:
        why = f"the limit open_files of {limits.open_files} is below {LEAST_OPEN_FILES:g}, which an interpreter needs"
        raise ClaimReason.INVALID_LIMIT.error(f"cannot {doing}: {why}", "open_files")


def check_claim(claim: Claim, template: Template) -> None:
    """Everything about a claim that can be said without looking at the fleet."""
    doing = "claim"
    check_id(claim.key.request_id, "request id", doing=doing)
    check_labels(claim.labels, doing=doing)
    check_envs(claim.envs, doing=doing)
    # What ends with its object has no lease.
    if not claim.object_uid:
        check_duration(claim.lease, "lease", most=MAX_LEASE, doing=doing)
    check_duration(claim.max_wait, "longest wait", most=MAX_WAIT, doing=doing, zero=True)
    if claim.idle_timeout is not None:
        check_duration(claim.idle_timeout, "idle timeout", most=MAX_LEASE, doing=doing)
    check_limits(claim.limits, template, doing=doing)
    # The fleet of a cluster has refused folders of the machine before.
    check_mounts(claim.mounts, of_machine=True)
    check_credentials(claim.credentials, parse_all(claim.egress_names))


def trace_parent(text: str) -> str:
    """The text where it is a W3C traceparent, else empty: a bad one restarts the trace, as the specification asks."""
    return text if TRACEPARENT.fullmatch(text) else ""

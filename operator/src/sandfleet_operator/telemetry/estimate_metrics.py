"""How good the estimated waits of claims were, as metrics: one series for each pool that has told some."""

from collections.abc import Mapping

from sandfleet_operator.plan.scheduler.queues.standing.estimates import EtaErrors
from sandfleet_operator.telemetry.metrics import Family, Gauge, Sample


def estimate_gauges(errors: Mapping[str, EtaErrors]) -> list[Family]:
    """`errors`: pool, as NAMESPACE/NAME → the errors of its last estimates."""
    known = {_labels(pool): one for pool, one in errors.items() if one.known}
    quantiles = [(labels, "0.5", one.p50) for labels, one in known.items()]
    quantiles += [(labels, "0.9", one.p90) for labels, one in known.items()]
    return [
        Gauge(
            name="sandfleet_claim_wait_error_ratio",
            text="Quantiles of |actual wait - estimated median| / actual wait, of the last claims that were served.",
            samples=tuple(Sample(value, {**dict(labels), "quantile": part}) for labels, part, value in quantiles),
        ),
        Gauge(
            name="sandfleet_claim_wait_within_p90_ratio",
            text="Share of these claims that were served within their estimated 90th percentile; 0.9 is honest.",
            samples=tuple(Sample(one.within_p90, dict(labels)) for labels, one in known.items()),
        ),
        Gauge(
            name="sandfleet_claim_wait_estimates",
            text="Number of these claims, 256 at most.",
            samples=tuple(Sample(one.known, dict(labels)) for labels, one in known.items()),
        ),
    ]


def _labels(pool: str) -> tuple[tuple[str, str], ...]:
    namespace, _, name = pool.rpartition("/")
    return ("namespace", namespace), ("pool", name)

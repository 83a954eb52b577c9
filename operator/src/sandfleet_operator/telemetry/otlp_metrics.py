"""The same metrics that Prometheus reads, over OTLP."""

import time
from collections.abc import Iterable, Mapping

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    HistogramDataPoint,
    Metric,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.metrics.export import Gauge as GaugeData
from opentelemetry.sdk.metrics.export import Histogram as HistogramData
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from sandfleet_operator.telemetry.metrics import Distribution, Family, Sample

_CUMULATIVE = AggregationTemporality.CUMULATIVE
# The unit that a name ends with, as OTLP writes it.
_UNITS = {"seconds": "s", "bytes": "By", "ratio": "1"}


class OtlpMetrics:
    """OpenTelemetry's own variables say where to and with which headers."""

    def __init__(self, resource: Mapping[str, str]) -> None:
        self._resource = Resource.create(dict(resource))
        self._exporter = OTLPMetricExporter()
        self._start = time.time_ns()

    def data(self, families: Iterable[Family]) -> MetricsData:
        """As they are now; to be called where they are changed."""
        now = time.time_ns()
        metrics = [metric(family, self._start, now) for family in families]
        scope = ScopeMetrics(InstrumentationScope("sandfleet"), [one for one in metrics if one.data.data_points], "")
        return MetricsData([ResourceMetrics(self._resource, [scope], "")])

    def export(self, data: MetricsData) -> None:
        """Blocks. What the collector does not take is dropped: the next export has the sums again."""
        self._exporter.export(data)

    def close(self) -> None:
        self._exporter.shutdown()


def metric(family: Family, start: int, now: int) -> Metric:
    """`start`: since when it counts, `now`: when it was read, in nanoseconds since the epoch."""
    numbers = [
        NumberDataPoint(dict(one.labels), start, now, one.value) for one in family.samples if isinstance(one, Sample)
    ]
    spread = [_point(one, start, now) for one in family.samples if isinstance(one, Distribution)]
    data: HistogramData | Sum | GaugeData
    if family.kind == "histogram":
        data = HistogramData(spread, _CUMULATIVE)
    else:
        data = Sum(numbers, _CUMULATIVE, is_monotonic=True) if family.kind == "counter" else GaugeData(numbers)
    # Collectors add the suffix again where Prometheus wants it.
    name = family.name.removesuffix("_total")
    return Metric(name, family.text, _UNITS.get(name.rpartition("_")[2], ""), data)


def _point(one: Distribution, start: int, now: int) -> HistogramDataPoint:
    return HistogramDataPoint(
        dict(one.labels), start, now, sum(one.counts), one.total, one.counts, one.bounds, float("nan"), float("nan")
    )

"""The phases of a pod's start in the trace of the claim that waited for it."""

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from sandfleet_operator.api.kube import ref_of
from sandfleet_operator.plan.pods.podspec import CONTAINER
from sandfleet_operator.telemetry import tracing
from support.kubernetes.world import World, pool_object, template_object


class TimedWorld(World):
    """Its pods say when they came to what."""

    times = ("2026-11-22T10:00:01Z", "2026-11-22T10:00:04Z", "2026-11-22T10:00:06Z")

    def _start(self, pod, number):
        super()._start(pod, number)
        scheduled, started, ready = self.times

        def say(obj):
            obj["status"]["conditions"] = [
                {"type": "PodScheduled", "status": "True", "lastTransitionTime": scheduled},
                {"type": "Ready", "status": "True", "lastTransitionTime": ready},
            ]
            state = {"running": {"startedAt": started}}
            obj["status"]["containerStatuses"] = [{"name": CONTAINER, "ready": True, "state": state}]

        self.cluster.edit(ref_of(pod), say)


async def claimed(times=TimedWorld.times):
    """A sandbox that was started for its claim, and its pod."""
    async with TimedWorld() as world:
        world.times = times
        await world.add(template_object(), pool_object(size=0, maxSize=1))
        fleet = await world.fleet()
        sandbox = await world.claim(fleet)
        await world.until(lambda: fleet.pod_of(sandbox).ready)
        return sandbox, fleet.pod_of(sandbox)


@pytest.fixture
def spans(monkeypatch):
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(tracing, "_TRACER", provider.get_tracer("test"))
    return exporter


async def test_the_start_of_a_pod_is_told_in_the_trace_of_its_claim(spans):
    sandbox, pod = await claimed()
    zero = pod.marks[0][1] - 1
    assert [(name, at - zero) for name, at in pod.marks] == [("scheduled", 1), ("started", 4), ("ready", 6)]
    times = iter([zero, zero + 10, zero + 10])
    span = tracing.ClaimSpan("", "r1", "python", clock=lambda: next(times))
    timed = {"started": zero + 0.5, "ready": zero + 8.0}
    span.bound(type(sandbox)(**{name: getattr(sandbox, name) for name in sandbox.__slots__} | timed), pod.marks)
    span.end()
    found = {one.name: one for one in spans.get_finished_spans()}
    start = found["start"]
    told = [(name, (one.start_time / 1e9 - zero, one.end_time / 1e9 - zero)) for name, one in found.items()
            if one.parent and one.parent.span_id == start.context.span_id]  # fmt: skip
    assert dict(told) == {
        "schedule": pytest.approx((0.5, 1)),
        "pull": pytest.approx((1, 4)),
        "boot": pytest.approx((4, 6)),
        "greet": pytest.approx((6, 8)),
    }


@pytest.mark.parametrize(
    ("times", "known"),
    [
        ((None, "2026-11-22T10:00:04Z", "2026-11-22T10:00:06Z"), ["started", "ready"]),
        (("yesterday", "", 7), []),
        (({"a": 1}, ["x"], "9" * 5000), []),
    ],
)
async def test_times_that_are_none_are_left_out_and_the_pod_serves(times, known):
    sandbox, pod = await claimed(times)
    assert [name for name, _ in pod.marks] == known
    assert sandbox.bound


@pytest.mark.parametrize(
    ("marks", "expected"),
    [
        ([], []),
        # Whole seconds: an earlier time than that of the phase before.
        ([("scheduled", 90.0), ("started", 105.0)], [("schedule", 100, 100), ("pull", 100, 105), ("greet", 105, 110)]),
        ([("started", 999.0)], [("pull", 100, 110), ("greet", 110, 110)]),
        ([("made-up", 105.0)], []),
    ],
)
def test_phases_lie_inside_the_start_without_gaps(marks, expected):
    assert tracing.pod_phases(100.0, 110.0, marks) == expected

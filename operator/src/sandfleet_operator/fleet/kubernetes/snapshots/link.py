"""The snapshotters of a cluster: each dials the fleet and takes its jobs from a stream."""

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from typing import Any

from sandfleet_api.fleet.v1 import snapshotter_pb2 as pb
from sandfleet_api.fleet.v1.snapshotter_pb2_grpc import SnapshotterServiceServicer

from sandfleet_operator.api.errors import FleetError
from sandfleet_operator.api.kube import KubeError
from sandfleet_operator.cluster.reviews import Reviews
from sandfleet_operator.fleet import calls
from sandfleet_operator.fleet.calls import Context
from sandfleet_operator.fleet.kubernetes.snapshots.places import Places
from sandfleet_operator.fleet.snapshots.jobs import Event, Jobs, Send
from sandfleet_operator.plan.snapshots.reasons import SnapshotReason

# The subresource that the snapshotter's role names; the API server serves nothing under it.
RIGHT = "snapshotter"
# Seconds that a job waits for a snapshotter, as while one is replaced.
PATIENCE = 10.0
# Of one event: a snapshot's facts have a mebibyte at most.
MAX_EVENT_BYTES = 4 << 20

_LOG = logging.getLogger(__name__)


class SnapshotterLink(Jobs, SnapshotterServiceServicer):
    """`namespace` is the control plane's; `check_serving` raises FleetError where another fleet leads.

    A snapshotter is told the cluster first, and says whether its store is that of this cluster. Before, it gets no job.
    """

    def __init__(
        self,
        reviews: Reviews,
        namespace: str,
        check_serving: Callable[[str], None],
        places: Places,
        *,
        patience: float = PATIENCE,
    ) -> None:
        super().__init__()
        self._reviews = reviews
        self._namespace = namespace
        self._check_serving = check_serving
        self._places = places
        self._patience = patience
        # Why the last snapshotter that came was of no use.
        self._refused = ""
        self._lines: list[Send] = []
        self._connected = asyncio.Event()

    @property
    def connected(self) -> int:
        """How many snapshotters there are."""
        return len(self._lines)

    async def reach(self) -> Send:
        """The snapshotter with the fewest jobs."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._connected.wait(), self._patience)
        if not self._lines:
            why = self._refused or "none is connected to the fleet; the chart's snapshotter.enabled installs one"
            raise SnapshotReason.SNAPSHOT_STORE_UNAVAILABLE.error(f"cannot reach a snapshotter: {why}")
        return min(self._lines, key=self.load)

    async def Work(  # noqa: N802 - gRPC's name
        self, request_iterator: AsyncIterator[pb.WorkRequest], context: Context
    ) -> AsyncIterator[pb.WorkResponse]:
        try:
            caller = await self._reviews.authenticate(calls.token(context))
            await self._reviews.authorize(caller, "create", self._namespace, "", RIGHT)
            self._check_serving("take a snapshotter on")
            cluster = await self._places.cluster()
        except (FleetError, KubeError) as error:
            await calls.abort(context, calls.problem_of(error))
        messages: asyncio.Queue[Event | None] = asyncio.Queue()
        send = messages.put_nowait
        reading = asyncio.create_task(self._read(request_iterator, send))
        try:
            # Tells the snapshotter that it was taken on, and by whom.
            yield pb.WorkResponse(job=json.dumps({"id": 0, "op": "own", "cluster": cluster}).encode("ascii"))
            while (message := await messages.get()) is not None:
                data = message.pop("data", b"")
                yield pb.WorkResponse(job=json.dumps(message, separators=(",", ":")).encode("ascii"), data=data)
        finally:
            reading.cancel()
            if send in self._lines:
                self._lines.remove(send)
            if not self._lines:
                self._connected.clear()
            self.lost(send)

    async def run(self, op: str, **request: Any) -> AsyncGenerator[Event, None]:
        place = await self._places.of(request["tenant"])
        async with aclosing(super().run(op, **{**request, "tenant": place})) as events:
            async for event in events:
                yield event

    def _owned(self, event: Event, send: Send) -> None:
        """A snapshotter has looked at its store."""
        self._refused = str(event.get("message", ""))[:500]
        if not self._refused and send not in self._lines:
            self._lines.append(send)
            self._connected.set()

    async def _read(self, requests: AsyncIterator[pb.WorkRequest], send: Callable[[Event | None], None]) -> None:
        """What does not understand the protocol is not worked with any more."""
        text = b""
        try:
            async for request in requests:
                text += request.event
                if len(text) > MAX_EVENT_BYTES:
                    break
                if not request.continues:
                    event = _event(text, request.data)
                    if event["event"] == "owned":
                        self._owned(event, send)
                    else:
                        self.heard(event)
                    text = b""
        except ValueError:
            _LOG.warning("cannot understand a snapshotter")
        finally:
            send(None)


def _event(text: bytes, data: bytes) -> Event:
    """Raises ValueError."""
    found: Any = json.loads(text)
    if not isinstance(found, dict) or "event" not in found:
        raise ValueError("it is no event")
    return {**found, "data": data} if data else found

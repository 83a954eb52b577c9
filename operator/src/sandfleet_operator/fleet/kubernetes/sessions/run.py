"""What the fleet knows of one pod of its own."""

import asyncio
from dataclasses import dataclass, field

from sandfleet_operator.api.kinds.meta import Meta
from sandfleet_operator.api.kube import Ref
from sandfleet_operator.api.values import Sandbox
from sandfleet_operator.plan.claims.record import Record


@dataclass(slots=True)
class Run:
    ref: Ref
    uid: str = ""
    # Its executor was reported to listen.
    said_ready: bool = False
    # From before its claim is sent.
    record: Record | None = None
    # The claim is certainly there.
    claimed: bool = False
    # The sandbox of a young claim, as its caller got it.
    young: Sandbox | None = None
    # Its CodeSandbox, once it is written.
    object: Meta | None = None
    # Its end was seen before its CodeSandbox was written, and is told after that.
    ending: bool = False
    # Held while something is written for it: a release waits for the writes of its claim.
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def key(self) -> str:
        return f"{self.ref.namespace}/{self.ref.name}"

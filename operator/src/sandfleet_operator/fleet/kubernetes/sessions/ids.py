"""Which sandbox of the scheduler serves a CodeSandbox, and which one did."""

from sandfleet_operator.plan.scheduler.ended_claims import REMEMBERED
from sandfleet_operator.plan.scheduler.recent import Recent


class SessionIds:
    """CodeSandboxes are called NAMESPACE/NAME; what serves them has the scheduler's id."""

    def __init__(self) -> None:
        self._serving: dict[str, str] = {}
        self._former: Recent[str, str] = Recent(REMEMBERED)

    def serving(self, name: str, default: str = "") -> str:
        return self._serving.get(name, default)

    def last(self, name: str) -> str:
        """What serves it or did; empty where that was never known, or so many others ago."""
        return self._serving.get(name) or self._former.get(name) or ""

    def put(self, name: str, sandbox_id: str) -> None:
        self._serving[name] = sandbox_id

    def forget(self, name: str) -> None:
        """Its session is over."""
        if (former := self._serving.pop(name, None)) is not None:
            self._former.put(name, former)

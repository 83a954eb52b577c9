"""How long executions have waited for a person who decides about their calls (pure). Times are seconds."""

from dataclasses import dataclass

from sandfleet_executor.core.tools.values import Caller


@dataclass(slots=True)
class _Wait:
    calls: int = 0
    since: float = 0.0
    # Of earlier waits.
    before: float = 0.0


class Waits:
    """Of one sandbox. Calls that wait at the same time count once."""

    def __init__(self) -> None:
        self._calls: dict[str, Caller] = {}
        self._waits: dict[Caller, _Wait] = {}

    def begin(self, call_id: str, caller: Caller, now: float) -> None:
        """A call waits from now on; nothing where it does already."""
        if call_id in self._calls:
            return
        self._calls[call_id] = caller
        wait = self._waits.setdefault(caller, _Wait())
        if not wait.calls:
            wait.since = now
        wait.calls += 1

    def end(self, call_id: str, now: float) -> None:
        """A call waits no more; nothing where it did not."""
        caller = self._calls.pop(call_id, None)
        if caller is None or (wait := self._waits.get(caller)) is None:
            return
        wait.calls -= 1
        if not wait.calls:
            wait.before += now - wait.since

    def of(self, caller: Caller, now: float) -> float:
        """Seconds that the caller has waited so far."""
        wait = self._waits.get(caller)
        return 0.0 if wait is None else wait.before + (now - wait.since if wait.calls else 0.0)

    def forget(self, caller: Caller) -> None:
        """The caller has ended."""
        if self._waits.pop(caller, None) is not None:
            self._calls = {name: one for name, one in self._calls.items() if one != caller}

"""Whether quotas held, and nothing was admitted twice: the events of the API server's audit log, replayed."""

from __future__ import annotations

import bisect
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from cluster.flood.audit import Admitted, Event, Gone, Granted
from sandfleet_operator.api.kinds.queue import QueueSpec

# A fleet hears of an edit after it was written. What was granted so many seconds before an admission may still count.
NEWS_SECONDS = 3.0


@dataclass
class Verdict:
    """`most` is the most that each queue and cohort had at once. `late` is how long an edit was not yet heeded."""

    admitted: int = 0
    most: Counter[str] = field(default_factory=Counter)
    late: float = 0.0
    over_quota: list[str] = field(default_factory=list)
    twice: list[str] = field(default_factory=list)
    # Requests that had a pod, lost it and got another one.
    again: int = 0


class Replay:
    """Quotas in sandboxes."""

    def __init__(self) -> None:
        self.verdict = Verdict()
        self._pods: dict[str, Admitted] = {}
        self._has: Counter[tuple[str, str]] = Counter()
        self._had: set[tuple[str, str]] = set()
        self._used: Counter[str] = Counter()
        # What all queues granted, and until when; the last entry is in force.
        self._grants: list[tuple[float, dict[str, QueueSpec]]] = [(0.0, {})]

    def play(self, events: Iterable[Event]) -> Verdict:
        for event in events:
            match event:
                case Granted(at=at, queue=queue, spec=spec):
                    self._grants.append((at, {**self._grants[-1][1], queue: spec}))
                case Gone(pod=pod):
                    self._gone(pod)
                case Admitted():
                    self._admitted(event)
        return self.verdict

    def _gone(self, pod: str) -> None:
        was = self._pods.pop(pod, None)
        if was is not None:
            self._used[was.queue] -= 1
            self._has[was.request] -= 1

    def _admitted(self, event: Admitted) -> None:
        verdict = self.verdict
        verdict.admitted += 1
        if self._has[event.request]:
            verdict.twice.append(f"{event.request} has pod {event.pod} and another one")
        elif event.request in self._had:
            verdict.again += 1
        self._pods[event.pod] = event
        self._had.add(event.request)
        self._has[event.request] += 1
        self._used[event.queue] += 1
        verdict.most[event.queue] = max(verdict.most[event.queue], self._used[event.queue])
        self._check(event)

    def _check(self, event: Admitted) -> None:
        specs = self._grants[-1][1]
        cohort = specs[event.queue].cohort if event.queue in specs else ""
        if cohort:
            used = sum(self._used[one] for one, spec in specs.items() if spec.cohort == cohort)
            self.verdict.most[cohort] = max(self.verdict.most[cohort], used)
        for number in range(len(self._grants) - 1, -1, -1):
            why = excess(event.queue, self._used, self._grants[number][1])
            if not why:
                return
            since = self._grants[number][0]
            if event.at - since > NEWS_SECONDS:
                self.verdict.over_quota.append(f"at {event.revision}: {why}")
                return
            self.verdict.late = max(self.verdict.late, event.at - since)


def excess(queue: str, used: Mapping[str, int], specs: Mapping[str, QueueSpec]) -> str:
    """Why the last admission of the queue was not within what was granted; empty: it was."""
    spec = specs.get(queue)
    if spec is None or spec.nominal.sandboxes is None:
        return ""
    most = spec.nominal.sandboxes
    if spec.cohort:
        members = {name: one for name, one in specs.items() if one.cohort == spec.cohort}
        total = sum(one.nominal.sandboxes or 0 for one in members.values())
        if (all_used := sum(used[name] for name in members)) > total:
            return f"cohort {spec.cohort} has {all_used} of {total}"
        most = total if spec.borrowing.sandboxes is None else most + spec.borrowing.sandboxes
    return f"queue {queue} has {used[queue]} of {most}" if used[queue] > most else ""


def beside(events: Iterable[Event], requests: set[tuple[str, str]], since: float) -> int:
    """How many other claims were admitted from `since`, in seconds since the epoch, until the last of these was."""
    left, others = set(requests), 0
    for one in events:
        if isinstance(one, Admitted) and one.at >= since and left:
            others += one.request not in requests
            left.discard(one.request)
    return others


def overtaken(asked: Mapping[tuple[str, str], tuple[float, float]], events: Sequence[Event]) -> dict[str, int]:
    """Holder → the most claims that were admitted before an older one of the same holder and queue.

    `asked` gives for each request when it was sent and when the fleet had it: one is older than another if the fleet
    had it before the other was sent.
    """
    orders: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for one in events:
        if isinstance(one, Admitted) and one.request in asked:
            orders.setdefault((one.queue, one.request[0]), []).append(asked[one.request])
    found: dict[str, int] = {}
    for (_, holder), order in orders.items():
        found[holder] = max(found.get(holder, 0), _most_overtaken(order))
    return found


def _most_overtaken(order: Sequence[tuple[float, float]]) -> int:
    """`order` has sent and had of each, the first admitted first."""
    most = 0
    sent_before: list[float] = []
    for sent, had in order:
        # Those that were admitted before this one, though they were sent after the fleet had this one.
        most = max(most, len(sent_before) - bisect.bisect_right(sent_before, had))
        bisect.insort(sent_before, sent)
    return most

"""Approvals of calls of tools, in the status of their CodeSandboxes: the next leader finds them there."""

from collections.abc import Callable

from sandfleet_operator.api.kinds.sandbox import MAX_VOTER, CallVoteStatus
from sandfleet_operator.api.kube import Json
from sandfleet_operator.api.times import time_text
from sandfleet_operator.cluster.kube_api import KubeApi
from sandfleet_operator.fleet.kubernetes.fleet import KubernetesFleet
from sandfleet_operator.fleet.kubernetes.sessions.received import write_status
from sandfleet_operator.fleet.reviews.call_votes import Ballot, surplus
from sandfleet_operator.fleet.reviews.tool_calls import MAX_CALLS


class ObjectVotes:
    """`clock` gives seconds since the epoch."""

    def __init__(self, kube: KubeApi, kubernetes: KubernetesFleet, clock: Callable[[], float]) -> None:
        self._kube, self._kubernetes, self._clock = kube, kubernetes, clock

    def of(self, sandbox_id: str, ballot: Ballot) -> frozenset[str]:
        there = self._there(sandbox_id).get(ballot.name)
        return frozenset(there.voters) if there is not None and there.digest == ballot.digest else frozenset()

    async def keep(self, sandbox_id: str, ballot: Ballot, voters: frozenset[str]) -> None:
        """A name that is too long for the status is kept by this leader alone."""
        there = self._there(sandbox_id)
        patch: dict[str, Json | None] = {ballot.name: None}
        if mine := sorted(one for one in voters if len(one) <= MAX_VOTER):
            since = {name: one.since for name, one in there.items()}
            patch = dict.fromkeys(surplus(since, ballot.name, MAX_CALLS))
            patch[ballot.name] = {"digest": ballot.digest, "voters": mine, "since": time_text(self._clock())}
        elif ballot.name not in there:
            return
        session = self._kubernetes.session_of(sandbox_id)
        bound = session if session is not None and session.bound else None
        await write_status(self._kube, self._kubernetes, sandbox_id, bound, {"callVotes": patch})

    def _there(self, sandbox_id: str) -> dict[str, CallVoteStatus]:
        found = self._kubernetes.object_of(sandbox_id)
        return dict(found.status.call_votes or {}) if found is not None else {}

"""The handshake: which executors get a session, and which are only verified."""

import pytest
from sandfleet_operator.api.conditions import Reason
from sandfleet_operator.api.values import Isolation
from sandfleet_operator.executors.contact import ExecutorDescription, IdentityInvalid
from sandfleet_operator.executors.handshake import Greeter
from sandfleet_operator.plan.sandbox.actions import Greet
from transition.builders import NOW, sandbox

FOUND = ExecutorDescription(
    runtime="gvisor",
    isolation=Isolation.GVISOR,
    kernel="",
    session_id="",
    executor_version="",
    not_preloaded="cannot preload x (why)",
)


class Executors:
    """Replaces the connections and records the calls."""

    def __init__(self, failure: Exception | None = None) -> None:
        self.asked: list[tuple] = []
        self._failure = failure

    async def contact(self, executor, *, isolation, first):
        self.asked.append(("contact", executor.session_id, first))
        if self._failure:
            raise self._failure
        return FOUND

    async def open(self, executor, *, lease, idle_timeout):
        self.asked.append(("open", executor.session_id, lease, idle_timeout))


def greet(*, first: bool) -> Greet:
    return Greet("uid-1", "10.0.0.1:50051", Isolation.GVISOR, first, lease=60.0, idle_timeout=5.0)


@pytest.mark.parametrize(
    ("first", "asked"),
    [
        (True, [("contact", "team-a.demo", True), ("open", "team-a.demo", 60.0, 5.0)]),
        # The fleet has claimed it: opened once more it would lose the lease that the fleet has set.
        (False, [("contact", "team-a.demo", False)]),
    ],
)
async def test_only_the_operators_own_pods_get_a_session(first, asked):
    executors = Executors()
    met = await Greeter(executors, lambda: NOW).greet(sandbox(), greet(first=first))
    assert (met.pod_uid, met.runtime, met.reason) == ("uid-1", "gvisor", None)
    assert met.not_preloaded == FOUND.not_preloaded
    assert executors.asked == asked


async def test_a_failed_handshake_is_a_contact_with_a_reason():
    executors = Executors(IdentityInvalid("cannot trust it"))
    met = await Greeter(executors, lambda: NOW).greet(sandbox(), greet(first=True))
    assert met.reason is Reason.EXECUTOR_IDENTITY_INVALID
    assert [one[0] for one in executors.asked] == ["contact"]

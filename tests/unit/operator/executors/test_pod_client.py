"""What the fleet asks of the executors in its pods."""

import pytest
from sandfleet_operator.api.errors import FleetError
from sandfleet_operator.api.kube import POD, Ref
from sandfleet_operator.api.values import Isolation, State
from sandfleet_operator.executors.contact import ExecutorDescription
from sandfleet_operator.executors.pod_client import PodExecutors
from support.fleet.builders import a_claim, a_sandbox

NAME = Ref(POD, "team", "pod")
STORE = {NAME: {"metadata": {"namespace": "team", "name": "pod", "uid": "u-1"}, "status": {"podIP": "10.0.0.1"}}}


class Contacts:
    """An executor that knows of some mounts."""

    def __init__(self, mounts):
        self.knows, self.asked = frozenset(mounts), {}

    async def open(self, executor, **asked):
        self.asked = asked
        return ExecutorDescription(
            runtime="gvisor",
            isolation=Isolation.GVISOR,
            kernel="",
            session_id=executor.session_id,
            executor_version="",
            mounts=self.knows,
        )


def claimed(*, bound):
    claim = a_claim(mounts={"/app": "", "/logs": "out"}, name="one")
    return a_sandbox(State.CLAIMED, sandbox_id="team/pod", sandbox_uid="team/pod", claim=claim, bound=bound)


async def test_a_claim_is_refused_by_an_executor_of_an_older_release_that_leaves_its_mounts_out():
    for knows, refused in ((["/app", "/logs", "/more"], False), (["/app"], True), ([], True)):
        contacts = Contacts(knows)
        executors = PodExecutors(contacts, None, STORE, 50051)
        if refused:
            with pytest.raises(FleetError, match=r"cannot mount folders: .*/.* older release") as caught:
                await executors.open(claimed(bound=False), 60.0)
            assert caught.value.problem.reason == "InvalidClaim"
        else:
            await executors.open(claimed(bound=False), 60.0)
        assert contacts.asked["mounts"] == {"/app": "", "/logs": "out"}


async def test_no_session_ends_for_its_mounts():
    await PodExecutors(Contacts([]), None, STORE, 50051).open(claimed(bound=True), 60.0)

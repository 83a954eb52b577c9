"""What the fleet asks of the executors in its pods."""

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from sandfleet_operator.api.errors import FleetError
from sandfleet_operator.api.kube import POD, Ref
from sandfleet_operator.api.values import Isolation, State
from sandfleet_operator.executors.contact import ExecutorDescription, Silent, Unreachable
from sandfleet_operator.executors.pod_client import Errand, PodExecutors
from support.fleet.builders import a_claim, a_sandbox
from transition.fake_time import run

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


class Silence:
    """Executors of the namespace "mean" and those on the node "lost" are silent; all others answer at once."""

    def __init__(self):
        self.asked, self.most, self.under_way = 0, 0, 0

    async def contact(self, executor, **_asked):
        silent = executor.address.startswith(("10.9.", "10.8."))
        self.asked, self.under_way = self.asked + 1, self.under_way + silent
        self.most = max(self.most, self.under_way)
        try:
            if silent:
                await asyncio.sleep(2.0)
                raise Silent("cannot reach it: no answer")
        finally:
            self.under_way -= silent
        return ExecutorDescription(
            runtime="gvisor", isolation=Isolation.GVISOR, kernel="", session_id="", executor_version="", idle=1.0
        )


def pod(namespace, name, address, node):
    meta = {"namespace": namespace, "name": name, "uid": name}
    return Ref(POD, namespace, name), {"metadata": meta, "spec": {"nodeName": node}, "status": {"podIP": address}}


MEAN = [pod("mean", f"m-{number}", f"10.9.0.{number}", f"n{number % 3}") for number in range(200)]
LOST = [pod(f"team-{number % 4}", f"l-{number}", f"10.8.0.{number}", "lost") for number in range(40)]
GOOD = [pod("team-0", f"g-{number}", f"10.0.0.{number}", "n0") for number in range(4)]


def starting(ref):
    name = f"{ref.namespace}/{ref.name}"
    return a_sandbox(State.STARTING, sandbox_id=name, sandbox_uid=name)


def contacted(many, good, errands=None):
    """Seconds until the good ones are reached, while the many are waited for."""

    async def go():
        executors = PodExecutors(Silence(), None, dict([*many, *good]), 50051)
        if errands is not None:
            executors._lanes = dict.fromkeys(Errand, errands(Silent))
        for ref, _ in many:
            tasks.append(asyncio.create_task(executors.connect(starting(ref), "")))
        await asyncio.sleep(5.0)
        begun = asyncio.get_running_loop().time()
        await asyncio.gather(*(executors.connect(starting(ref), "") for ref, _ in good))
        reached = asyncio.get_running_loop().time() - begun
        for one in tasks:
            one.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return reached

    tasks = []
    return run(go())


class OneLine:
    """Sixteen slots for everybody, in order of arrival."""

    def __init__(self, _silent):
        self._slots = asyncio.Semaphore(16)

    @asynccontextmanager
    async def turn(self, *_):
        async with self._slots:
            yield


@pytest.mark.parametrize("many", [MEAN, LOST, MEAN + LOST], ids=["a namespace", "a node", "both"])
def test_silent_executors_hold_up_no_other_ones(many):
    assert contacted(many, GOOD) < 2.0
    # The control: with one line for everybody the others wait until nearly all of the silent ones have had their time.
    assert contacted(many, GOOD, OneLine) > 2.5


def test_a_call_waits_for_nothing_of_another_errand():
    async def go():
        claimed_pod = a_sandbox(State.CLAIMED, sandbox_id="mean/m-200", sandbox_uid="mean/m-200", claim=a_claim())
        extra = pod("mean", "m-200", "10.0.0.200", "n0")
        executors = PodExecutors(Silence(), None, dict([*MEAN, extra]), 50051)
        tasks = [asyncio.create_task(executors.connect(starting(ref), "")) for ref, _ in MEAN]
        await asyncio.sleep(5.0)
        begun = asyncio.get_running_loop().time()
        assert await executors.idle(claimed_pod) == 1.0
        assert await executors.answers(claimed_pod)
        for one in tasks:
            one.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return asyncio.get_running_loop().time() - begun

    assert run(go()) == 0.0


def test_a_silent_party_is_asked_ever_more_seldom():
    async def go():
        silence = Silence()
        executors = PodExecutors(silence, None, dict(LOST), 50051)
        tasks = [asyncio.create_task(executors.connect(starting(ref), "")) for ref, _ in LOST]
        await asyncio.sleep(60.0)
        for one in tasks:
            one.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return silence

    silence = run(go())
    # In a minute forty executors would be asked 1,200 times.
    assert silence.most <= 32
    assert silence.asked < 150


class Slow(Silence):
    """No executor listens for this long."""

    def __init__(self, seconds):
        super().__init__()
        self.seconds = seconds

    async def contact(self, executor, **asked):
        if asyncio.get_running_loop().time() < self.seconds:
            self.asked += 1
            raise Unreachable("cannot reach it: connection refused")
        return await super().contact(executor, **asked)


def test_a_start_may_take_as_long_as_its_template_says():
    def reached(state, seconds, metadata):
        async def go():
            slow = Slow(seconds)
            executors = PodExecutors(slow, None, {NAME: {**STORE[NAME], "metadata": metadata}}, 50051)
            sandbox = a_sandbox(state, sandbox_id="team/pod", sandbox_uid="team/pod")
            try:
                await executors.connect(sandbox, "")
            except FleetError as error:
                return error.problem.reason, slow.asked
            return "reached", slow.asked

        return run(go())

    known = STORE[NAME]["metadata"]
    # The scheduler gives up a start whose time is over.
    assert reached(State.STARTING, 600.0, known)[0] == "reached"
    assert reached(State.RESUMING, 600.0, known)[0] == "reached"
    # It asks ever more seldom: 20 times a second would be 12,000 times.
    assert reached(State.STARTING, 600.0, known)[1] < 500
    # A warm one of an earlier leader has a minute. What was given up has none, though a finalizer keeps the pod.
    assert reached(State.WARM, 600.0, known)[0] == "ExecutorUnreachable"
    given_up = {**known, "deletionTimestamp": "2026-01-01T00:00:00Z"}
    assert reached(State.STARTING, 600.0, given_up) == ("ExecutorUnreachable", 1)


async def test_the_claim_of_a_warm_one_of_an_earlier_leader_verifies_its_executor_first():
    class Both(Contacts):
        def __init__(self):
            super().__init__([])
            self.calls = []

        async def contact(self, executor, *, isolation, first):
            self.calls.append(("contact", executor.pod_uid, isolation, first))

        async def open(self, executor, **asked):
            self.calls.append("open")
            return await super().open(executor, **asked)

    for untried, bound, calls in ((True, False, 2), (False, False, 1), (True, True, 1)):
        contacts = Both()
        sandbox = replace(claimed(bound=bound), untried=untried, claim=a_claim(name="one"))
        await PodExecutors(contacts, None, STORE, 50051).open(sandbox, 60.0)
        assert contacts.calls == [("contact", "u-1", sandbox.isolation, True), "open"][-calls:]

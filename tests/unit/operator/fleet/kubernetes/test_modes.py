"""The mode of a session's CodeSandbox: what was decided last is written last, however long a write takes."""

import asyncio
from dataclasses import replace

import pytest
from sandfleet_operator.api.kube import CODE_SANDBOX, Ref
from sandfleet_operator.api.values import State
from sandfleet_operator.cluster.store import Store
from sandfleet_operator.fleet.kubernetes.sessions.modes import Modes
from sandfleet_operator.plan.claims.record import object_of, record_of
from sandfleet_operator.plan.claims.sandbox_object import bound_annotations
from support.fleet.builders import a_claim, a_sandbox

CLAIM = a_claim("r1", pool="team/fast")
REF = Ref(CODE_SANDBOX, "team", object_of(CLAIM))
SUSPENDED, RUNNING = "Suspended", "Running"


class SlowWriter:
    """Each write waits until it is let go, the last one first if need be."""

    def __init__(self):
        self.modes, self.gate, self.begun = [], asyncio.Event(), 0

    async def patch(self, _ref, operations):
        self.begun += 1
        await self.gate.wait()
        self.modes.append(operations[1]["value"])
        return True

    async def look(self, _ref):
        return None


@pytest.fixture
def session():
    return a_sandbox(State.SUSPENDING, claim=CLAIM, sandbox_id="team/pod")


@pytest.fixture
def modes(session):
    store, writer = Store(), SlowWriter()
    annotations = bound_annotations("pod", "uid-pod", record_of(CLAIM, 1, 0.0))
    metadata = {"namespace": "team", "name": REF.name, "uid": "u", "resourceVersion": "1", "annotations": annotations}
    store.put(CODE_SANDBOX, {"metadata": metadata, "spec": {"templateRef": {"name": "python"}}})
    looked = []
    made = Modes(store, writer, looked.append, lambda: 0.0)
    made.writer, made.looked = writer, looked
    return made


def decide(modes, method, sandbox):
    modes.decided(sandbox)
    return asyncio.create_task(method(sandbox))


async def test_decisions_are_written_in_their_order_while_one_is_being_written(modes, session):
    asleep, awake = session, replace(session, state=State.RESUMING)
    first = decide(modes, modes.suspend, asleep)
    while not modes.writer.begun:
        await asyncio.sleep(0)
    second = decide(modes, modes.resume, awake)
    modes.writer.gate.set()
    await asyncio.gather(first, second)
    assert modes.writer.modes == [SUSPENDED, RUNNING]


async def test_what_was_decided_otherwise_meanwhile_is_not_written(modes, session):
    asleep, awake = session, replace(session, state=State.RESUMING)
    modes.decided(asleep)
    second = decide(modes, modes.resume, awake)
    modes.writer.gate.set()
    await second
    # Its executor took long to keep the session.
    await modes.suspend(asleep)
    assert modes.writer.modes == [RUNNING]


async def test_the_mode_is_out_of_date_from_the_decision_to_the_write(modes, session):
    modes.decided(session)
    assert modes.is_writing(session)
    modes.writer.gate.set()
    await modes.suspend(session)
    assert not modes.is_writing(session)
    assert modes.looked == [REF]

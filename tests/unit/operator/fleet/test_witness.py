"""The fleet signs heads of journals: when, of what, and what it refuses."""

import asyncio
import json
import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sandfleet.journal.heads import SignedHead
from sandfleet.journal.records import Head as ClientsHead
from sandfleet.journal.statements import Keys
from sandfleet_operator.api.errors import FleetError
from sandfleet_operator.api.reasons import ClaimReason
from sandfleet_operator.api.values import Claim, Isolation, RequestKey, Sandbox, State
from sandfleet_operator.executors.tokens import KeyRing, Signer, TokenKey
from sandfleet_operator.fleet.journals.witness import Witness, WitnessError, records_between, unwitnessed
from sandfleet_operator.fleet.leases.ends import LOOK_SECONDS
from sandfleet_operator.plan.witness import MAX_KEPT, Head, remembered, remembrance

SANDBOX = Sandbox(
    sandbox_id="team/s",
    sandbox_uid="uid-1",
    pool="p",
    template="t",
    isolation=Isolation.NONE,
    workspace_id="w",
    created=0.0,
    started=0.0,
    state=State.CLAIMED,
    claim=Claim(key=RequestKey("holder", "r", "p"), lease=60.0),
    bound=True,
)


def head(number, mark="a"):
    return Head(number, (mark * 64)[:64])


class Executor:
    """An executor that says what it is told to."""

    def __init__(self):
        self.says, self.asked = head(0, "0"), 0

    async def read(self, _sandbox):
        self.asked += 1
        if isinstance(self.says, Exception):
            raise self.says
        return self.says


@pytest.fixture
def executor():
    return Executor()


@pytest.fixture
def audit():
    return []


@pytest.fixture
def witness(executor, audit):
    signer = Signer(KeyRing((TokenKey.new(0.0),)), lambda: 1000.0)
    moments = iter(range(1, 10_000))
    return Witness(
        executor.read,
        lambda one: (one.sandbox_id, one.sandbox_uid),
        lambda: signer,
        audit.append,
        lambda: float(next(moments)),
        records=10,
    )


async def renewed(witness, sandbox=SANDBOX):
    witness.renewed(sandbox)
    for _ in range(5):
        await asyncio.sleep(0)
    return [one.head.number for one in witness.heads(sandbox)]


class Memory:
    """What outlives a leader: one text for each pod, as the pod's annotation has it."""

    def __init__(self):
        self.kept = {}

    def recall(self, sandbox):
        return remembered(self.kept.get(sandbox.sandbox_uid, ""), sandbox.sandbox_id, sandbox.sandbox_uid)

    async def keep(self, sandbox, signed):
        self.kept[sandbox.sandbox_uid] = remembrance(signed)


def leader(executor, audit, memory):
    """The witness of a new leader, with a key of its own."""
    signer = Signer(KeyRing((TokenKey.new(0.0),)), lambda: 1000.0)
    named = lambda one: (one.sandbox_id, one.sandbox_uid)  # noqa: E731
    return Witness(executor.read, named, lambda: signer, audit.append, lambda: 1000.0, memory=memory, records=10)


@pytest.mark.parametrize("says", [head(4), head(5, "b"), head(0, "0")])
async def test_the_next_leader_knows_what_was_signed_before(executor, audit, says):
    memory = Memory()
    executor.says = head(5)
    (signed,) = await leader(executor, audit, memory).countersign(SANDBOX)
    await asyncio.sleep(0)
    executor.says = says
    with pytest.raises(FleetError) as caught:
        await leader(executor, audit, memory).countersign(SANDBOX)
    assert caught.value.problem.reason == "JournalChanged"
    # Controls: without the memory it would sign the other past, and a journal that goes on is signed.
    if says.number:
        assert len(await leader(executor, audit, Memory()).countersign(SANDBOX)) == 1
    executor.says = head(6)
    assert (await leader(executor, audit, memory).countersign(SANDBOX))[0] == signed


async def test_what_was_signed_survives_as_text(executor, audit):
    executor.says = head(5)
    (signed,) = await leader(executor, audit, None).countersign(SANDBOX)
    text = remembrance(signed)
    assert remembered(text, "team/s", "uid-1") == signed
    assert len(text) < 1000


@pytest.mark.slow
@given(st.text(max_size=20) | st.builds(json.dumps, st.recursive(st.none() | st.integers() | st.text(), st.lists)))
def test_an_annotation_that_is_no_signed_head_is_none(text):
    assert remembered(text, "team/s", "uid-1") is None


@pytest.mark.parametrize(
    "changed",
    [
        {"session": "team/other"},
        {"pod_uid": "uid-2"},
        {"number": -1},
        {"number": True},
        {"number": "5"},
        {"hash": "a"},
        {"hash": []},
        {"time": 1.5},
        {"key_id": None},
        {"signature": "%"},
        {"public_key": 5},
    ],
)
async def test_an_annotation_with_a_wrong_value_is_none(executor, audit, changed):
    executor.says = head(5)
    (signed,) = await leader(executor, audit, None).countersign(SANDBOX)
    said = json.loads(remembrance(signed))
    assert remembered(json.dumps(said), "team/s", "uid-1") == signed
    assert remembered(json.dumps(said | changed), "team/s", "uid-1") is None


async def settled():
    for _ in range(5):
        await asyncio.sleep(0)


async def test_the_last_head_is_signed_shortly_before_the_end_of_a_lease(witness, executor):
    ends = replace(SANDBOX, lease_expires=100.0)
    executor.says = head(3)
    signed = []
    for now in (50.0, 94.0, 96.0, 98.0, 101.0):
        witness.look([ends, replace(SANDBOX, sandbox_id="team/endless")], now)
        await settled()
        signed.append([one.head.number for one in witness.heads(ends)])
    assert signed == [[], [], [3], [3], [3]]
    assert executor.asked == 1
    # A lease that was renewed ends later, and has a last head of its own.
    executor.says = head(4)
    renewed_once = replace(ends, lease_expires=200.0)
    for now in (102.0, 197.0):
        witness.look([renewed_once], now)
        await settled()
    assert [one.head.number for one in witness.heads(ends)] == [3, 4]


@pytest.mark.parametrize("unfit", [{"bound": False}, {"lease_expires": None}, {"lease_expires": math.inf}])
async def test_a_session_without_an_end_is_not_asked(witness, executor, unfit):
    witness.look([replace(SANDBOX, **{"lease_expires": 100.0, **unfit})], 99.0)
    await settled()
    assert executor.asked == 0


async def test_a_session_that_may_end_idle_is_read_between_its_last_use_and_its_end(witness, executor):
    """Whenever the last use is: one reading lies behind it and before the end. The looks come every two seconds."""
    for timeout, last_use in ((10.0, 31.0), (10.0, 36.9), (60.0, 100.0), (60.0, 153.0), (600.0, 1100.0)):
        session = replace(
            SANDBOX, sandbox_id=f"team/{timeout}-{last_use}", claim=replace(SANDBOX.claim, idle_timeout=timeout)
        )
        asked, now = [], 0.0
        while now < last_use + timeout:
            executor.says, before = head(1 + int(now > last_use)), executor.asked
            witness.look([session, replace(SANDBOX, sandbox_id="team/endless")], now)
            await settled()
            asked += [now] * (executor.asked - before)
            now += LOOK_SECONDS
        assert any(last_use < at < last_use + timeout - 1 for at in asked)
        assert witness.heads(session)[-1].head == head(2)
        # It is asked once in each timeout, and not at each look.
        assert len(asked) <= now / (timeout / 2) + 1


async def test_a_renewal_signs_once_enough_records_have_passed(witness, executor):
    signed = []
    for number in (0, 9, 10, 11, 19, 20, 500):
        executor.says = head(number, "b") if number else head(0, "0")
        signed.append(await renewed(witness))
    assert signed == [[], [], [10], [10], [10], [10, 20], [10, 20, 500]]


async def test_a_release_and_a_caller_sign_whatever_is_new(witness, executor):
    executor.says = head(1)
    (first,) = await witness.released(SANDBOX)
    assert first.head == head(1)
    assert await witness.released(SANDBOX) == (first,)
    executor.says = head(2)
    assert [one.head.number for one in await witness.countersign(SANDBOX)] == [1, 2]


async def test_the_clients_check_accepts_what_the_fleet_signs(witness, executor, audit):
    executor.says = head(7)
    (one,) = await witness.countersign(SANDBOX)
    as_received = SignedHead(
        session=one.session,
        pod_uid=one.pod_uid,
        head=ClientsHead(one.head.number, one.head.hash),
        time=one.time,
        key_id=one.key_id,
        signature=one.signature,
        public_key=one.public_key,
    )
    assert Keys({one.key_id: one.public_key}).holds(as_received)
    (record,) = audit
    assert (record.namespace, record.sandbox, record.verdict.value) == ("team", "s", "allowed")
    assert record.details["number"] == 7


@pytest.mark.parametrize("says", [head(4), head(5, "b"), head(0, "0")])
async def test_an_executor_that_has_changed_what_was_signed_gets_no_signature(witness, executor, audit, says):
    executor.says = head(5)
    await witness.countersign(SANDBOX)
    executor.says = says
    with pytest.raises(FleetError) as caught:
        await witness.countersign(SANDBOX)
    assert caught.value.problem.reason == "JournalChanged"
    # A release goes on, and a renewal, too.
    assert [one.head.number for one in await witness.released(SANDBOX)] == [5]
    assert await renewed(witness) == [5]
    assert [(one.verdict.value, one.reason) for one in audit[1:]] == [("refused", "JournalChanged")] * 3
    # The control: a journal that goes on is signed.
    executor.says = head(6)
    assert len(await witness.countersign(SANDBOX)) == 2


async def test_the_journal_of_another_pod_begins_anew(witness, executor):
    executor.says = head(50)
    await witness.countersign(SANDBOX)
    executor.says = head(1, "c")
    later = replace(SANDBOX, sandbox_uid="uid-2")
    assert [(one.pod_uid, one.head.number) for one in await witness.countersign(later)] == [("uid-1", 50), ("uid-2", 1)]


@pytest.mark.parametrize("says", [Head(-1, "a" * 64), Head(1, "a" * 63), Head(1, "A" * 64), Head(1 << 63, "a" * 64)])
async def test_what_is_no_head_is_not_signed(witness, executor, audit, says):
    executor.says = says
    with pytest.raises(FleetError):
        await witness.countersign(SANDBOX)
    assert audit == []


async def test_an_executor_that_does_not_answer_holds_no_release_up(witness, executor, monkeypatch):
    executor.says = ClaimReason.EXECUTOR_GONE.error("cannot reach it: gone")
    assert await witness.released(SANDBOX) == ()
    monkeypatch.setattr("sandfleet_operator.fleet.journals.witness.RELEASE_PATIENCE", 0.01)
    witness._read = lambda _: asyncio.sleep(3600)
    assert await witness.released(SANDBOX) == ()


async def test_signed_heads_are_bounded_and_one_renewal_asks_once(witness, executor):
    for number in range(1, MAX_KEPT + 20):
        executor.says = head(number)
        await witness.countersign(SANDBOX)
    kept = [one.head.number for one in witness.heads(SANDBOX)]
    assert (len(kept), kept[-1]) == (MAX_KEPT, MAX_KEPT + 19)
    before = executor.asked
    for _ in range(100):
        witness.renewed(SANDBOX)
    await renewed(witness)
    assert executor.asked == before + 1


async def test_a_fleet_without_a_witness_signs_nothing():
    silent = unwitnessed()
    assert await silent.released(SANDBOX) == ()
    assert silent.renewed(SANDBOX) == ()
    with pytest.raises(FleetError):
        await silent.countersign(SANDBOX)


def test_the_environment_says_how_many_records_pass():
    assert [records_between({"SANDFLEET_JOURNAL_RECORDS": said}) for said in ("", "0", "7")] == [100, 0, 7]
    for said in ("-1", "many", "9" * 20, "²"):
        with pytest.raises(WitnessError, match="cannot read SANDFLEET_JOURNAL_RECORDS"):
            records_between({"SANDFLEET_JOURNAL_RECORDS": said})

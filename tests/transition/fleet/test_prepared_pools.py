"""Pools that start from a snapshot: their sandboxes are filled before they are warm."""

import asyncio

import pytest
from sandfleet_operator.api.errors import FleetError
from sandfleet_operator.api.kube import SANDBOX_POOL, Ref, ref_of
from sandfleet_operator.api.values import Mark, State, received_before
from sandfleet_operator.fleet.kubernetes.snapshots.preparation import PoolPreparation
from sandfleet_operator.fleet.snapshots.jobs import Jobs
from sandfleet_operator.fleet.snapshots.transfers import Party
from sandfleet_operator.plan.claims.record import read_record
from sandfleet_operator.plan.pods import names
from sandfleet_operator.plan.snapshots.reasons import SnapshotReason
from support.kubernetes.world import TEAM, World, pool_object, template_object

POOL = Ref(SANDBOX_POOL, TEAM, "fast")


class Store(Jobs):
    """Snapshots of one tenant by name: id and marks. Filling takes so many steps."""

    def __init__(self, filled):
        super().__init__()
        self.filled, self.steps, self.restored = filled, 1, []
        self.named = {"etl": ("s-1", []), "other": ("s-2", ["secret"])}

    async def reach(self):
        raise AssertionError("not asked")

    async def run(self, op, **request):
        if request["snapshot"] not in self.named:
            raise SnapshotReason.SNAPSHOT_NOT_FOUND.error(f"cannot find snapshot {request['snapshot']!r}")
        snapshot_id, received = self.named[request["snapshot"]]
        for _ in range(self.steps if op == "restore" else 0):
            await asyncio.sleep(0.01)
            yield {"event": "progress"}
        if op == "restore":
            assert (request["tenant"], request["prepare"], request["force"]) == (TEAM, True, False)
            self.restored.append((request["address"], snapshot_id))
            self.filled[request["address"]] = snapshot_id
        yield {"event": "done", "snapshot": {"id": snapshot_id, "received": received}}


class Parties:
    def unclaimed(self, sandbox):
        async def note(marks):
            return marks

        place = {"address": sandbox.sandbox_uid}
        return Party(
            tenant=TEAM,
            sandbox_id=sandbox.sandbox_uid,
            template=sandbox.template,
            contract=sandbox.contract,
            limits={},
            place=place,
            note=note,
        )


class Prepared(World):
    """Its fleets have a snapshotter; `noted` are the audit records."""

    def __init__(self):
        super().__init__()
        self.store, self.noted = Store(self.filled), []
        # Executors answer their first contacts while it is set.
        self.answering = asyncio.Event()
        self.answering.set()

    def executors(self):
        async def connect(_sandbox, _address):
            await self.answering.wait()

        made = super().executors()
        made.connect = connect
        return made

    def process(self, *arguments, **options):
        made = super().process(*arguments, **options)
        made.prepare_with(PoolPreparation(made, self.store, Parties(), self.noted.append))
        return made

    def warm_in(self, fleet):
        return list(fleet.scheduler.inventory.in_state(State.WARM))


@pytest.fixture
async def world():
    async with Prepared() as made:
        await made.add(template_object(), pool_object(size=2, snapshot="etl"))
        yield made


async def is_warm(world, fleet, count=2):
    await world.until(lambda: len(world.warm_in(fleet)) == count)


async def test_a_sandbox_is_warm_when_it_is_filled_and_its_claim_has_received_the_same(world):
    world.store.named["etl"] = ("s-1", ["untrusted"])
    fleet = await world.fleet()
    await is_warm(world, fleet)
    assert sorted(world.store.restored) == sorted((one.sandbox_uid, "s-1") for one in world.warm_in(fleet))
    assert {one.details["purpose"] for one in world.noted} == {"pool"}
    sandbox = await world.claim(fleet)
    assert sandbox.warm
    assert received_before(sandbox.claim) == {Mark.UNTRUSTED}
    # It is on record in the write that binds the pod, so that the next leader knows it, too.
    (pod,) = world.pods("claimed")
    assert read_record(pod["metadata"]["annotations"][names.CLAIM]).received == {Mark.UNTRUSTED}
    await world.kill(fleet)
    after = await world.fleet()
    found = after.scheduler.inventory.get(sandbox.sandbox_id)
    assert received_before(found.claim) == {Mark.UNTRUSTED}


@pytest.mark.parametrize("noted", [True, False])
async def test_the_next_leader_fills_no_sandbox_again(world, noted):
    """It asks the executor where an earlier release has not noted on the pod that it is filled."""
    world.store.named["etl"] = ("s-1", ["secret", "untrusted"])
    fleet = await world.fleet()
    await is_warm(world, fleet)
    await world.kill(fleet)
    for pod in () if noted else world.pods("warm"):
        world.cluster.edit(ref_of(pod), lambda obj: obj["metadata"]["annotations"].pop(names.FILLED))
    after = await world.fleet()
    await is_warm(world, after)
    assert len(world.store.restored) == 2
    assert {one.received for one in world.warm_in(after)} == {frozenset(Mark)}
    assert all(names.FILLED in pod["metadata"]["annotations"] for pod in world.pods("warm"))


async def test_what_is_filled_is_handed_out_before_the_next_leader_has_contacted_it(world):
    world.store.named["etl"] = ("s-1", ["secret"])
    fleet = await world.fleet()
    await is_warm(world, fleet)
    await world.kill(fleet)
    world.answering.clear()
    after = await world.fleet()
    sandbox = await world.claim(after)
    assert received_before(sandbox.claim) == {Mark.SECRET}
    assert sandbox.sandbox_uid in world.filled
    assert len(world.store.restored) == 2


async def test_a_leader_that_ends_in_the_middle_leaves_no_sandbox_warm_that_is_empty(world):
    world.store.steps = 10_000
    fleet = await world.fleet()
    await world.until(lambda: len(world.pods("warm")) == 2)
    await asyncio.sleep(0.1)
    assert world.warm_in(fleet) == []
    await world.kill(fleet)
    world.store.steps = 1
    after = await world.fleet()
    await is_warm(world, after)
    assert {world.filled[one.sandbox_uid] for one in world.warm_in(after)} == {"s-1"}


async def test_a_fill_may_take_longer_than_a_start(world):
    await world.kube.merge(POOL, {"spec": {"startTimeoutSeconds": 1}})
    world.store.steps = 150
    fleet = await world.fleet()
    await is_warm(world, fleet)
    assert len(world.store.restored) == 2


async def test_another_snapshot_replaces_the_sandboxes_that_wait(world):
    fleet = await world.fleet()
    await is_warm(world, fleet)
    before = {one.sandbox_uid for one in world.warm_in(fleet)}
    await world.kube.merge(POOL, {"spec": {"snapshot": "other"}})

    def fresh():
        return {one.sandbox_uid for one in world.warm_in(fleet)} - before

    await world.until(lambda: len(fresh()) == 2 and len(world.warm_in(fleet)) == 2)
    assert {world.filled[uid] for uid in fresh()} == {"s-2"}
    # The next leader reads from the pod which snapshot it was made for.
    kept = fresh()
    await world.kill(fleet)
    after = await world.fleet()
    await is_warm(world, after)
    assert {one.sandbox_uid for one in world.warm_in(after)} == kept
    assert len(world.store.restored) == 4


async def test_without_its_snapshot_a_pool_hands_out_nothing_and_says_why(world):
    del world.store.named["etl"]
    fleet = await world.fleet()
    with pytest.raises(FleetError) as refused:
        await world.claim(fleet, within=8.0)
    assert refused.value.problem.reason == SnapshotReason.SNAPSHOT_NOT_FOUND.value

    def said():
        conditions = world.cluster.objects[POOL].get("status", {}).get("conditions", [])
        return [one["message"] for one in conditions if one["type"] == "Ready"]

    await world.until(lambda: "cannot find snapshot 'etl'" in "".join(said()))
    assert world.warm_in(fleet) == []
    # The control: it serves when the snapshot is there.
    world.store.named["etl"] = ("s-3", [])
    await is_warm(world, fleet)


async def test_only_a_claim_that_names_the_pool_gets_what_is_in_it(world):
    fleet = await world.fleet()
    await is_warm(world, fleet)
    assert fleet.catalog.resolve(TEAM, "", "python").pool == ""
    assert fleet.catalog.resolve(TEAM, "fast", "").pool == "fast"
    await world.add(pool_object("plain", size=0))
    await world.until(lambda: fleet.catalog.resolve(TEAM, "", "python").pool == "plain")


async def test_a_claim_on_an_earlier_workspace_keeps_its_files(world):
    fleet = await world.fleet()
    await is_warm(world, fleet)
    first = await world.claim(fleet, keep_workspace=True)
    await fleet.fleet.release(first.sandbox_id)
    filled = len(world.store.restored)
    again = await world.claim(fleet, "r2", workspace_id=first.workspace_id)
    assert again.sandbox_uid not in world.filled
    assert again.sandbox_uid not in {address for address, _ in world.store.restored[filled:]}

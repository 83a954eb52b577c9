"""Only the leader's pod is behind the Service."""

import asyncio

import pytest
from sandfleet_operator.api.kube import POD, Conflict, Ref
from sandfleet_operator.fleet.kubernetes.service_place import EVERY, LEADS, RETRY, ServicePlace
from support.fakes.kube_memory import Before, MemoryKube
from transition.fake_time import run

SYSTEM = "sandfleet-system"


async def a_kube():
    kube = MemoryKube()
    await kube.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM}})
    for name in ("one", "two"):
        container = {"name": "fleet", "image": "fleet:1"}
        meta = {"namespace": SYSTEM, "name": name, "labels": {"app": "fleet"}}
        await kube.create({"apiVersion": "v1", "kind": POD.kind, "metadata": meta, "spec": {"containers": [container]}})
    return kube


async def placed(kube):
    return [one["metadata"]["name"] for one in (await kube.list(POD, SYSTEM, f"app=fleet,{LEADS}=true")).items]


def test_the_next_leader_takes_the_place_of_one_that_does_not_know_that_its_time_is_over():
    async def go():
        kube = await a_kube()
        await ServicePlace(kube, SYSTEM, "one", lambda: True).take()
        assert await placed(kube) == ["one"]
        await ServicePlace(kube, SYSTEM, "two", lambda: True).take()
        assert await placed(kube) == ["two"]
        # What is as it has to be is not written again.
        version = kube.cluster.version
        await ServicePlace(kube, SYSTEM, "two", lambda: True).take()
        assert kube.cluster.version == version

    run(go())


@pytest.mark.parametrize(("leads", "after"), [(True, ["one"]), (False, [])])
def test_the_place_is_held_while_the_fleet_serves(leads, after):
    async def go():
        kube, serves = await a_kube(), [leads]
        place = asyncio.create_task(ServicePlace(kube, SYSTEM, "one", lambda: serves[0]).hold())
        await asyncio.sleep(1.0)
        await kube.merge(Ref(POD, SYSTEM, "one"), {"metadata": {"labels": {LEADS: None}}})
        await asyncio.sleep(EVERY)
        assert await placed(kube) == after
        serves[0] = False
        await asyncio.sleep(EVERY)
        assert place.done()

    run(go())


def test_a_failed_write_is_tried_again():
    async def go():
        kube, failed = await a_kube(), []

        def fault(write):
            if write.verb == "merge" and not failed:
                failed.append(write)
                return Before(Conflict(409, "Conflict", "cannot merge: it was changed"))
            return None

        kube.fault = fault
        place = asyncio.create_task(ServicePlace(kube, SYSTEM, "one", lambda: True).hold())
        await asyncio.sleep(RETRY / 2)
        assert await placed(kube) == []
        await asyncio.sleep(RETRY)
        assert await placed(kube) == ["one"]
        place.cancel()

    run(go())

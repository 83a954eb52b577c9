"""The fleet over an API server in memory: claims that name an image in the place of their template's."""

import asyncio

import pytest
from sandfleet_operator.api.errors import FleetError
from sandfleet_operator.api.kube import CODE_SANDBOX, POD, SANDBOX_TEMPLATE, Ref, Unreachable, ref_of
from sandfleet_operator.plan.pods import names
from support.fakes.kube_memory import Before
from support.kubernetes.world import TEAM, World, pool_object, sandbox_object, template_object

OTHER = "registry/executor:2"


@pytest.fixture
async def world():
    async with World() as made:
        await made.add(template_object(images=["registry/executor:*"]), pool_object())
        yield made


def image_of(pod):
    return pod["spec"]["containers"][0]["image"]


def with_other(world):
    return [pod for pod in world.pods() if image_of(pod) == OTHER]


def waiting(reason, message):
    return {
        "phase": "Pending",
        "containerStatuses": [{"name": "executor", "state": {"waiting": {"reason": reason, "message": message}}}],
    }


UNPULLED = waiting("ErrImagePull", "manifest unknown")


async def full(world, fleet):
    await world.until(lambda: len(world.pods("warm")) == 2 == fleet.scheduler.summary(f"{TEAM}/fast").warm)


async def test_a_claim_with_an_image_starts_a_pod_of_its_own_and_its_object_names_it(world):
    fleet = await world.fleet()
    await full(world, fleet)
    sandbox = await world.claim(fleet, pod_image=OTHER)
    (pod,) = with_other(world)
    assert (sandbox.sandbox_id, sandbox.warm) == (f"{TEAM}/{pod['metadata']['name']}", False)
    assert pod["metadata"]["annotations"][names.IMAGE] == OTHER
    # The pool keeps its own pods, and other claims get them.
    assert [image_of(one) for one in world.pods("warm")] == ["registry/executor:1"] * 2
    plain = await world.claim(fleet, "r2")
    assert plain.warm
    await world.until(lambda: len(world.objects()) == 2)
    assert sorted(one["spec"].get("image", "") for one in world.objects()) == ["", OTHER]
    assert await fleet.fleet.release(sandbox.sandbox_id)
    await world.until(lambda: not with_other(world))


async def test_the_pod_of_a_claim_with_an_image_is_handed_to_no_other_claim(world):
    first = await world.fleet()
    await full(world, first)
    world.starts = False
    asking = asyncio.create_task(world.claim(first, pod_image=OTHER))
    await world.until(lambda: with_other(world))
    await world.kill(first)
    asking.cancel()
    world.starts = True
    second = await world.fleet()
    others = [await world.claim(second, f"r{number}") for number in range(2, 5)]
    served = {one.sandbox_id.partition("/")[2] for one in others}
    assert {image_of(pod) for pod in world.pods() if pod["metadata"]["name"] in served} == {"registry/executor:1"}
    await world.until(lambda: not with_other(world))
    again = await world.claim(second, pod_image=OTHER)
    assert [pod["metadata"]["name"] for pod in with_other(world)] == [again.sandbox_id.partition("/")[2]]


async def test_a_claim_that_leaves_takes_its_pod_along(world):
    fleet = await world.fleet()
    await full(world, fleet)
    world.starts = False
    asking = asyncio.create_task(world.claim(fleet, pod_image=OTHER))
    await world.until(lambda: with_other(world))
    asking.cancel()
    await world.until(lambda: not with_other(world))
    assert len(world.pods("warm")) == 2


async def test_the_next_leader_goes_on_with_it_before_its_object_is_written(world):
    kube = world.client()
    first = await world.fleet(kube)
    dead = Before(Unreachable(0, "ConnectionFailed", "cannot write: connection refused"))
    kube.fault = lambda write: dead if write.verb == "create" and write.ref.kind == CODE_SANDBOX else None
    sandbox = await world.claim(first, pod_image=OTHER)
    await world.kill(first)
    second = await world.fleet()
    again = await world.claim(second, pod_image=OTHER)
    assert (again.sandbox_id, again.claim.pod_image) == (sandbox.sandbox_id, OTHER)
    await world.until(lambda: [one["spec"].get("image") for one in world.objects()] == [OTHER])


async def test_an_image_that_cannot_be_pulled_is_told_in_the_kubelets_words_and_harms_no_other_claim(world):
    fleet = await world.fleet()
    await full(world, fleet)
    world.starts = False
    asking = asyncio.create_task(world.claim(fleet, pod_image=OTHER))

    def refused():
        for pod in with_other(world):
            world.cluster.edit(ref_of(pod), lambda obj: obj.update(status=UNPULLED))
        return asking.done()

    await world.until(refused)
    with pytest.raises(FleetError, match=f"image {OTHER} does not start: manifest unknown"):
        await asking
    world.starts = True
    assert (await world.claim(fleet, "r2")).warm
    await world.until(lambda: not with_other(world))
    # The pool goes on at once: its own starts have not failed.
    await full(world, fleet)


async def test_a_template_that_does_not_list_it_any_more_refuses_a_claim_that_waits(world):
    fleet = await world.fleet()
    await full(world, fleet)
    await world.kube.merge(Ref(SANDBOX_TEMPLATE, TEAM, "python"), {"spec": {"images": []}})
    await world.until(lambda: fleet.catalog.recipe(f"{TEAM}/fast").wanted.images == ())
    with pytest.raises(FleetError, match="its template allows none"):
        await world.claim(fleet, pod_image=OTHER)
    assert not with_other(world)


async def test_a_codesandbox_that_names_an_image_and_a_pool_gets_a_pod_with_it(world):
    fleet = await world.fleet()
    await full(world, fleet)
    await world.add(sandbox_object(image=OTHER))
    await world.until(lambda: [one for one in with_other(world) if one["metadata"]["labels"][names.STATE] == "claimed"])
    assert {image_of(one) for one in world.pods("warm")} == {"registry/executor:1"}
    assert world.cluster.objects.get(Ref(POD, TEAM, with_other(world)[0]["metadata"]["name"]))

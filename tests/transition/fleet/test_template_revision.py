"""The fleet keeps the spec of a template before the first pod that is made from it."""

import pytest
from sandfleet_operator.api.kube import CONTROLLER_REVISION, POD, SANDBOX_TEMPLATE, Ref, failure
from sandfleet_operator.plan.pods import names
from sandfleet_operator.plan.pods.revision import is_genuine
from support.fakes.kube_memory import Before
from support.kubernetes.world import TEAM, World, pool_object, template_object


@pytest.fixture
async def world():
    async with World() as made:
        await made.add(template_object(), pool_object(size=4))
        yield made


def made(kube, kind):
    return [number for number, write in enumerate(kube.writes) if write.verb == "create" and write.ref.kind == kind]


def revisions(world):
    return {ref.name: obj for ref, obj in world.cluster.objects.items() if ref.kind == CONTROLLER_REVISION}


def named(pods):
    return {pod["metadata"]["annotations"].get(names.TEMPLATE_REVISION) for pod in pods}


async def test_one_revision_is_made_before_all_pods_of_a_template(world):
    kube = world.client()
    await world.fleet(kube)
    await world.until(lambda: len(world.pods("warm")) == 4)
    (first,) = made(kube, CONTROLLER_REVISION)
    assert first < min(made(kube, POD))
    assert named(world.pods()) == set(revisions(world))
    assert all(map(is_genuine, revisions(world).values()))


async def test_an_edited_template_has_another_revision_and_so_has_one_that_was_turned_back(world):
    await world.fleet()
    await world.until(lambda: len(world.pods("warm")) == 4)
    (before,) = revisions(world)
    image = world.cluster.objects[Ref(SANDBOX_TEMPLATE, TEAM, "python")]["spec"]["image"]
    await world.kube.merge(Ref(SANDBOX_TEMPLATE, TEAM, "python"), {"spec": {"image": image.replace(":1", ":2")}})
    await world.until(lambda: len(world.pods("warm")) == 4 and before not in named(world.pods()))
    assert len(revisions(world)) == 2
    await world.kube.delete(Ref(CONTROLLER_REVISION, TEAM, before))
    await world.kube.merge(Ref(SANDBOX_TEMPLATE, TEAM, "python"), {"spec": {"image": image}})
    await world.until(lambda: len(world.pods("warm")) == 4 and named(world.pods()) == {before})
    assert before in revisions(world)


async def test_a_pool_fills_without_the_right_to_keep_specs(world):
    kube = world.client()
    refused = failure("create", 403, {"reason": "Forbidden", "message": "no"})
    kube.fault = lambda write: Before(refused) if write.ref.kind == CONTROLLER_REVISION else None
    await world.fleet(kube)
    await world.until(lambda: len(world.pods("warm")) == 4)
    assert revisions(world) == {}

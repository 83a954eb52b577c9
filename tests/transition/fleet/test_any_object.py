"""Whatever stands in an object, it stops no other one: the fleet serves on, and so does the next leader."""

import asyncio
import json
import logging
import os

import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st
from sandfleet_operator.api.kube import CODE_SANDBOX, NODE, PERSISTENT_VOLUME_CLAIM, POD, SANDBOX_POOL, Ref
from sandfleet_operator.plan.pods import names
from support.kubernetes.any_json import PLACES, RECORD, put
from support.kubernetes.world import LEASE_REF, TEAM, World, pool_object, sandbox_object, template_object
from transition.fake_time import FakeLoop

EXAMPLES = int(os.environ.get("SANDFLEET_EXAMPLES", "25"))
EPOCH = 1_800_000_000.0
CLAIMED, WARM, OBJECT, DECLARED = "claimed pod", "warm pod", "CodeSandbox of a claim", "declared CodeSandbox"
OBJECTS = st.sampled_from([CLAIMED, WARM, OBJECT, DECLARED, "node", "pool", "volume claim", "Lease"])
HOLDER = ("annotations", names.CLAIM, json.dumps({**RECORD, "holder": ["h"]}))
FENCING = ("annotations", names.CLAIM, json.dumps({**RECORD, "fencing": "x"}))
BAD_LIST = ("status", "conditions", [None])
SERVED = ("annotations", "sandfleet.io/served", "[]")


def world():
    return World(nodes=2, clock=lambda: EPOCH + asyncio.get_running_loop().time())


def meant(here, what, sandbox):
    pod = sandbox.sandbox_id.partition("/")[2]
    name = here.cluster.objects[Ref(POD, TEAM, pod)]["metadata"]["labels"][names.SANDBOX]
    return {
        CLAIMED: Ref(POD, TEAM, pod),
        WARM: Ref(POD, TEAM, here.pods("warm")[0]["metadata"]["name"]),
        OBJECT: Ref(CODE_SANDBOX, TEAM, name),
        DECLARED: Ref(CODE_SANDBOX, TEAM, "mine"),
        "node": Ref(NODE, "", "node-1"),
        "pool": Ref(SANDBOX_POOL, TEAM, "other"),
        "volume claim": Ref(PERSISTENT_VOLUME_CLAIM, TEAM, names.workspace_claim_name(pod)),
        "Lease": LEASE_REF,
    }[what]


async def story(what, place):
    async with world() as here:
        await here.add(template_object(), pool_object(size=3), pool_object("other", size=1), sandbox_object())
        fleet = await here.fleet()
        bystander = await here.claim(fleet, "bystander")
        victim = await here.claim(fleet, "victim", "other")
        await here.until(lambda: len(here.objects()) == 3 and here.pods("warm"))
        here.cluster.edit(meant(here, what, victim), lambda obj: put(obj, place))
        await here.claim(fleet, "another")
        assert not fleet.task.done()
        await here.kill(fleet)
        await here.until(lambda: here.pods("warm"))
        leader = await here.fleet()
        # The takeover waits for no object.
        assert leader.scheduler.inventory.of_session(bystander.claim.key) is not None
        assert (await here.claim(leader, "bystander")).sandbox_id == bystander.sandbox_id
        await here.claim(leader, "yet-another")
        assert not leader.task.done()


def play(what, place):
    with asyncio.Runner(loop_factory=FakeLoop) as runner:
        runner.run(story(what, place))


@pytest.mark.slow
@settings(
    derandomize=True,
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    # A failed example is small already, and one story takes half a second.
    phases=(Phase.explicit, Phase.generate),
)
@given(OBJECTS, PLACES)
@example(CLAIMED, HOLDER)
@example(CLAIMED, FENCING)
@example(WARM, FENCING)
@example(OBJECT, HOLDER)
@example(DECLARED, FENCING)
@example(CLAIMED, BAD_LIST)
@example("node", BAD_LIST)
@example("node", ("status", "conditions", [{"type": "Ready", "lastTransitionTime": 1}]))
@example("Lease", SERVED)
def test_any_json_in_any_object_leaves_all_others_served(what, place):
    play(what, place)


@pytest.mark.parametrize("place", [BAD_LIST, ("status", "conditions", 1)])
async def test_an_unreadable_object_is_counted_and_logged_once(place, caplog):
    async with world() as here:
        await here.add(template_object(), pool_object())
        fleet = await here.fleet()
        with caplog.at_level(logging.ERROR):
            for number in range(3):
                here.cluster.edit(Ref(NODE, "", "node-1"), lambda obj: put(obj, place))
                here.cluster.edit(
                    Ref(NODE, "", "node-1"), lambda obj, number=number: put(obj, ("labels", "again", str(number)))
                )
            intake = fleet._store.intake
            await here.until(lambda: intake.count >= 4)
        assert [str(ref) for ref in intake.errors] == ["nodes/node-1"]
        assert len([one for one in caplog.records if "node-1" in one.getMessage()]) == 1
        here.cluster.edit(Ref(NODE, "", "node-1"), lambda obj: obj.update(status={}))
        await here.until(lambda: not intake.errors)

"""Whatever stands in an object, it stops no other one: the operator goes on with all other sandboxes."""

import asyncio
import os

import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st
from sandfleet_operator.api.kube import CODE_SANDBOX, NETWORK_POLICY, NODE, PERSISTENT_VOLUME_CLAIM, POD, Ref
from sandfleet_operator.plan.pods import names
from support.kubernetes.any_json import PLACES, put
from transition.fake_time import run
from transition.world import NAME, NAMESPACE, World

EXAMPLES = int(os.environ.get("SANDFLEET_EXAMPLES", "25"))
OBJECTS = {
    "CodeSandbox": Ref(CODE_SANDBOX, NAMESPACE, NAME),
    "pod": Ref(POD, NAMESPACE, NAME),
    "volume claim": Ref(PERSISTENT_VOLUME_CLAIM, NAMESPACE, f"workspace-{NAME}"),
    "policy": Ref(NETWORK_POLICY, NAMESPACE, names.class_policy("python")),
    "node": Ref(NODE, "", "node-2"),
}
BAD_LIST = ("status", "conditions", [None])
NO_NAME = ("ownerReferences", "", [{"kind": "CodeSandbox", "uid": "u"}])


async def story(what, place):
    async with World() as world:
        await world.make(NODE, "node-2")
        await world.make_sandbox()
        await world.make_sandbox("bystander")
        await world.until_ready()
        await world.until_ready("bystander")
        with world.by_hand():
            world.cluster.edit(OBJECTS[what], lambda obj: put(obj, place))
        await world.make_sandbox("another")
        await world.until_ready("another")
        # The next process lists everything before it works.
        world.end_operator()
        await asyncio.sleep(30)
        await world.make_sandbox("yet-another")
        await world.until_ready("yet-another")
        assert world.says("Ready", name="bystander")
        assert world.lives == 2
        assert not [one for one in world.cluster.wrong if "ended by itself" in one]


@pytest.mark.slow
@settings(
    derandomize=True,
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=(Phase.explicit, Phase.generate),
)
@given(st.sampled_from(sorted(OBJECTS)), PLACES)
@example("node", BAD_LIST)
@example("pod", BAD_LIST)
@example("pod", NO_NAME)
@example("volume claim", NO_NAME)
@example("policy", NO_NAME)
@example("CodeSandbox", ("status", "restarts", "x"))
@example("CodeSandbox", ("annotations", names.BOUND_POD, "/"))
def test_any_json_in_any_object_leaves_all_others_alone(what, place):
    run(story(what, place))

"""Scenarios of a namespace with a queue. The scenario plays the fleet, which decides who is admitted."""

from typing import Any

from sandfleet_operator.api.kube import CODE_SANDBOX, PERSISTENT_VOLUME_CLAIM, POD, SANDBOX_QUEUE, Ref
from sandfleet_operator.api.times import time_text
from transition.workspace_scenarios import CLAIM, SANDBOX, begin
from transition.world import NAME, NAMESPACE, World

# More than any template asks for.
AMOUNT = {"cpu": "100", "memory": "1Ti"}


async def make_queue(world: World, name: str = "default") -> None:
    await world.make(SANDBOX_QUEUE, name, spec={"nominalQuota": {"sandboxes": 1}})


async def decide(world: World, state: str, name: str = NAME, queue: str = "default", **why: Any) -> None:
    said = {
        "queue": queue,
        "state": state,
        "time": time_text(world.clock()),
        **AMOUNT,
        "reason": None,
        "message": None,
        **why,
    }
    await world.user.merge(Ref(CODE_SANDBOX, NAMESPACE, name), {"status": {"admission": said}}, "status")


async def waits_in_its_queue(world: World) -> None:
    await make_queue(world)
    await world.make_sandbox()
    await world.until(lambda: world.reason() == "WaitingForAdmission", "held by its queue")
    await decide(world, "Pending", message="1 more sandbox of quota")
    await world.until(lambda: "1 more" in world.message("Admitted"), "told what would let it in")
    assert world.there(POD, NAME) is None


async def admitted_ended_and_admitted_again(world: World) -> None:
    await begin(world, waits_in_its_queue)
    await decide(world, "Admitted")
    await world.until_ready()
    assert world.says("Admitted")
    await decide(world, "Pending", reason="Preempted", message="the owner of the quota needs it")
    # The quota is free when the operator says that the pod is gone.
    await world.until(lambda: world.says("Admitted", "False") and not world.status().get("podUID"), "without a pod")
    assert world.there(POD, NAME) is None
    assert world.there(PERSISTENT_VOLUME_CLAIM, CLAIM.name)
    await decide(world, "Admitted")
    await world.until_ready()


async def goes_on_under_a_new_queue(world: World) -> None:
    """A pod from before the queue; its next pod needs an admission."""
    await world.make_sandbox()
    await world.until_ready()
    await make_queue(world)
    await world.until(lambda: world.says("Admitted", "False"), "seen by its queue")
    assert world.says("Ready")
    await world.user.delete(Ref(POD, NAMESPACE, NAME))
    await world.until(lambda: world.reason() == "WaitingForAdmission", "held by its queue")
    await decide(world, "Admitted")
    await world.until_ready(restarts=1)


async def waits_for_a_queue_that_is_missing(world: World) -> None:
    await world.make_sandbox(queueRef={"name": "team"})
    await world.until(lambda: world.reason() == "QueueNotFound", "told that its queue is missing")
    await make_queue(world, "team")
    await world.until(lambda: world.reason() == "WaitingForAdmission", "held by its queue")
    await decide(world, "Admitted", queue="team")
    await world.until_ready()


async def the_default_queue_is_removed(world: World) -> None:
    await begin(world, waits_in_its_queue)
    await world.user.delete(Ref(SANDBOX_QUEUE, NAMESPACE, "default"))
    await world.until_ready()
    assert not [one for one in world.status()["conditions"] if one["type"] == "Admitted"]
    await world.user.delete(SANDBOX)


QUEUE_SCENARIOS = (
    admitted_ended_and_admitted_again,
    goes_on_under_a_new_queue,
    waits_for_a_queue_that_is_missing,
    the_default_queue_is_removed,
)

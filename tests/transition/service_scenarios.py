"""Scenarios: the status of services while they, their executor and their pod come and go."""

from sandfleet_operator.api.kinds.sandbox import ServiceState, ServiceStatus
from sandfleet_operator.api.kube import POD, SANDBOX_TEMPLATE, Ref
from support.operator.builders import IMAGE
from transition.world import NAME, NAMESPACE, World

DECLARED = [{"name": "db", "command": ["db"]}, {"name": "web", "command": ["web"], "after": ["db"]}]
READY = (
    ServiceStatus(name="db", state=ServiceState.READY, ports=(6379,)),
    ServiceStatus(name="web", state=ServiceState.READY),
)
FAILED = (READY[0], ServiceStatus(name="web", state=ServiceState.FAILED, reason="CrashLoop", message="why", restarts=9))


def shown(world: World, name: str = NAME) -> dict[str, str]:
    return {one["name"]: one["state"] for one in world.status(name).get("services") or ()}


async def serving(world: World) -> None:
    """A sandbox whose template declares two services."""
    await world.make(SANDBOX_TEMPLATE, "serving", spec={"image": IMAGE, "services": DECLARED})
    world.services = READY
    await world.make_sandbox(templateRef={"name": "serving"})
    await world.until_ready()
    await world.until(lambda: shown(world) == {"db": "Ready", "web": "Ready"}, "told that they are ready")


async def services_that_come_and_go(world: World) -> None:
    await serving(world)
    world.services = FAILED
    await world.until(lambda: shown(world)["web"] == "Failed", "told that one is given up")
    world.services = None
    await world.until(lambda: set(shown(world).values()) == {"Unknown"}, "told that the executor does not answer")
    await world.user.delete(Ref(POD, NAMESPACE, NAME))
    await world.until(lambda: not shown(world), "without services")
    world.services = READY
    await world.until_ready(restarts=1)
    await world.until(lambda: shown(world) == {"db": "Ready", "web": "Ready"}, "told of those in the next pod")

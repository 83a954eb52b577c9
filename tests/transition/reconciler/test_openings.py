"""The operator sees the NetworkPolicies of others: it says what they open, and remembers little of them."""

import asyncio

from sandfleet_operator.api.kube import NETWORK_POLICY, Ref
from sandfleet_operator.plan.sandbox.status import MAX_MESSAGE
from sandfleet_operator.reconciler.housekeeping import Housekeeper
from sandfleet_operator.reconciler.operator import Operator
from support.fakes.kube_memory import MemoryKube
from support.operator.builders import SETTINGS
from transition.fake_time import run
from transition.world import NAMESPACE, World

SPEC = {"podSelector": {}, "policyTypes": ["Egress"], "egress": [{}]}


async def others(world: World, name: str = "allow-all", **spec) -> Ref:
    await world.make(NETWORK_POLICY, name, spec={**SPEC, **spec})
    return Ref(NETWORK_POLICY, NAMESPACE, name)


def why(world: World) -> str:
    return next(one["message"] for one in world.status()["conditions"] if one["type"] == "Isolated")


def test_the_status_follows_the_policies_of_others():
    async def go() -> None:
        async with World() as world:
            await world.make_sandbox()
            await world.until_ready()
            await others(world, "nothing", egress=[])
            await others(world, "elsewhere", podSelector={"matchLabels": {"app": "web"}})
            await asyncio.sleep(10)
            assert world.says("Isolated")
            ref = await others(world)
            await world.until(lambda: world.says("Isolated", "False"), "opened")
            assert why(world) == "opened by NetworkPolicy allow-all"
            assert world.says("Ready")
            # Another operator learns it from the list and greets no executor a second time.
            greeted = len(world.greeted)
            world.end_operator()
            await asyncio.sleep(10)
            assert world.says("Isolated", "False")
            await world.user.delete(ref)
            await world.until(lambda: world.says("Isolated"), "closed")
            assert len(world.greeted) == greeted
            await others(world, podSelector={"matchLabels": {"app": "web"}})
            await world.user.merge(ref, {"spec": {"podSelector": {"matchLabels": None}}})
            await world.until(lambda: world.says("Isolated", "False"), "opened by a change")
            await world.user.merge(ref, {"spec": {"egress": []}})
            await world.until(lambda: world.says("Isolated"), "closed by a change")

    run(go())


def test_many_policies_of_others_make_a_short_message():
    async def go() -> None:
        async with World() as world:
            for number in range(40):
                await others(world, f"{number:02}-{'x' * 200}")
            await world.make_sandbox()
            await world.until(lambda: world.says("Isolated", "False") and "OpenedBy" in str(world.status()), "opened")
            await world.until(lambda: "and 37 more" in why(world), "counted")
            assert len(why(world)) <= MAX_MESSAGE

    run(go())


def test_the_operator_remembers_only_what_counts_and_visits_no_namespace_for_it(monkeypatch):
    visited: list[str] = []

    async def visit(_self, namespace: str) -> None:
        visited.append(namespace)

    monkeypatch.setattr(Housekeeper, "namespace", visit)

    async def go() -> None:
        async with World() as world:
            world.end_operator()
            await world.user.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}})
            for number in range(20):
                meta = {"namespace": "other", "name": f"p-{number}", "annotations": {"much": "x" * 5000}}
                spec = {**SPEC, "egress": [{"to": []}] if number else []}
                policy = {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": meta, "spec": spec}
                await world.user.create(policy)
            operator = Operator(
                MemoryKube(world.cluster), SETTINGS, greet=world._greet, ask=world._answer, keys=lambda: "{}",
                leading=lambda: 1, clock=world.clock,
            )  # fmt: skip
            await operator.resync()
            known = list(operator.store.all(NETWORK_POLICY, "other"))
            assert len(known) == 19
            assert max(len(str(one)) for one in known) < 400
            rounds = asyncio.create_task(operator.queue.run())
            await asyncio.sleep(5)
            rounds.cancel()
            await asyncio.gather(rounds, return_exceptions=True)
            await operator.close()

    run(go())
    assert NAMESPACE in visited
    assert "other" not in visited

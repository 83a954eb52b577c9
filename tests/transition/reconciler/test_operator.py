"""The operator on the cluster in memory, under faults of its environment."""

import asyncio
from contextlib import suppress

import pytest
from sandfleet_operator.api.kube import (
    CODE_SANDBOX,
    CONFIG_MAP,
    EVENT,
    NETWORK_POLICY,
    NODE,
    PERSISTENT_VOLUME_CLAIM,
    POD,
    SANDBOX_POOL,
    SANDBOX_TEMPLATE,
    Expired,
    Ref,
    failure,
)
from sandfleet_operator.cluster.lease import NotLeadingError
from sandfleet_operator.plan.pods import names
from sandfleet_operator.plan.sandbox.observed import Contact
from sandfleet_operator.reconciler import waking
from sandfleet_operator.reconciler.operator import Operator
from sandfleet_operator.reconciler.reconcile import Key
from support.fakes.kube_memory import Before, MemoryKube
from support.operator.builders import IMAGE, SETTINGS
from transition import scenarios, world
from transition.fake_time import run
from transition.world import NAME, NAMESPACE, World

QUOTA = {"reason": "Forbidden", "message": 'pods "demo" is forbidden: exceeded quota: small'}


@pytest.mark.parametrize("kind", [POD, PERSISTENT_VOLUME_CLAIM, NETWORK_POLICY, CONFIG_MAP])
def test_a_refusal_is_reported_and_retried_now_and_then(kind):
    async def go() -> None:
        here = World()
        refusing = True

        def refuse(_number, write):
            return Before(failure("create", 403, QUOTA)) if refusing and write.ref.kind == kind else None

        here.fault = refuse
        async with here:
            await here.make_sandbox()
            await here.until(lambda: here.reason() == "QuotaExceeded", "told why")
            before = len(here.writes)
            await asyncio.sleep(60)
            # Every five seconds, and what a namespace has in common after pauses that double.
            assert len(here.writes) - before <= 13 + 2 * 8
            refusing = False
            await here.until_ready()
            assert here.cluster.wrong == []

    run(go())


def test_an_api_server_that_fails_for_minutes_is_not_hammered():
    async def go() -> None:
        here = World(lambda _number, _write: Before(failure("write", 500, {})))
        async with here:
            await here.make_sandbox()
            await asyncio.sleep(180)
            assert len(here.writes) < 40
            here.fault = lambda _number, _write: None
            await here.until_ready()

    run(go())


def test_a_resync_finds_what_the_watches_missed(monkeypatch):
    async def deaf(*_: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(world, "watch", deaf)
    monkeypatch.setattr(Operator, "follow", deaf)

    async def go() -> None:
        async with World() as here:
            await asyncio.sleep(1)
            await here.make_sandbox()
            await here.until(lambda: here.there(POD, NAME), "given a pod")

    run(go())


@pytest.mark.parametrize(
    ("kind", "others"), [(CODE_SANDBOX, True), (CODE_SANDBOX, False), (POD, True), (SANDBOX_TEMPLATE, True)]
)
def test_what_is_deleted_while_a_watch_cannot_go_on_is_seen_long_before_a_resync(monkeypatch, kind, others):
    """Also the last CodeSandbox, after which Kopf's list shows none."""

    async def like_kopf(api, operator):
        operators.append(operator)
        while True:
            with suppress(Expired):
                await watch_once(api, operator)

    watch_once, operators = world.watch, []
    monkeypatch.setattr(world, "watch", like_kopf)

    async def go() -> None:
        async with World() as here:
            if others:
                await here.make_sandbox("other", templateRef={"name": "closed"})
            await here.make_sandbox()
            await here.until_ready()
            await asyncio.sleep(5)
            ref = Ref(kind, NAMESPACE, "python" if kind == SANDBOX_TEMPLATE else NAME)
            here.cluster.expire()
            # No watch reads further than the sign that it has expired.
            here.cluster.remove(ref, 0)
            uid = (operators[0].store.get(ref) or {})["metadata"]["uid"]
            began = here.clock()
            await here.until(lambda: operators[0].store.has_gone(uid), "seen")
            assert here.clock() - began < 5
            assert here.cluster.wrong == []

    run(go())


def test_nodes_that_change_together_cost_one_look_at_all_pods(monkeypatch):
    looks, nodes = [], [f"late-{number}" for number in range(5)]

    def look(changed, _store):
        looks.append(sorted(changed))
        return ()

    def ready(node):
        node["status"] = {"conditions": [{"type": "Ready", "status": "True"}]}

    async def go() -> None:
        async with World() as here:
            for name in nodes:
                await here.make(NODE, name)
            await here.settle()
            monkeypatch.setattr(waking, "on_nodes", look)
            for name in nodes:
                here.cluster.edit(Ref(NODE, "", name), ready)
            await here.until(lambda: looks, "looked for")
            assert looks == [nodes]

    run(go())


def test_greeting_a_replaced_pod_delays_no_sandbox():
    async def go() -> None:
        async with World() as here:
            answering = here._greet
            asked: list[str] = []

            async def greet(sandbox, action) -> Contact:
                asked.append(action.pod_uid)
                if len(asked) == 1:
                    # No server listens there.
                    await asyncio.sleep(300)
                return await answering(sandbox, action)

            here._greet = greet
            here.end_operator()
            await here.make_sandbox()
            await here.until(lambda: asked, "greeted")
            began = here.clock()
            await here.user.delete(Ref(POD, NAMESPACE, NAME))
            await here.until_ready(restarts=1)
            assert here.clock() - began < 10
            assert len(asked) == 2

    run(go())


def test_a_sandbox_created_while_its_namespace_is_cleaned_up_gets_its_policy_first():
    """A sandbox appears at each write of the cleanup after the last sandbox, and right after it."""

    async def go(kind) -> None:
        made: list[asyncio.Task[None]] = []

        async def second():
            await here.make_sandbox("second", templateRef={"name": "closed"})
            await here.make(SANDBOX_TEMPLATE, "closed", spec={"image": IMAGE})

        def come(_number, write):
            if write.verb == "delete" and write.ref.kind == kind and not made:
                made.append(asyncio.create_task(second()))

        here = World(come)
        async with here:
            await scenarios.delete(here)
            await here.until(lambda: made, "left")
            await here.until_ready("second")
            await here.settle()
            assert here.cluster.wrong == []
            assert here.there(CONFIG_MAP, names.KEYS_CONFIG_MAP)
            assert here.there(NETWORK_POLICY, names.DEFAULT_DENY)

    for kind in (CONFIG_MAP, NETWORK_POLICY):
        run(go(kind))


def test_a_corrected_template_lets_its_sandboxes_start():
    async def go() -> None:
        async with World() as here:
            await here.make_sandbox("demo", templateRef={"name": "later"})
            await here.until(lambda: here.reason() == "TemplateNotFound", "told why")
            python = here.cluster.objects[Ref(SANDBOX_TEMPLATE, NAMESPACE, "python")]
            await here.make(SANDBOX_TEMPLATE, "later", spec={**python["spec"], "image": "registry.example/other:1"})
            await here.until(lambda: here.reason() == "ImageNotAllowed", "told why")
            await here.user.merge(Ref(SANDBOX_TEMPLATE, NAMESPACE, "later"), {"spec": python["spec"]})
            await here.until_ready()

    run(go())


def test_a_sandbox_reports_a_missing_pool_until_it_exists():
    async def go() -> None:
        async with World() as here:
            await here.make_sandbox(poolRef={"name": "fast"})
            await here.until(lambda: here.reason() == "PoolNotFound", "told why")
            await here.make(SANDBOX_POOL, "fast", spec={"templateRef": {"name": "python"}, "replicas": 1})
            await here.until(lambda: here.reason() == "WaitingForClaim", "waiting for the pool")
            await here.user.delete(Ref(SANDBOX_POOL, NAMESPACE, "fast"))
            await here.until(lambda: here.reason() == "PoolNotFound", "told again")

    run(go())


def test_a_resync_deletes_an_orphaned_volume_claim():
    async def go() -> None:
        async with World() as here:
            await scenarios.cold_start(here)
            # A user removes the owner reference while no operator watches, and deletes the sandbox.
            here.end_operator()
            here.cluster.edit(scenarios.CLAIM, lambda claim: claim["metadata"].pop("ownerReferences"))
            await here.user.delete(scenarios.SANDBOX)
            await here.until(lambda: not here.there(POD, NAME), "without a pod")
            assert scenarios.CLAIM in here.cluster.objects
            await here.until(lambda: scenarios.CLAIM not in here.cluster.objects, "without the claim")

    run(go())


def test_an_operator_that_does_not_lead_writes_nothing():
    async def go() -> None:
        async with World(lambda _number, _write: None) as here:
            here.end_operator()
            await here.make_sandbox()
            api = MemoryKube(here.cluster)
            deposed = Operator(
                api,
                SETTINGS,
                greet=here._greet,
                ask=here._answer,
                keys=lambda: "{}",
                leading=lambda: None,
                clock=here.clock,
            )
            await deposed.resync()
            for key in (
                Key("sandbox", NAMESPACE, NAME),
                Key("namespace", NAMESPACE),
                Key("template", NAMESPACE, "python"),
            ):
                with pytest.raises(NotLeadingError):
                    await deposed._work(key)
            assert api.writes == []
            await deposed.close()

    run(go())


def test_an_unimportant_change_is_written_after_a_delay():
    async def go() -> None:
        async with World() as here:
            await scenarios.cold_start(here)
            await here.settle()
            before = len(here.writes)
            pod = Ref(POD, NAMESPACE, NAME)
            here.cluster.edit(pod, lambda obj: obj["status"]["containerStatuses"][0].update(imageID="sha256:2"))
            await here.until(lambda: here.status().get("imageDigest") == "sha256:2", "told of the image")
            await here.settle()
            assert len(here.writes) == before + 1

    run(go())


def test_an_unimportant_change_is_written_with_the_next_important_one():
    """A pod that gets its address is about to be ready, so the write waits however long ago the last one was."""

    async def go() -> None:
        async with World() as here:
            await scenarios.cold_start(here)
            await here.settle()
            await asyncio.sleep(600)
            before = len(here.writes)
            pod = Ref(POD, NAMESPACE, NAME)
            here.cluster.edit(pod, lambda obj: obj["status"]["containerStatuses"][0].update(imageID="sha256:2"))
            await asyncio.sleep(1)
            await here.change(operatingMode="Suspended")
            await here.until(lambda: here.says("Suspended"), "suspended")
            told = [write for write in here.writes[before:] if "codesandboxes" in write]
            assert len(told) == 2, "going and gone"

    run(go())


def test_the_status_carries_the_fencing_number_of_its_writer():
    async def go() -> None:
        async with World() as here:
            await scenarios.cold_start(here)
            assert here.status()["fencing"] == 1
            here.end_operator()
            await asyncio.sleep(5)
            # Nothing has changed, so that nothing was written.
            assert here.status()["fencing"] == 1
            await here.change(operatingMode="Suspended")
            await here.until(lambda: here.says("Suspended"), "suspended")
            assert here.status()["fencing"] == 2

    run(go())


def test_an_unwritable_event_delays_nothing():
    async def go() -> None:
        refuse = Before(failure("create", 403, {"reason": "Forbidden"}))
        here = World(lambda _number, write: refuse if write.ref.kind == EVENT else None)
        async with here:
            await scenarios.executor_crash(here)
            assert here.cluster.wrong == []

    run(go())


def test_sandboxes_do_not_wait_for_one_another():
    async def go() -> None:
        async with World() as here:
            for number in range(20):
                await here.make_sandbox(f"s-{number}")
            for number in range(20):
                await here.until_ready(f"s-{number}")
            assert here.clock() - world.EPOCH < 10
            for number in range(20):
                await here.user.delete(Ref(CODE_SANDBOX, NAMESPACE, f"s-{number}"))
            await here.settle()
            left = {str(ref.kind) for ref in here.cluster.objects if ref.namespace}
            templates_and_walls = {"configmaps", "networkpolicies.networking.k8s.io", "sandboxtemplates.sandfleet.io"}
            templates_and_walls.add("controllerrevisions.apps")
            assert left == {"events"} | templates_and_walls

    run(go())

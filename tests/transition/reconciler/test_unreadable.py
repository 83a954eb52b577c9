"""CodeSandboxes that the operator cannot read: their status says so, and everything else goes on."""

import pytest
from sandfleet_operator.api.kube import CODE_SANDBOX, POD, SANDBOX_TEMPLATE, Ref
from sandfleet_operator.plan.sandbox.unreadable import named_workspaces, unreadable_conditions
from transition.fake_time import run
from transition.world import NAME, NAMESPACE, World

# Fields as a newer version, or a person without a schema, may write them.
UNREADABLE = [
    ({"operatingMode": "Hibernated"}, "cannot read spec.operatingMode: 'Hibernated' is none of Running, Suspended"),
    ({"env": "A=1"}, "cannot read spec.env: a text stands where a list should be"),
    ({"lifetimeSeconds": "1h"}, "cannot read spec.lifetimeSeconds: a text stands where a whole number should be"),
    ({"templateRef": None}, "cannot read spec: exactly one of templateRef and inline has to be there"),
]


def said(world: World, kind: str, name: str = NAME) -> dict:
    return next(one for one in world.status(name)["conditions"] if one["type"] == kind)


@pytest.mark.parametrize(("spec", "why"), UNREADABLE)
def test_an_unreadable_sandbox_says_so_and_another_one_starts(spec, why):
    async def go() -> None:
        async with World() as world:
            await world.make_sandbox(**spec)
            await world.make_sandbox("other")
            await world.until_ready("other")
            await world.until(lambda: world.reason() == "Unreadable", "unreadable")
            for kind, holds in (("Ready", "Unknown"), ("Degraded", "True")):
                one = said(world, kind)
                assert (one["status"], one["reason"], one["message"]) == (holds, "Unreadable", why)
            assert world.there(POD, NAME) is None
            written = len(world.writes)
            await world.settle()
            assert len(world.writes) == written
            corrected = {"operatingMode": "Running", "env": None, "lifetimeSeconds": None}
            await world.change(templateRef={"name": "python"}, **corrected)
            await world.until_ready()
            assert world.says("Degraded", "False")

    run(go())


def test_a_running_sandbox_that_becomes_unreadable_keeps_its_pod_and_is_ready_again_when_corrected():
    async def go() -> None:
        async with World() as world:
            await world.make_sandbox()
            await world.until_ready()
            pod, greeted = world.pod_of(), len(world.greeted)
            await world.change(operatingMode="Hibernated")
            await world.until(lambda: world.reason() == "Unreadable", "unreadable")
            assert said(world, "Isolated")["status"] == "True"
            await world.change(operatingMode="Running")
            await world.until_ready()
            assert world.pod_of() == pod
            assert len(world.greeted) == greeted

    run(go())


def test_a_suspended_unreadable_sandbox_keeps_its_workspace_from_others():
    async def go() -> None:
        async with World() as world:
            await world.make_sandbox(workspace={"retention": "Retain"})
            await world.until_ready()
            await world.change(operatingMode="Suspended")
            await world.until(lambda: world.says("Suspended"), "suspended")
            await world.change(operatingMode="Hibernated")
            await world.until(lambda: world.reason() == "Unreadable", "unreadable")
            await world.make_sandbox("thief", workspace={"claimName": f"workspace-{NAME}"})
            await world.until(lambda: world.reason("thief") == "WorkspaceInUse", "refused")
            assert world.there(POD, "thief") is None

    run(go())


def test_an_unreadable_template_is_named_by_its_sandboxes():
    async def go() -> None:
        async with World() as world:
            await world.make_sandbox()
            await world.user.merge(Ref(SANDBOX_TEMPLATE, NAMESPACE, "python"), {"spec": {"contracts": ["Watched"]}})
            await world.until(lambda: world.reason() == "TemplateInvalid", "refused")

    run(go())


AT = 1_700_000_000.0
BEFORE = {"type": "Ready", "status": "Unknown", "lastTransitionTime": "2020-01-01T00:00:00Z"}
MALFORMED = [None, [], "text", {"conditions": "text"}, {"conditions": ["text", {"type": ["Ready"]}, {}]}]


@pytest.mark.parametrize("status", MALFORMED)
def test_a_status_of_any_shape_gets_the_conditions(status):
    found = unreadable_conditions({"metadata": {"generation": 3}, "status": status}, "why", AT)
    told = {one["type"]: (one["status"], one["observedGeneration"]) for one in found if "observedGeneration" in one}
    assert told == {"Ready": ("Unknown", 3), "Degraded": ("True", 3)}


def test_conditions_keep_their_transition_time_and_are_written_once():
    obj = {"metadata": {"generation": 3}, "status": {"conditions": [BEFORE]}}
    found = unreadable_conditions(obj, "why", AT)
    times = {one["type"]: one["lastTransitionTime"] for one in found}
    assert times == {"Ready": BEFORE["lastTransitionTime"], "Degraded": "2023-11-14T22:13:20Z"}
    assert unreadable_conditions({**obj, "status": {"conditions": found}}, "why", AT + 60) is None
    assert unreadable_conditions({**obj, "status": {"conditions": found}}, "another", AT + 60) is not None


@pytest.mark.parametrize(
    ("obj", "names"),
    [
        ({}, set()),
        ({"status": [], "spec": "text"}, set()),
        ({"status": {"workspaceClaimName": ["a"]}, "spec": {"workspace": "text"}}, set()),
        ({"status": {"workspaceClaimName": "a"}, "spec": {"workspace": {"claimName": "b"}}}, {"a", "b"}),
    ],
)
def test_workspaces_of_an_unreadable_object(obj, names):
    assert named_workspaces(obj) == names


def test_the_object_may_be_deleted():
    async def go() -> None:
        async with World() as world:
            await world.make_sandbox(operatingMode="Hibernated")
            await world.until(lambda: world.reason() == "Unreadable", "unreadable")
            await world.user.delete(Ref(CODE_SANDBOX, NAMESPACE, NAME))
            await world.settle()
            assert world.there(CODE_SANDBOX, NAME) is None

    run(go())

"""A sandbox keeps the template's spec that it first ran with, over edits, deletions and forgeries of the template."""

import asyncio
from collections.abc import Awaitable, Callable
from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest
from sandfleet_operator.api.kinds.sandbox import SandboxSpec
from sandfleet_operator.api.kube import CODE_SANDBOX, CONTROLLER_REVISION, POD, SANDBOX_TEMPLATE, Json, Ref, failure
from sandfleet_operator.plan.pods import names
from sandfleet_operator.plan.pods.merge import effective
from sandfleet_operator.plan.pods.podspec import spec_hash
from sandfleet_operator.plan.pods.revision import is_genuine, kept_spec, named_revision, revision_of
from sandfleet_operator.reconciler.housekeeping import REVISION_SECONDS
from sandfleet_operator.reconciler.operator import RESYNC_SECONDS
from support.fakes.kube_memory import Before
from support.operator.builders import IMAGE, SETTINGS
from transition import builders
from transition import world as worlds
from transition.fake_time import run
from transition.nodes import ended, evicted
from transition.world import NAME, NAMESPACE, World

OTHER = IMAGE.replace(":1", ":2")
TEMPLATE = Ref(SANDBOX_TEMPLATE, NAMESPACE, "python")
Step = Callable[[World], Awaitable[None]]


def image(world: World, name: str = NAME) -> str:
    ref = world.pod_of(name)
    assert ref is not None
    return str(world.cluster.objects[ref]["spec"]["containers"][0]["image"])


def revisions(world: World) -> list[Json]:
    return [obj for ref, obj in world.cluster.objects.items() if ref.kind == CONTROLLER_REVISION]


async def edited(world: World) -> None:
    await world.user.merge(TEMPLATE, {"spec": {"image": OTHER}})


async def deleted(world: World) -> None:
    await world.user.delete(TEMPLATE)
    world.cluster.collect()


async def made_unreadable(world: World) -> None:
    await world.user.merge(TEMPLATE, {"spec": {"contracts": ["Watched"]}})


async def made_again(world: World) -> None:
    await deleted(world)
    await world.make(SANDBOX_TEMPLATE, "python", spec={"image": OTHER})


async def crash(world: World) -> None:
    world.cluster.edit(world.pod_of(), lambda pod: ended(pod, 1))


async def eviction(world: World) -> None:
    world.cluster.edit(world.pod_of(), evicted)


async def restart_of_the_operator(world: World) -> None:
    world.end_operator()
    await crash(world)


async def suspend_and_resume(world: World) -> None:
    await world.change(operatingMode="Suspended")
    await world.until(lambda: world.says("Suspended"), "suspended")
    await world.change(operatingMode="Running")


@pytest.mark.parametrize("lost", [edited, deleted, made_unreadable, made_again])
@pytest.mark.parametrize("ending", [crash, eviction, suspend_and_resume, restart_of_the_operator])
def test_a_sandbox_comes_back_from_the_spec_that_it_had(lost: Step, ending: Step) -> None:
    async def go() -> None:
        async with World() as world:
            await world.make_sandbox()
            await world.until_ready()
            kept = world.status()["templateRevision"]
            assert [one["metadata"]["name"] for one in revisions(world)] == [kept]
            first = world.status()["podUID"]
            await lost(world)
            await world.settle()
            # A pod that runs goes on.
            assert world.says("Ready")
            assert world.says("Degraded", "False")
            await ending(world)
            await world.until(
                lambda: world.says("Ready") and world.status()["podUID"] != first and world.pod_of(), "back"
            )
            assert image(world) == IMAGE
            assert world.status()["templateRevision"] == kept
            assert world.cluster.wrong == []

    run(go())


def test_a_new_sandbox_gets_the_edited_template_and_both_are_kept() -> None:
    async def go() -> None:
        async with World() as world:
            await world.make_sandbox()
            await world.until_ready()
            await edited(world)
            await world.make_sandbox("second")
            await world.until_ready("second")
            assert (image(world), image(world, "second")) == (IMAGE, OTHER)
            assert len(revisions(world)) == 2

    run(go())


def test_egress_follows_the_template_and_ends_with_it() -> None:
    async def go() -> None:
        async with World() as world:
            own = {"allow": [{"cidr": "203.0.113.0/25"}]}
            await world.make_sandbox(egress=own)
            await world.make_sandbox("plain")
            await world.until_ready()
            await world.until_ready("plain")
            policies = {names.own_policy(NAME), names.class_policy("python")}
            await deleted(world)
            await world.until(lambda: not policies & {ref.name for ref in world.cluster.objects}, "closed")
            await crash(world)
            await world.until_ready(restarts=1)
            labels = world.cluster.objects[world.pod_of()]["metadata"]["labels"]
            assert not {names.EGRESS_OWN, names.EGRESS_CLASS} & labels.keys()
            assert not policies & {ref.name for ref in world.cluster.objects}

    run(go())


def _no_image(pod: Json) -> None:
    if pod["spec"]["containers"][0]["image"] == IMAGE:
        pod["spec"]["nodeName"] = worlds.NODE
        state = {"waiting": {"reason": "ImagePullBackOff", "message": "not found"}}
        pod["status"]["containerStatuses"] = [{"name": "executor", "state": state}]


def test_a_sandbox_that_never_ran_follows_the_corrected_template() -> None:
    async def go() -> None:
        async with World() as world:
            world.nodes.holds_up = _no_image
            await world.make_sandbox()
            await world.until(lambda: world.reason() == "ImagePullFailed", "stuck")
            assert "templateRevision" not in world.status()
            await edited(world)
            await world.until(lambda: world.says("Ready"), "ready")
            assert image(world) == OTHER

    run(go())


async def _forged(world: World, change: Callable[[Json], Any]) -> None:
    """Replaces the kept spec by another object of its name, as its content cannot be edited."""
    (kept,) = revisions(world)
    made = deepcopy(kept)
    change(made)
    await world.user.delete(Ref(CONTROLLER_REVISION, NAMESPACE, kept["metadata"]["name"]))
    made["metadata"] = {key: made["metadata"][key] for key in ("namespace", "name", "labels")}
    await world.user.create(made)


@pytest.mark.parametrize(
    "change",
    [
        lambda obj: obj["data"]["spec"].update(image="registry.example/sandfleet-executor:evil"),
        lambda obj: obj["data"].update(template="closed"),
        lambda obj: obj.update(data={"spec": "text"}),
        lambda obj: obj.pop("data"),
    ],
)
def test_a_forged_spec_is_not_used(change: Callable[[Json], Any]) -> None:
    async def go() -> None:
        async with World() as world:
            await world.make_sandbox()
            await world.until_ready()
            await _forged(world, change)
            await deleted(world)
            await crash(world)
            await world.settle()
            assert world.reason() == "TemplateNotFound"
            pod = world.there(POD, NAME)
            assert pod is None or pod["status"]["phase"] == "Failed"
            await world.make(SANDBOX_TEMPLATE, "python", spec={"image": OTHER})
            await world.until(lambda: world.says("Ready") and world.pod_of(), "ready")
            assert image(world) == OTHER

    run(go())


def test_a_sandbox_starts_without_the_right_to_keep_its_spec() -> None:
    async def go() -> None:
        async with World() as world:
            refused = failure("create", 403, {"reason": "Forbidden", "message": "no"})
            world.fault = lambda _, write: Before(refused) if write.ref.kind == CONTROLLER_REVISION else None
            await world.make_sandbox()
            await world.until_ready()
            assert revisions(world) == []
            await edited(world)
            await crash(world)
            await world.until_ready(restarts=1)
            assert image(world) == OTHER

    run(go())


def test_a_spec_is_removed_when_no_sandbox_and_no_template_has_it() -> None:
    async def go() -> None:
        async with World() as world:
            await world.make_sandbox()
            await world.until_ready()
            await edited(world)
            await asyncio.sleep(2 * (REVISION_SECONDS + RESYNC_SECONDS))
            assert len(revisions(world)) == 1
            await world.user.delete(Ref(CODE_SANDBOX, NAMESPACE, NAME))
            await world.until(lambda: not revisions(world), "removed")

    run(go())


SPEC = {
    "metadata": {"namespace": NAMESPACE, "name": "python"},
    "spec": {"image": IMAGE, "env": [{"name": "A", "value": "\ud800"}]},
}


def test_a_name_follows_from_the_content_alone() -> None:
    made = revision_of(SPEC)
    turned = {**SPEC, "spec": dict(reversed(SPEC["spec"].items()))}
    assert revision_of(turned)["metadata"]["name"] == made["metadata"]["name"]
    assert is_genuine(made)
    assert kept_spec(made, "python").image == IMAGE
    assert kept_spec(made, "other") is None
    assert revision_of({**SPEC, "spec": {"image": OTHER}})["metadata"]["name"] != made["metadata"]["name"]


@pytest.mark.parametrize("text", ["", None, 5, ["sandfleet-a"], "sandfleet-../x", "sandfleet-" + "a" * 201, "other"])
def test_what_names_no_revision(text: object) -> None:
    assert named_revision(text) == ""


NOW_MADE = {"metadata": {"name": "sandfleet-python-now"}}
HASH = spec_hash(effective(builders.TEMPLATE.spec, SandboxSpec(template="python"), SETTINGS), SETTINGS)
LOWERED = SandboxSpec(template="python", lifetime=60.0, envs={"A": "b"})
HASH_OF_LOWERED = spec_hash(effective(builders.TEMPLATE.spec, LOWERED, SETTINGS), SETTINGS)
BEFORE = "sandfleet-python-before"
# What the pod says of its spec and revision, and what the sandbox keeps.
PINS = [
    ("a warm pod of the template before an edit", {names.SPEC_HASH: "another", names.TEMPLATE_REVISION: BEFORE}, BEFORE),
    ("a warm pod that an edit left as it is", {names.SPEC_HASH: HASH, names.TEMPLATE_REVISION: BEFORE}, "sandfleet-python-now"),
    ("a pod of the operator that an edit would not change", {names.SPEC_HASH: HASH_OF_LOWERED, names.TEMPLATE_REVISION: BEFORE}, "sandfleet-python-now"),
    ("a pod of an earlier release, of this template", {names.SPEC_HASH: HASH}, "sandfleet-python-now"),
    ("a pod of an earlier release, of another template", {names.SPEC_HASH: "another"}, ""),
    ("a forged annotation", {names.SPEC_HASH: "another", names.TEMPLATE_REVISION: "../secrets/x"}, ""),
    ("no annotation", {}, ""),
]  # fmt: skip


@pytest.mark.parametrize(("what", "annotations", "kept"), PINS, ids=[row[0] for row in PINS])
def test_which_spec_a_sandbox_keeps(what: str, annotations: dict, kept: str) -> None:
    seen = builders.observed(pod=builders.pod(annotations=annotations), revision=NOW_MADE, revision_there=True)
    seen = builders.with_status(builders.with_spec(seen, envs={"A": "b"}, lifetime=60.0), conditions=())
    seen = replace(seen, sandbox=replace(seen.sandbox, meta=replace(seen.sandbox.meta, created=builders.NOW)))
    made = builders.planned(seen)
    assert builders.ready(made) == "Ready"
    assert made.status.template_revision == kept
    # It is kept from now on, whatever is written on the pod.
    forged = replace(seen, sandbox=replace(seen.sandbox, status=made.status), pod=builders.pod(annotations={names.TEMPLATE_REVISION: "sandfleet-other"}))  # fmt: skip
    assert not kept or builders.planned(forged).status.template_revision == kept


def test_no_spec_is_kept_before_the_pod_is_isolated() -> None:
    seen = builders.new_pod(annotations={names.TEMPLATE_REVISION: BEFORE})
    assert builders.planned(seen).status.template_revision == ""

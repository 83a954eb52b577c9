"""Beginners' mistakes: what `kubectl get csb -o wide` says of each, and that correcting the mistake heals it.

What the schema refuses never becomes an object: its row is what `kubectl apply` answers.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

import pytest
from sandfleet_operator.api import kube
from sandfleet_operator.api.conditions import Reason
from sandfleet_operator.api.kube import CODE_SANDBOX, POD, SANDBOX_POOL, SANDBOX_TEMPLATE, Ref, failure
from support.fakes.kube_memory import Before
from support.operator.builders import IMAGE
from support.operator.crd_schemas import CRDS
from support.operator.crd_strategies import refusals
from transition import world
from transition.fake_time import run
from transition.world import NAME, NAMESPACE, World

Step = Callable[[World], Awaitable[None]]
TEMPLATE = Ref(SANDBOX_TEMPLATE, NAMESPACE, "mistaken")
COLUMNS = {one["name"]: one["jsonPath"] for one in CRDS["CodeSandbox"]["spec"]["versions"][0]["additionalPrinterColumns"]}  # fmt: skip


def shown(here: World) -> dict[str, str]:
    """The row of `kubectl get csb -o wide`: only these two forms of path are in use."""
    sandbox, row = here.there(CODE_SANDBOX, NAME) or {}, {}
    said = {one["type"]: one for one in (sandbox.get("status") or {}).get("conditions", ())}
    for column, path in COLUMNS.items():
        if "@.type" in path:
            row[column] = said.get(path.split('"')[1], {}).get(path.rpartition(".")[2], "")
        else:
            value = sandbox
            for part in path.strip(".").split("."):
                value = (value or {}).get(part)
            row[column] = value
    return row


# What people do.


async def sandbox(here: World, **spec: object) -> None:
    await here.make_sandbox(**{"templateRef": {"name": "mistaken"}, **spec})


async def a_template(here: World, **spec: object) -> None:
    await here.make(SANDBOX_TEMPLATE, "mistaken", spec={"image": IMAGE, **spec})


async def correct(here: World, **spec: object) -> None:
    await here.user.merge(TEMPLATE, {"spec": spec})


async def begin_anew(here: World, **spec: object) -> None:
    """Most fields of a sandbox are immutable, so recreate it."""
    await here.user.delete(Ref(CODE_SANDBOX, NAMESPACE, NAME))
    await here.until(lambda: here.there(CODE_SANDBOX, NAME) is None, "gone")
    here.cluster.collect()
    await sandbox(here, **spec)


async def change(here: World, **spec: object) -> None:
    await here.change(**spec)


# What the cluster does.


def refuses(here: World, kind: kube.Kind, status: int, reason: str, message: str) -> None:
    """The API server does, until the test says otherwise."""
    here.fault = lambda _number, write: (
        Before(failure(f"create {write.ref}", status, {"reason": reason, "message": message})) if write.ref.kind == kind else None
    )  # fmt: skip


async def agrees(here: World) -> None:
    here.fault = lambda _number, _write: None


def waiting(reason: str, message: str) -> Callable[[dict], None]:
    def say(pod: dict) -> None:
        pod["spec"]["nodeName"] = world.NODE
        state = {"waiting": {"reason": reason, "message": message}}
        pod["status"]["containerStatuses"] = [{"name": "executor", "state": state}]

    return say


def unschedulable(message: str) -> Callable[[dict], None]:
    def say(pod: dict) -> None:
        found = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
        pod["status"]["conditions"] = [found]

    return say


def image_of(pod: dict) -> str:
    return str(pod["spec"]["containers"][0]["image"])


@dataclass(frozen=True)
class Mistake:
    """`make` makes the mistake, `mend` corrects it; `setting` prepares the cluster."""

    make: tuple[Step, ...]
    reason: str
    message: str
    mend: tuple[Step, ...]
    setting: Callable[[World], None] = lambda _here: None
    # The sandbox has a pod from a pool when it is mended, which is the fleet's to give.
    ends_as: str = "ExecutorAnswers"
    restarts: int = 0


def node_with(is_so: Callable[[dict], bool], say: Callable[[dict], None]) -> Callable[[World], None]:
    """The report of the kubelet or the scheduler on such pods."""

    def setting(here: World) -> None:
        here.nodes.holds_up = lambda pod: say(pod) if is_so(pod) else None

    return setting


def refusing(kind: kube.Kind, status: int, reason: str, message: str) -> Callable[[World], None]:
    return lambda here: refuses(here, kind, status, reason, message)


async def a_pool(here: World, template: str = "mistaken") -> None:
    await here.make(SANDBOX_POOL, "warm", spec={"templateRef": {"name": template}, "replicas": 1})


async def a_storage_class(here: World) -> None:
    await here.make(kube.STORAGE_CLASS, "fast")


async def no_default_class(here: World) -> None:
    await here.user.delete(Ref(kube.STORAGE_CLASS, "", "local"))


async def a_default_class(here: World) -> None:
    await here.make(kube.STORAGE_CLASS, "local", annotations={"storageclass.kubernetes.io/is-default-class": "true"})


PULL = 'Back-off pulling image "registry.example/sandfleet-executor:no-such-tag"'
QUOTA = 'pods "demo" is forbidden: exceeded quota: small, requested: pods=1, used: pods=2, limited: pods=2'
RUNTIME = 'pods "demo" is forbidden: pod rejected: RuntimeClass "gvisor-strict" not found'
PRIORITY = 'pods "demo" is forbidden: no PriorityClass with name urgent was found'
NOWHERE = "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector."

MISTAKES = {
    "a template that is not there": Mistake(
        (sandbox,), "TemplateNotFound", "cannot make a sandbox: there is no SandboxTemplate 'mistaken' in namespace team-a", (a_template,),
    ),
    "an image that is not allowed": Mistake(
        (partial(a_template, image="docker.io/library/python:3"), sandbox), "ImageNotAllowed",
        "cannot make a sandbox: image 'docker.io/library/python:3' is not on the installation's list (Helm value allowedImages)", (partial(correct, image=IMAGE),),
    ),
    "an image that is not in the registry": Mistake(
        (partial(a_template, image="registry.example/sandfleet-executor:no-such-tag"), sandbox), "ImagePullFailed", f"ImagePullBackOff: {PULL}", (partial(correct, image=IMAGE),),
        node_with(lambda pod: image_of(pod) != IMAGE, waiting("ImagePullBackOff", PULL)), restarts=1,
    ),
    "a runtime class that is not there": Mistake(
        (partial(a_template, runtimeClassName="gvisor-strict"), sandbox), "RuntimeClassNotFound", 'RuntimeClass "gvisor-strict" not found', (agrees,), refusing(POD, 403, "Forbidden", RUNTIME),
    ),
    "a runtime class of another name in the template": Mistake(
        (partial(a_template, runtimeClassName="gvisor-strict"), sandbox), "RuntimeClassNotFound", 'RuntimeClass "gvisor-strict" not found', (partial(correct, runtimeClassName="gvisor"), agrees), refusing(POD, 403, "Forbidden", RUNTIME),
    ),
    "a priority class that is not there": Mistake(
        (partial(a_template, priorityClassName="urgent"), sandbox), "Forbidden", "no PriorityClass with name urgent was found", (agrees,), refusing(POD, 403, "Forbidden", PRIORITY),
    ),
    "a quota that is used up": Mistake((a_template, sandbox), "QuotaExceeded", "exceeded quota: small", (agrees,), refusing(POD, 403, "Forbidden", QUOTA)),
    "a quota of volumes that is used up": Mistake(
        (a_template, sandbox), "QuotaExceeded", "exceeded quota: small", (agrees,), refusing(kube.PERSISTENT_VOLUME_CLAIM, 403, "Forbidden", QUOTA.replace("pods", "persistentvolumeclaims")),
    ),
    "a storage class that is not there": Mistake(
        (partial(a_template, workspace={"storageClassName": "fast"}), sandbox), "StorageClassNotFound", "cannot make a workspace: there is no StorageClass 'fast'", (a_storage_class,),
    ),
    "a cluster without a default storage class": Mistake(
        (no_default_class, a_template, sandbox), "StorageClassNotFound", "cannot make a workspace: no class is named and the cluster has no default one", (a_default_class,),
    ),
    "a secret that is not there": Mistake(
        (partial(a_template, envFrom=[{"secretRef": {"name": "tokens"}}]), sandbox), "SecretNotFound", 'secret "tokens" not found', (partial(correct, envFrom=[]),),
        node_with(lambda pod: "envFrom" in pod["spec"]["containers"][0], waiting("CreateContainerConfigError", 'secret "tokens" not found')), restarts=1,
    ),
    "nodes that are not there": Mistake(
        (partial(a_template, nodeSelector={"zone": "moon"}), sandbox), "Unschedulable", NOWHERE, (partial(correct, nodeSelector={"zone": None}),),
        node_with(lambda pod: "nodeSelector" in pod["spec"], unschedulable(NOWHERE)), restarts=1,
    ),
    "a label of nodes that is none": Mistake(
        (partial(a_template, nodeSelector={"zone": "the moon"}), sandbox), "TemplateInvalid", "cannot use the template: cannot place pods: the value 'the moon' of label 'zone'", (partial(correct, nodeSelector={"zone": None}),),
    ),
    "a pool that is not there": Mistake(
        (a_template, partial(sandbox, poolRef={"name": "warm"})), "PoolNotFound", "cannot take a sandbox from the pool: there is no SandboxPool 'warm' in namespace team-a", (a_pool,), ends_as="WaitingForClaim",
    ),
    "a pool of another template": Mistake(
        (a_template, partial(a_pool, template="python"), partial(sandbox, poolRef={"name": "warm"})), "PoolNotFound", "cannot take a sandbox from the pool: SandboxPool 'warm' is of template 'python', and the sandbox names 'mistaken'",
        (partial(begin_anew, templateRef={"name": "python"}, poolRef={"name": "warm"}),), ends_as="WaitingForClaim",
    ),
    "more memory than the template allows": Mistake(
        (a_template, partial(sandbox, resources={"limits": {"memory": "8Gi"}})), "AboveTemplate", "cannot set resources.limits.memory to 8192Mi: the template allows 2048Mi", (partial(correct, resources={"limits": {"memory": "8Gi"}}),),
    ),
    "less memory than anything can run in": Mistake(
        (a_template, partial(sandbox, resources={"limits": {"memory": "128Mi"}})), "InvalidSpec", "cannot run with resources.limits.memory of 128 MiB: the executor and its runtime need 256 MiB", (begin_anew,),
    ),
    "a longer lifetime than the template allows": Mistake(
        (partial(a_template, maxLifetimeSeconds=3600), partial(sandbox, lifetimeSeconds=7200)), "AboveTemplate", "cannot set lifetimeSeconds to 7200: the template allows 3600", (partial(change, lifetimeSeconds=1800),),
    ),
    "a contract that the template has not": Mistake(
        (a_template, partial(sandbox, contract="Reviewed")), "ContractNotAllowed", "cannot take contract Reviewed: the template allows Autonomous", (partial(correct, contracts=["Autonomous", "Reviewed"]),),
    ),
    "egress that the template does not allow": Mistake(
        (a_template, partial(sandbox, egress={"allow": [{"cidr": "192.0.2.0/24"}]})), "EgressNotAllowed", "cannot allow egress to 192.0.2.0/24 on every port: the template does not allow it", (partial(change, egress=None),),
    ),
    "a template in place where none may be": Mistake(
        (a_template, partial(sandbox, templateRef=None, inline={"image": IMAGE})), "InlineNotAllowed", "cannot use an inline template: the installation allows named templates only (Helm value inline)", (begin_anew,),
    ),
    "a file system in the pod that is larger than the pod": Mistake(
        (partial(a_template, workspace={"ephemeral": True, "size": "8Gi"}), sandbox), "TemplateInvalid", "cannot use the template: an ephemeral workspace needs ephemeral-storage of 8320Mi, and it has 4096Mi",
        (partial(correct, workspace={"ephemeral": False}),),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_seen_in_kubectl_get_and_mending_it_heals(name):
    mistake = MISTAKES[name]

    async def go() -> None:
        here = World()
        mistake.setting(here)
        async with here:
            for step in mistake.make:
                await step(here)
            await here.until(lambda: shown(here)["Reason"] == mistake.reason, f"told {mistake.reason}")
            row = shown(here)
            assert (row["Ready"], row["Restarts"]) == ("False", 0)
            assert mistake.message in row["Message"]
            # It stays so, and nothing is tried over and over.
            before = len(here.writes)
            await asyncio.sleep(30)
            assert (shown(here)["Reason"], mistake.message in shown(here)["Message"]) == (mistake.reason, True)
            assert len(here.writes) - before < 20
            for step in mistake.mend:
                await step(here)

            def healed() -> bool:
                row = shown(here)
                return (row["Reason"], row["Message"]) == (mistake.ends_as, Reason(mistake.ends_as).meaning)

            await here.until(healed, "healed")
            assert shown(here)["Restarts"] == mistake.restarts
            assert here.cluster.wrong == []

    run(go())


def to(cidr: str, **more: object) -> dict:
    return {"templateRef": {"name": "a"}, "egress": {"allow": [{"cidr": cidr, **more}]}}


def of(**spec: object) -> dict:
    return {"templateRef": {"name": "a"}, **spec}


SIZE = "cannot be a size: write 1Mi to 1Pi with a unit, like 512Mi or 2Gi (m means thousandths)"
MEMORY = "cannot be the memory of a sandbox: write 64Mi to 1Pi with a unit, like 512Mi or 2Gi (m means thousandths)"
CIDR = "cannot be a network: write address/bits, like 203.0.113.0/24 or 2001:db8::/32"
LINK_LOCAL = "cannot allow link-local addresses: cloud metadata and the node answer there"
METADATA = "cannot allow this address: a cloud's metadata service answers there"
AT_THE_DOOR = {
    "link-local addresses": (to("169.254.0.0/16"), "spec.egress.allow[0].cidr", LINK_LOCAL, to("203.0.113.0/24")),
    "the metadata service": (to("169.254.169.254/32"), "spec.egress.allow[0].cidr", LINK_LOCAL, to("203.0.113.0/24")),
    "another cloud's metadata service": (to("168.63.129.16/32"), "spec.egress.allow[0].cidr", METADATA, to("168.63.0.0/16")),
    "loopback": (to("127.0.0.0/8"), "spec.egress.allow[0].cidr", "cannot allow loopback: it is the sandbox itself", to("203.0.113.0/24")),
    "a name for a network": (to("example.com"), "spec.egress.allow[0].cidr", CIDR, to("93.184.216.34/32")),
    "an address without bits": (to("10.0.0.1"), "spec.egress.allow[0].cidr", CIDR, to("10.0.0.1/32")),
    "bits behind the prefix": (to("10.0.0.1/8"), "spec.egress.allow[0].cidr", "cannot be a network: bits of the address behind the prefix are set; write the network's first address, like 10.0.0.0/8", to("10.0.0.0/8")),
    "an exception outside": (to("10.0.0.0/8", **{"except": ["11.0.0.0/16"]}), "spec.egress.allow[0].except", "cannot except a network that is not inside of cidr and smaller than it", to("10.0.0.0/8", **{"except": ["10.1.0.0/16"]})),
    "ports the wrong way round": (to("10.0.0.0/8", ports=[{"port": 443, "endPort": 80}]), "spec.egress.allow[0].ports[0].endPort", "cannot be a range of ports: endPort is below port", to("10.0.0.0/8", ports=[{"port": 80, "endPort": 443}])),
    "m for mega": (of(resources={"limits": {"memory": "512m"}}), "spec.resources.limits.memory", MEMORY, of(resources={"limits": {"memory": "512Mi"}})),
    "MB for Mi": (of(workspace={"size": "512MB"}), "spec.workspace.size", SIZE, of(workspace={"size": "512Mi"})),
    "memory without a unit": (of(resources={"limits": {"memory": 512}}), "spec.resources.limits.memory", MEMORY, of(resources={"limits": {"memory": "512M"}})),
    "no cpu at all": (of(resources={"limits": {"cpu": "0"}}), "spec.resources.limits.cpu", 'cannot be an amount of CPU: write 1m to 1000 cores, like 500m, "1.5" or 2', of(resources={"limits": {"cpu": "100m"}})),
    "neither template nor inline": ({}, "spec", "cannot tell what to make: write either templateRef (the name of a SandboxTemplate) or inline, and not both", of()),
    "both": (of(inline={"image": IMAGE}), "spec", "cannot tell what to make: write either templateRef (the name of a SandboxTemplate) or inline, and not both", of()),
    "an image as a link": ({"inline": {"image": "https://a/b"}}, "spec.inline.image", "cannot be an image: write registry/name:tag or registry/name@sha256:digest, without https:// and without blanks", {"inline": {"image": "a/b"}}),
    "a name with capitals": ({"templateRef": {"name": "Python"}}, "spec.templateRef.name", "cannot be a name: write at most 63 of a-z, 0-9 and -, with a letter or digit at both ends", {"templateRef": {"name": "python"}}),
    "a word that is none": (of(operatingMode="Stopped"), "spec.operatingMode", "supported values: Running, Suspended", of(operatingMode="Suspended")),
    "timeouts the wrong way round": (of(executionLimits={"maxTimeoutSeconds": 5, "defaultTimeoutSeconds": 6}), "spec.executionLimits.defaultTimeoutSeconds", "cannot use these timeouts: defaultTimeoutSeconds is above maxTimeoutSeconds", of(executionLimits={"maxTimeoutSeconds": 6})),
    "a variable with a dash": (of(env=[{"name": "MY-KEY"}]), "spec.env[0].name", "cannot be a variable's name: write letters, digits and _, and no digit first", of(env=[{"name": "MY_KEY"}])),
}  # fmt: skip


@pytest.mark.parametrize("name", AT_THE_DOOR)
def test_a_mistake_that_the_schema_can_see_is_refused(name):
    spec, path, message, mended = AT_THE_DOOR[name]
    assert refusals("CodeSandbox", spec) == [f"{path}: {message}"]
    assert refusals("CodeSandbox", mended) == []

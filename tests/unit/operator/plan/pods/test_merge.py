"""A sandbox's owner can lower what its template allows, never raise it."""

import ipaddress
import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from sandfleet_operator.api.conditions import Reason
from sandfleet_operator.api.kinds.template import (
    Contract,
    Egress,
    EgressRule,
    Port,
    Resources,
    Retention,
    SecretEnv,
    Workspace,
)
from sandfleet_operator.api.limits import BOUNDS, TEMPLATE_LIMITS, Limits
from sandfleet_operator.api.table import table
from sandfleet_operator.plan.pods.egress import first_outside
from sandfleet_operator.plan.pods.merge import Effective, Refusal, effective, with_image
from support.examples import examples
from support.operator.builders import EGRESS, GIB, IMAGE, MIB, SETTINGS, a_spec, a_template, opens, pairs

AUTONOMOUS, BROKERED, REVIEWED = Contract
NET = "203.0.113.0/24"


def made(template, spec, settings=SETTINGS) -> Effective:
    result = effective(template, spec, settings)
    assert isinstance(result, Effective), result
    return result


def refused(template, spec, settings=SETTINGS) -> Refusal:
    result = effective(template, spec, settings)
    assert isinstance(result, Refusal), result
    return result


def test_an_empty_spec_gets_the_templates_values() -> None:
    result = made(a_template(max_lifetime=3600.0, envs={"A": "1"}, egress=opens(NET)), a_spec())
    assert (result.image, result.template, result.runtime_class) == (IMAGE, "python", "gvisor")
    assert result.resources == Resources(1.0, 2 * GIB, 4 * GIB)
    assert result.requests == Resources(0.25, 512 * MIB, GIB)
    assert (result.workspace.size, result.workspace.storage_class, result.retention) == (GIB, None, Retention.DELETE)
    assert (result.envs, result.lifetime, result.idle_timeout) == ({"A": "1"}, 3600.0, None)
    assert (result.egress, result.own_egress, result.contract) == (opens(NET), False, AUTONOMOUS)


LOWERED = [
    ("cpu, and the request with it", {"resources": Resources(cpu=0.125)}, lambda r: (r.resources.cpu, r.requests.cpu), (0.125, 0.125)),
    ("cpu above the request", {"resources": Resources(cpu=0.5)}, lambda r: (r.resources.cpu, r.requests.cpu), (0.5, 0.25)),
    ("memory", {"resources": Resources(memory=GIB)}, lambda r: (r.resources.memory, r.limits.memory_bytes), (GIB, GIB - 192 * MIB)),
    ("storage", {"resources": Resources(ephemeral_storage=GIB)}, lambda r: r.resources.ephemeral_storage, GIB),
    ("the longest execution, and the default with it", {"limits": Limits(max_timeout=10.0)}, lambda r: (r.limits.max_timeout, r.limits.default_timeout), (10.0, 10.0)),
    ("processes", {"limits": Limits(processes=16)}, lambda r: r.limits.processes, 16),
    ("open files", {"limits": Limits(open_files=64)}, lambda r: r.limits.open_files, 64),
    ("the disk", {"limits": Limits(disk_bytes=MIB)}, lambda r: (r.limits.disk_bytes, r.workspace.size), (MIB, GIB)),
    ("the volume, and the disk with it", {"workspace": Workspace(size=2 * MIB)}, lambda r: r.limits.disk_bytes, 2 * MIB),
    ("user code's memory", {"limits": Limits(memory_bytes=100 * MIB)}, lambda r: r.limits.memory_bytes, 100 * MIB),
    ("the workspace", {"workspace": Workspace(size=MIB, retention=Retention.RETAIN)}, lambda r: (r.workspace.size, r.retention), (MIB, Retention.RETAIN)),
    ("its storage class where the template names none", {"workspace": Workspace(storage_class="fast")}, lambda r: r.workspace.storage_class, "fast"),
    ("lifetime", {"lifetime": 60.0}, lambda r: r.lifetime, 60.0),
    ("idle timeout, which the template leaves open", {"idle_timeout": 9e6}, lambda r: r.idle_timeout, 9e6),
    ("contract", {"contract": REVIEWED}, lambda r: r.contract, REVIEWED),
    ("egress to nothing", {"egress": Egress()}, lambda r: (r.egress, r.own_egress), (Egress(), True)),
    ("egress to the same", {"egress": opens(NET, dns=True)}, lambda r: r.own_egress, False),
    ("egress to less", {"egress": opens((NET, 443))}, lambda r: (r.egress, r.own_egress), (opens((NET, 443)), True)),
    ("variables", {"envs": {"A": "2", "B": "3"}}, lambda r: r.envs, {"A": "2", "B": "3"}),
    ("mounts", {"mounts": {"/app": "mine", "/logs": ""}}, lambda r: r.mounts, {"/app": "mine", "/data": "", "/logs": ""}),
]  # fmt: skip
GENEROUS = a_template(
    max_lifetime=3600.0,
    contracts=(AUTONOMOUS, REVIEWED),
    egress=opens(NET, dns=True),
    envs={"A": "1"},
    mounts={"/app": "", "/data": ""},
)


@pytest.mark.parametrize(("what", "changes", "look", "expected"), LOWERED, ids=[row[0] for row in LOWERED])
def test_the_spec_may_lower(what, changes, look, expected) -> None:
    assert look(made(GENEROUS, a_spec(**changes))) == expected


@pytest.mark.parametrize(
    ("wish", "longest", "default"),
    [
        (Limits(), math.inf, 300.0),
        (Limits(max_timeout=math.inf, default_timeout=9.0), math.inf, 9.0),
        (Limits(max_timeout=1e6), 1e6, 300.0),
        (Limits(max_timeout=10.0), 10.0, 10.0),
    ],
)
def test_a_template_without_a_longest_timeout_takes_any(wish, longest, default) -> None:
    result = made(a_template(limits=replace(TEMPLATE_LIMITS, max_timeout=math.inf)), a_spec(limits=wish))
    assert (result.limits.max_timeout, result.limits.default_timeout) == (longest, default)


RAISED = [
    ({"resources": Resources(cpu=1.5)}, "AboveTemplate", "cannot set resources.limits.cpu to 1.5: the template allows 1"),
    ({"resources": Resources(memory=4 * GIB)}, "AboveTemplate", "cannot set resources.limits.memory to 4096Mi: the template allows 2048Mi"),
    ({"resources": Resources(ephemeral_storage=5 * GIB)}, "AboveTemplate", "cannot set resources.limits.ephemeral-storage to 5120Mi: the template allows 4096Mi"),
    ({"limits": Limits(processes=257)}, "AboveTemplate", "cannot set executionLimits.processes to 257: the template allows 256"),
    ({"limits": Limits(open_files=4097)}, "AboveTemplate", "cannot set executionLimits.openFiles to 4097: the template allows 4096"),
    ({"limits": Limits(disk_bytes=11 * GIB)}, "AboveTemplate", "cannot set executionLimits.disk to 11264Mi: the template allows 10240Mi"),
    ({"limits": Limits(tmp_bytes=GIB)}, "AboveTemplate", "cannot set executionLimits.tmp to 1024Mi: the template allows 256Mi"),
    ({"limits": Limits(max_timeout=3601.0)}, "AboveTemplate", "cannot set executionLimits.maxTimeoutSeconds to 3601: the template allows 3600"),
    ({"limits": Limits(max_timeout=math.inf)}, "AboveTemplate", "cannot set executionLimits.maxTimeoutSeconds to 0 (no longest one): the template allows 3600"),
    ({"limits": Limits(default_timeout=math.inf)}, "InvalidSpec", "cannot set executionLimits.defaultTimeoutSeconds to inf: it has to be a number above 0"),
    ({"workspace": Workspace(size=2 * GIB)}, "AboveTemplate", "cannot set workspace.size to 2048Mi: the template allows 1024Mi"),
    ({"lifetime": 3601.0}, "AboveTemplate", "cannot set lifetimeSeconds to 3601: the template allows 3600"),
    ({"lifetime": 0.0}, "InvalidSpec", "cannot set lifetimeSeconds to 0: it has to be a number above 0"),
    ({"idle_timeout": float("nan")}, "InvalidSpec", "cannot set idleTimeoutSeconds to nan: it has to be a number above 0"),
    ({"resources": Resources(cpu=-1.0)}, "InvalidSpec", "cannot set resources.limits.cpu to -1: it has to be a number above 0"),
    ({"contract": BROKERED}, "ContractNotAllowed", "cannot take contract Brokered: the template allows Autonomous, Reviewed"),
    ({"egress": opens("203.0.0.0/16")}, "EgressNotAllowed", "cannot allow egress to 203.0.0.0/16 on every port: the template does not allow it"),
    ({"egress": opens(("198.51.100.0/24", (80, 90)))}, "EgressNotAllowed", "cannot allow egress to 198.51.100.0/24 on TCP 80-90: the template does not allow it"),
    ({"egress": opens("203.0.113.300")}, "InvalidSpec", "cannot read '203.0.113.300' as a network: '203.0.113.300' does not appear to be an IPv4 or IPv6 network"),
    ({"egress": opens("fe80::%1/64")}, "InvalidSpec", "cannot read 'fe80::%1/64' as a network"),
    ({"envs": {"A": "\0"}}, "InvalidSpec", "cannot set the environment: environment variable 'A' is no name, or its value has a NUL byte"),
    ({"mounts": {"/etc": ""}}, "InvalidSpec", "cannot mount /etc: /etc belongs to the system"),
    ({"envs": {"A": "x" * (96 << 10)}}, "InvalidSpec", "cannot set the environment: 98313 bytes as JSON are more than 98304"),
    ({"resources": Resources(memory=255 * MIB)}, "InvalidSpec", "cannot run with resources.limits.memory of 255 MiB: the executor and its runtime need 256 MiB before anything else runs"),
    ({"resources": Resources(ephemeral_storage=100 * MIB)}, "InvalidSpec", "cannot run with resources.limits.ephemeral-storage of 100 MiB: the executor and its runtime need 128 MiB before anything else runs"),
]  # fmt: skip


def test_a_brokered_sandbox_reaches_nothing_whatever_its_template_opens() -> None:
    template = a_template(egress=opens(NET, dns=True), contracts=(AUTONOMOUS, BROKERED))
    assert made(template, a_spec(contract=BROKERED)).egress == Egress()
    assert made(template, a_spec(contract=BROKERED, egress=Egress())).egress == Egress()
    refusal = refused(template, a_spec(contract=BROKERED, egress=opens(NET)))
    assert refusal.reason is Reason.EGRESS_NOT_ALLOWED
    assert refusal.message.startswith("cannot allow egress: contract Brokered allows none")


def test_a_template_with_secrets_is_refused_for_brokered_and_not_stripped() -> None:
    template = a_template(secret_envs=(SecretEnv(secret="password"),), contracts=(AUTONOMOUS, BROKERED))
    assert made(template, a_spec()).secret_envs
    refusal = refused(template, a_spec(contract=BROKERED))
    assert (refusal.reason, "Secrets (password)" in refusal.message) == (Reason.CONTRACT_NOT_ALLOWED, True)


@pytest.mark.parametrize(("changes", "reason", "message"), RAISED, ids=[row[2][:60] for row in RAISED])
def test_the_spec_may_not(changes, reason, message) -> None:
    refusal = refused(GENEROUS, a_spec(**changes))
    assert refusal.reason.value == reason
    assert refusal.message.startswith(message)


def test_name_resolution_needs_the_templates_permission() -> None:
    refusal = refused(a_template(egress=opens(NET)), a_spec(egress=opens(NET, dns=True)))
    assert refusal.message == "cannot allow egress to name resolution: the template does not allow it"


def test_the_templates_storage_class_stays() -> None:
    template = a_template(workspace=Workspace(GIB, "slow"))
    assert made(template, a_spec(workspace=Workspace(storage_class="slow"))).workspace.storage_class == "slow"
    assert refused(template, a_spec(workspace=Workspace(storage_class="fast"))).reason is Reason.ABOVE_TEMPLATE


BAD_TEMPLATES = [
    ({"image": "registry.example/other:1"}, "ImageNotAllowed"),
    ({"runtime_class": ""}, "TemplateInvalid"),
    ({"contracts": ()}, "TemplateInvalid"),
    ({"resources": Resources(1.0, 0, GIB)}, "TemplateInvalid"),
    ({"resources": Resources(1.0, 255 * MIB, GIB)}, "TemplateInvalid"),
    ({"workspace": Workspace()}, "TemplateInvalid"),
    ({"requests": Resources(cpu=2.0)}, "TemplateInvalid"),
    ({"egress": opens("10.0.0.0/33")}, "TemplateInvalid"),
    ({"egress": Egress(tuple(EgressRule(f"10.0.{n}.0/24", ports=tuple(Port("TCP", 80 + p) for p in range(32))) for n in range(17)))}, "TemplateInvalid"),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "reason"), BAD_TEMPLATES)
def test_an_invalid_template_is_refused(changes, reason) -> None:
    assert refused(a_template(**changes), a_spec()).reason.value == reason


ELSEWHERE = replace(SETTINGS, allowed_images=(*SETTINGS.allowed_images, "registry.example/task:*"))


def test_a_sandbox_names_only_images_that_template_and_installation_list() -> None:
    template = a_template(images=("registry.example/task:*", "registry.example/other:1"))
    found = made(template, a_spec(image="registry.example/task:7"), ELSEWHERE)
    assert (found.image, made(template, a_spec(), ELSEWHERE).image) == ("registry.example/task:7", IMAGE)
    assert "only registry.example/task:*" in refused(template, a_spec(image="registry.example/x:1"), ELSEWHERE).message
    assert "allows none" in refused(a_template(), a_spec(image="registry.example/task:7"), ELSEWHERE).message
    outside = refused(template, a_spec(image="registry.example/other:1"), ELSEWHERE)
    assert (outside.reason.value, "allowedImages" in outside.message) == ("ImageNotAllowed", True)


def test_a_claims_image_is_judged_as_a_sandboxs() -> None:
    wanted = made(a_template(images=("registry.example/task:*",)), a_spec(), ELSEWHERE)
    assert with_image(wanted, "registry.example/task:7", ELSEWHERE) == replace(wanted, image="registry.example/task:7")
    assert isinstance(with_image(wanted, "registry.example/x:1", ELSEWHERE), Refusal)
    assert isinstance(with_image(wanted, "registry.example/task:7", SETTINGS), Refusal)


# Inline templates.

CEILING = a_template(
    image="registry.example/not-used:1",
    runtime_class="gvisor-strict",
    secret_envs=(),
    contracts=(REVIEWED,),
    egress=opens((NET, 443)),
    max_lifetime=600.0,
    node_selector={"pool": "inline"},
    priority_class="low",
)
WITH_INLINE = replace(SETTINGS, inline=CEILING)


def an_inline(**changes):
    return a_spec(inline=a_template(contracts=(REVIEWED,), **changes))


def test_inline_templates_need_the_installations_permission() -> None:
    assert refused(None, an_inline()).reason is Reason.INLINE_NOT_ALLOWED
    assert refused(None, a_spec(), WITH_INLINE).reason is Reason.INVALID_SPEC


def test_an_inline_template_does_not_decide_where_and_how_its_pod_runs() -> None:
    greedy = an_inline(
        runtime_class="runc", node_selector={"pool": "mine"}, priority_class="system", image_pull_secrets=("x",)
    )
    result = made(None, greedy, WITH_INLINE)
    assert (result.runtime_class, result.node_selector) == ("gvisor-strict", {"pool": "inline"})
    assert (result.priority_class, result.image_pull_secrets) == ("low", ())
    assert (result.image, result.template, result.lifetime) == (IMAGE, "", 600.0)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"image": "registry.example/other:1"}, "ImageNotAllowed"),
        ({"resources": Resources(2.0, GIB, GIB)}, "AboveTemplate"),
        ({"limits": Limits(executions=64)}, "AboveTemplate"),
        ({"workspace": Workspace(2 * GIB)}, "AboveTemplate"),
        ({"max_lifetime": 601.0}, "AboveTemplate"),
        ({"egress": opens(NET)}, "EgressNotAllowed"),
        ({"contracts": (REVIEWED, AUTONOMOUS)}, "ContractNotAllowed"),
    ],
)
def test_an_inline_template_stays_below_the_ceiling(changes, reason) -> None:
    inline = replace(an_inline().inline, **changes)
    assert refused(None, a_spec(inline=inline), WITH_INLINE).reason.value == reason


def test_the_egress_of_an_inline_template_is_its_sandboxs_own() -> None:
    assert made(None, an_inline(egress=opens((NET, 443))), WITH_INLINE).own_egress


# Containment of egress lists.

CONTAINED = [
    ("a half", opens("10.0.0.0/9"), opens("10.0.0.0/8"), True),
    ("two halves of the template hold the whole", opens("10.0.0.0/8"), opens("10.0.0.0/9", "10.128.0.0/9"), True),
    ("two halves with a hole", opens("10.0.0.0/8"), opens("10.0.0.0/9", "10.128.0.0/10"), False),
    ("what the template excludes", opens("10.0.0.0/8"), opens(EgressRule("10.0.0.0/8", ("10.1.0.0/16",))), False),
    ("what both exclude", opens(EgressRule("10.0.0.0/8", ("10.0.0.0/15",))), opens(EgressRule("10.0.0.0/8", ("10.1.0.0/16",))), True),
    ("an exception of one is another's rule", opens("10.0.0.0/8"), opens(EgressRule("10.0.0.0/8", ("10.1.0.0/16",)), "10.1.0.0/16"), True),
    ("the other version of IP", opens("::/0"), opens("0.0.0.0/0"), False),
    ("each version its own", opens("::/0", "0.0.0.0/0"), opens("0.0.0.0/0", "::/0"), True),
    ("one port of all", opens((NET, 443)), opens(NET), True),
    ("all ports are more than each port", opens(NET), opens((NET, (1, 65535), ("UDP", 53))), False),
    ("two ranges that meet hold a third", opens((NET, (80, 90))), opens((NET, (1, 85)), (NET, (86, 100))), True),
    ("two ranges with a port between them", opens((NET, (80, 90))), opens((NET, (1, 84)), (NET, (86, 100))), False),
    ("the other protocol", opens((NET, ("UDP", 443))), opens((NET, 443)), False),
    ("halves of the network with ranges that meet", opens(("10.0.0.0/8", (80, 90))), opens(("10.0.0.0/9", (80, 95)), ("10.128.0.0/9", (70, 90))), True),
    ("halves of the network with ranges that do not", opens(("10.0.0.0/8", (80, 90))), opens(("10.0.0.0/9", (80, 95)), ("10.128.0.0/9", (70, 89))), False),
    ("a rule that excludes all of itself", opens(EgressRule("8.8.8.8/32", ("8.8.8.8/32",), (Port("TCP", 53),))), opens((NET, 53)), True),
    ("nothing", Egress(), Egress(), True),
]  # fmt: skip


@pytest.mark.parametrize(("what", "wish", "allowed", "inside"), CONTAINED, ids=[row[0] for row in CONTAINED])
def test_egress_containment(what, wish, allowed, inside) -> None:
    assert (first_outside(wish, allowed) == "") is inside


def reaches(egress: Egress, address: str, protocol: str, port: int) -> bool:
    """Whether the list allows one flow, computed in the plainest way."""

    def inside(cidr: str) -> bool:
        whole = ipaddress.ip_network(cidr, strict=False)
        return ipaddress.ip_address(address) in whole

    return any(
        inside(rule.cidr)
        and not any(map(inside, rule.excluded))
        and (not rule.ports or any(p.protocol == protocol and p.port <= port <= max(p.port, p.end_port) for p in rule.ports))
        for rule in egress.allow
    )  # fmt: skip


def corners(*lists: Egress):
    """One flow on each side of each edge."""
    rules = [rule for one in lists for rule in one.allow]
    for cidr in {cidr for rule in rules for cidr in (rule.cidr, *rule.excluded)}:
        whole = ipaddress.ip_network(cidr, strict=False)
        most = 2**whole.max_prefixlen - 1
        first, last = int(whole.network_address), int(whole.broadcast_address)
        for number in {max(first - 1, 0), first, last, min(last + 1, most)}:
            address = str(type(whole.network_address)(number))
            edges = {
                edge for rule in rules for port in rule.ports for edge in (port.port, max(port.port, port.end_port))
            }
            for port in {1} | {max(edge + step, 1) for edge in edges for step in (-1, 0, 1)}:
                yield from ((address, protocol, min(port, 65535)) for protocol in ("TCP", "UDP", "SCTP"))


@given(EGRESS, EGRESS)
@settings(max_examples=examples(60))
def test_egress_containment_is_exact(wish, allowed) -> None:
    wish = replace(wish, dns=False)
    more = [flow for flow in corners(wish, allowed) if reaches(wish, *flow) and not reaches(allowed, *flow)]
    if not first_outside(wish, allowed):
        assert more == []
    elif all(rule.ports for rule in wish.allow) and not any(rule.excluded for rule in wish.allow):
        assert more


@given(pairs())
@settings(max_examples=examples(60))
def test_what_a_sandbox_gets_is_never_more_than_its_template(pair) -> None:
    template, spec = pair
    result = effective(template, spec, SETTINGS)
    if isinstance(result, Refusal):
        assert result.message.startswith("cannot ")
        return
    for name in ("cpu", "memory", "ephemeral_storage"):
        assert 0 < getattr(result.requests, name) <= getattr(result.resources, name)
        assert getattr(result.resources, name) <= getattr(template.resources, name)
    assert 0 < result.limits.memory_bytes <= result.resources.memory - SETTINGS.memory_reserve
    assert result.workspace.size <= template.workspace.size
    assert template.max_lifetime is None or result.lifetime <= template.max_lifetime
    assert result.contract in template.contracts
    assert not first_outside(result.egress, template.egress)


def a_service(name="db", **rest):
    return {"name": name, "command": ["db"], "cwd": "", "envs": {}, "after": [], **rest}


BAD_SERVICES = [
    ([a_service(), a_service()], "db is there twice"),
    ([a_service(".x")], "is no name"),
    ([a_service(after=["unknown"])], "comes after 'unknown'"),
    ([a_service("a", after=["b"]), a_service("b", after=["a"])], "a, b wait for each other"),
    ([a_service(readiness={})], "exactly one of tcpSocket, httpGet and exec"),
    ([a_service(readiness={"tcp": {"port": 1}, "exec": ["x"]})], "exactly one of tcpSocket, httpGet and exec"),
    ([a_service(readiness={"http": {"port": 1, "path": "x", "status": 0}})], "begins with no /"),
    ([a_service(liveness={"http": {"port": 1, "path": "/", "status": 42}})], "the status 42"),
    ([a_service(command=["a\0b"])], "NUL"),
    ([a_service(command=[""])], "no program"),
    ([a_service(liveness={"exec": []})], "no program"),
    ([a_service(envs={"1": "x"})], "variable"),
    ([a_service(command=["x" * 30_000])], "more than 20480 bytes"),
]


@pytest.mark.parametrize(("services", "said"), BAD_SERVICES)
def test_invalid_services_are_the_templates_mistake(services, said) -> None:
    refusal = refused(a_template(services=tuple(services)), a_spec())
    assert refusal.reason is Reason.TEMPLATE_INVALID
    assert said in refusal.message


def test_services_come_from_the_template_only() -> None:
    services = (a_service("db"), a_service("app", after=["db"]))
    assert made(a_template(services=services), a_spec()).services == services


BAD_PACKAGES = [
    (["--index-url=https://x"], "no requirement"),
    (["./wheels/a.whl"], "no requirement"),
    (["a @ https://x/a.whl"], "come from the index"),
    (["a>=1\n-r x"], "no printable text"),
    (["a" * 201], "at most 200"),
    (["a"] * 65, "more than 64"),
    (["a==" + "1" * 180] * 64, "more than 8192 bytes"),
]


@pytest.mark.parametrize(("packages", "said"), BAD_PACKAGES)
def test_invalid_packages_are_the_templates_mistake(packages, said) -> None:
    refusal = refused(a_template(packages=tuple(packages)), a_spec())
    assert refusal.reason is Reason.TEMPLATE_INVALID
    assert said in refusal.message


@pytest.mark.parametrize("seconds", [0.0, -1.0, 3601.0])
def test_the_installation_timeout_is_bounded(seconds) -> None:
    refusal = refused(a_template(packages=("a",), packages_timeout=seconds), a_spec())
    assert refusal.reason is Reason.TEMPLATE_INVALID
    assert "seconds to install them" in refusal.message


def test_packages_come_from_the_template_only() -> None:
    assert made(a_template(packages=("a>=1", "b[x]")), a_spec()).packages == ("a>=1", "b[x]")


@pytest.mark.parametrize(("name", "most"), [(name, one.most) for name, one in BOUNDS.items() if one.most])
def test_a_limit_above_the_executors_is_the_templates_mistake(name, most) -> None:
    assert getattr(made(a_template(limits=replace(a_template().limits, **{name: most})), a_spec()).limits, name) > 0
    refusal = refused(a_template(limits=replace(a_template().limits, **{name: most + 1})), a_spec())
    assert refusal.reason is Reason.TEMPLATE_INVALID
    assert next(column.at.word for column in table(Limits) if column.name == name) in refusal.message

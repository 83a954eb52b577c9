"""Templates, sandboxes and settings for tests: other fields are filled in, or drawn by Hypothesis."""

import ipaddress
import math
from dataclasses import replace

from hypothesis import strategies as st
from sandfleet_operator.api.kinds.meta import Meta
from sandfleet_operator.api.kinds.sandbox import CodeSandbox, SandboxSpec
from sandfleet_operator.api.kinds.template import (
    Contract,
    Egress,
    EgressRule,
    Port,
    Resources,
    Retention,
    SandboxTemplate,
    SecretEnv,
    TemplateSpec,
    Workspace,
)
from sandfleet_operator.api.limits import TEMPLATE_LIMITS, Limits
from sandfleet_operator.api.settings import Settings

MIB, GIB = 1 << 20, 1 << 30
IMAGE = "registry.example/sandfleet-executor:1"
SETTINGS = Settings(
    control_plane_namespace="sandfleet-system",
    allowed_images=("registry.example/sandfleet-executor:*",),
    blocked_cidrs=("10.96.0.0/12", "192.0.2.10/32", "fd00:10:96::/112"),
)


def a_template(**changes) -> TemplateSpec:
    template = TemplateSpec(
        image=IMAGE,
        resources=Resources(cpu=1.0, memory=2 * GIB, ephemeral_storage=4 * GIB),
        requests=Resources(cpu=0.25, memory=512 * MIB, ephemeral_storage=GIB),
        limits=replace(TEMPLATE_LIMITS, memory_bytes=0),
        workspace=Workspace(size=GIB),
    )
    return replace(template, **changes)


def a_spec(**changes) -> SandboxSpec:
    inline = changes.get("inline")
    return SandboxSpec(template="" if inline else "python", **changes)


def a_meta(name="demo", **changes) -> Meta:
    return replace(Meta(namespace="team-a", name=name, uid="0c9e4f7e-5e0a-4a0c-8a33-2a4d2f6f9b51"), **changes)


def a_sandbox(name="demo", **changes) -> CodeSandbox:
    return CodeSandbox(meta=a_meta(name), spec=a_spec(**changes))


def a_sandbox_template(name="python", **changes) -> SandboxTemplate:
    return SandboxTemplate(meta=a_meta(name), spec=a_template(**changes))


def opens(*rules, dns=False) -> Egress:
    """`opens("10.0.0.0/8", ("192.0.2.0/24", 443, (8000, 8100), ("UDP", 53)))`."""
    return Egress(tuple(map(_rule, rules)), dns)


def _rule(given) -> EgressRule:
    if isinstance(given, EgressRule):
        return given
    cidr, *ports = (given,) if isinstance(given, str) else given
    return EgressRule(cidr, ports=tuple(map(_port, ports)))


def _port(given) -> Port:
    if isinstance(given, int):
        return Port("TCP", given)
    first, last = given
    return Port(first, last) if isinstance(first, str) else Port("TCP", first, last)


# What follows draws values as the schema lets them through; small, so that they meet.

ENV_NAMES = st.sampled_from(["HOME", "PATH", "TOKEN", "_", "a1"])
ENV_VALUES = st.one_of(
    st.sampled_from(["", "$(SANDFLEET_USER_TOKEN)", "$$(HOME)", "$", "$$$(X)", "${HOME}", 'a"b\\c', "ü"]),
    st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=12),
)
ENVS = st.dictionaries(ENV_NAMES, ENV_VALUES, max_size=2)
# Networks beside, around and inside of what is blocked, of both versions.
ADDRESSES = (
    "0.0.0.0", "10.0.0.0", "10.96.0.1", "100.100.100.200", "127.0.0.1", "169.254.169.254", "192.0.2.10", "203.0.113.7",
    "224.0.0.1", "::", "::1", "64:ff9b::a9fe:a9fe", "fd00:ec2::254", "fd00:10:96::1", "fe80::1", "2001:db8::1", "ff02::1",
)  # fmt: skip


@st.composite
def networks(draw) -> str:
    address = ipaddress.ip_address(draw(st.sampled_from(ADDRESSES)))
    length = draw(
        st.sampled_from([0, 1, 8, 12, 16, 24, 30, 31, 32, *([64, 96, 112, 127, 128] * (address.version == 6))])
    )
    return f"{address}/{length}"


@st.composite
def ports(draw) -> Port:
    first = draw(st.sampled_from([1, 53, 80, 443, 8000, 65535]))
    last = draw(st.sampled_from([0, 0, 443, 8080, 65535]))
    return Port(draw(st.sampled_from(["TCP", "UDP"])), first, last if last >= first else 0)


RULES = st.builds(
    EgressRule,
    networks(),
    st.lists(networks(), max_size=2).map(tuple),
    st.lists(ports(), max_size=2).map(tuple),
)
EGRESS = st.builds(Egress, st.lists(RULES, max_size=2).map(tuple), st.booleans())
CONTRACTS = st.sampled_from(Contract)
RETENTIONS = st.none() | st.sampled_from(Retention)
CLASSES = st.sampled_from([None, "fast", "slow"])
SECONDS = st.none() | st.sampled_from([1.0, 60.0, 3600.0, 86400.0])


def resources(*, lowest: int) -> st.SearchStrategy[Resources]:
    """In steps, so that a wish often equals its bound; `lowest` 0 also leaves values out."""
    return st.builds(
        Resources,
        cpu=st.sampled_from([0.0, 0.001, 0.25, 0.3, 1.0, 2.5][lowest:]),
        memory=st.sampled_from([0, 64 * MIB, 256 * MIB, 1000 * 1000 * 1000, GIB, 2 * GIB][lowest:]),
        ephemeral_storage=st.sampled_from([0, 64 * MIB, 128 * MIB, GIB, 4 * GIB][lowest:]),
    )


def a_share(most: Resources) -> Resources:
    return Resources(most.cpu / 2, most.memory, most.ephemeral_storage // 2)


LIMITS = st.builds(
    Limits,
    tmp_bytes=st.sampled_from([0, 16 * MIB, 256 * MIB, 512 * MIB]),
    processes=st.sampled_from([0, 8, 256, 512]),
    max_timeout=st.sampled_from([0.0, 10.0, 3600.0, math.inf]),
    default_timeout=st.sampled_from([0.0, 5.0, 300.0]),
    open_files=st.sampled_from([0, 64, 4096, 8192]),
    disk_bytes=st.sampled_from([0, MIB, 10 * GIB, 20 * GIB]),
)
TOLERATIONS = st.sampled_from(
    [{"key": "sandboxes", "operator": "Exists"}, {"key": "a", "value": "b", "effect": "NoSchedule"}]
)


def either(draw, usual, other: st.SearchStrategy):
    """Mostly the usual value: a pod comes of a draw only where nothing in it is refused."""
    return draw(other) if draw(st.integers(0, 3)) == 3 else usual


@st.composite
def templates(draw) -> TemplateSpec:
    most = draw(resources(lowest=2))
    return TemplateSpec(
        image=either(draw, IMAGE, st.sampled_from([IMAGE, IMAGE, "registry.example/other:1"])),
        image_pull_policy=either(draw, "IfNotPresent", st.sampled_from(["Always", "Never"])),
        image_pull_secrets=either(draw, (), st.just(("pull",))),
        resources=most,
        requests=either(draw, a_share(most), st.just(Resources()) | resources(lowest=0)),
        limits=either(draw, TEMPLATE_LIMITS, LIMITS),
        workspace=Workspace(draw(st.sampled_from([MIB, GIB, 10 * GIB])), draw(CLASSES), draw(RETENTIONS)),
        envs=draw(ENVS),
        mounts=either(draw, {}, st.just({"/app": "", "/logs": "out/logs"})),
        secret_envs=either(draw, (), st.just((SecretEnv("tokens"), SecretEnv("more", "MORE_", optional=True)))),
        egress=draw(EGRESS),
        contracts=either(draw, tuple(Contract), st.lists(CONTRACTS, min_size=1, unique=True).map(tuple)),
        max_lifetime=draw(SECONDS),
        max_idle_timeout=draw(SECONDS),
        node_selector=either(draw, {}, st.just({"pool": "sandboxes"})),
        tolerations=either(draw, (), TOLERATIONS.map(lambda one: (one,))),
    )


@st.composite
def specs(draw, template: TemplateSpec) -> SandboxSpec:
    """What an owner writes: mostly nothing, or as the template has it, and the rest anything."""
    workspace = st.builds(Workspace, st.sampled_from([0, MIB, GIB, 20 * GIB]), CLASSES, RETENTIONS)
    return SandboxSpec(
        template="python",
        workspace=either(draw, Workspace(), workspace),
        resources=either(draw, Resources(), st.just(template.resources) | resources(lowest=0)),
        limits=either(draw, Limits(), LIMITS),
        envs=draw(ENVS),
        mounts=either(draw, {}, st.sampled_from([{"/app": "mine"}, {"/home/user": "."}, {"/app/inner": ""}])),
        egress=draw(
            st.none() | st.just(template.egress) | parts_of(template.egress) | parts_of(template.egress) | EGRESS
        ),
        contract=either(draw, None, CONTRACTS),
        lifetime=either(draw, None, SECONDS),
        idle_timeout=either(draw, None, SECONDS),
    )


@st.composite
def parts_of(draw, egress: Egress) -> Egress:
    """A list that lies within another: one half of each network, without name resolution or with it."""
    rules = []
    for rule in egress.allow:
        whole = ipaddress.ip_network(rule.cidr, strict=False)
        halves = [whole, *(whole.subnets() if whole.prefixlen < whole.max_prefixlen else ())]
        rules.append(replace(rule, cidr=str(draw(st.sampled_from(halves)))))
    return Egress(tuple(rules), egress.dns and draw(st.booleans()))


@st.composite
def pairs(draw) -> tuple[TemplateSpec, SandboxSpec]:
    template = draw(templates())
    return template, draw(specs(template))

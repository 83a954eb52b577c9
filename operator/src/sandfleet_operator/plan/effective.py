"""What a sandbox really gets: its template, lowered by its own spec, or why it cannot be had."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import TypeVar

from sandfleet_operator.api.conditions import Reason
from sandfleet_operator.api.errors import FleetError
from sandfleet_operator.api.packages import check as check_packages
from sandfleet_operator.api.parse import MOST, REQUESTS, WORKSPACE
from sandfleet_operator.api.resources import (
    Contract,
    Egress,
    Resources,
    Retention,
    Rollback,
    SandboxSpec,
    SecretEnv,
    TemplateSpec,
    Workspace,
)
from sandfleet_operator.api.services import check as check_services
from sandfleet_operator.api.settings import Settings, image_allowed
from sandfleet_operator.api.validate import check_envs
from sandfleet_operator.api.values import MIB, TEMPLATE_LIMITS, Limits
from sandfleet_operator.plan.egress import check as check_egress
from sandfleet_operator.plan.egress import first_outside
from sandfleet_operator.plan.placement import check as check_placement

# Linux takes no environment variable above 128 KiB, and the executor gets all of these in one.
MAX_ENVS_JSON = 96 << 10
# Beside the executor's reserve: an interpreter without any data.
MIN_USER_MEMORY = 64 * MIB
# The executor's own /tmp and the container's logs.
MIN_EPHEMERAL_STORAGE = 128 * MIB

# More than this no executor takes: of output for its own memory, of the disk for the largest file of Linux and gVisor.
MOST_BYTES = {"output_bytes": 4 << 30, "disk_bytes": 1 << 50}

# What a limit is called in a CodeSandbox. Memory is said once, under resources.
LIMIT_FIELDS = {
    "tmp_bytes": "tmp",
    "processes": "processes",
    "output_bytes": "output",
    "executions": "executions",
    "max_timeout": "maxTimeoutSeconds",
    "default_timeout": "defaultTimeoutSeconds",
    "open_files": "openFiles",
    "disk_bytes": "disk",
}
SIZES = {
    "resources.memory",
    "resources.ephemeralStorage",
    "workspace.size",
    "limits.tmp",
    "limits.output",
    "limits.disk",
}

# Who allows what: the template that a sandbox names, or the installation what a sandbox may bring.
TEMPLATE, INSTALLATION = "the template", "the installation"

Number = TypeVar("Number", int, float)


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why no pod is made; the message reads "cannot X: why"."""

    reason: Reason
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Effective:
    """Every value that counts, none of them open but those that may be None. Seconds, bytes, cores."""

    # Name of the SandboxTemplate; empty for a sandbox that brought its own.
    template: str
    image: str
    image_pull_policy: str
    image_pull_secrets: tuple[str, ...]
    runtime_class: str
    resources: Resources
    requests: Resources
    limits: Limits
    rollback: Rollback
    workspace_size: int
    # None: the cluster's default.
    storage_class: str | None
    retention: Retention
    # The workspace is a directory of the pod.
    ephemeral: bool
    envs: Mapping[str, str]
    secret_envs: tuple[SecretEnv, ...]
    # As the executor is told them.
    services: tuple[Mapping[str, object], ...]
    packages: tuple[str, ...]
    # Seconds.
    packages_timeout: float
    egress: Egress
    # The egress is not the one of the template's class.
    own_egress: bool
    contract: Contract
    lifetime: float | None
    idle_timeout: float | None
    node_selector: Mapping[str, str]
    tolerations: tuple[Mapping[str, object], ...]
    priority_class: str


class _RefusedError(Exception):
    """Ends the merge from the place that knows why."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.refusal = Refusal(reason, message)


def effective(template: TemplateSpec | None, sandbox: SandboxSpec, settings: Settings) -> Effective | Refusal:
    """The template that the sandbox names (None: it brings its own) and its spec, merged. Its owner can only lower."""
    try:
        if template is not None:
            _check_template(template, settings)
            return _merged(template, sandbox, sandbox.template, settings)
        return _merged(_inlined(sandbox, settings), sandbox, "", settings)
    except _RefusedError as refused:
        return refused.refusal
    except FleetError as error:
        return Refusal(Reason.INVALID_SPEC, error.problem.message)


def _inlined(sandbox: SandboxSpec, settings: Settings) -> TemplateSpec:
    """The template that the sandbox brings, within the ceiling; what is never its owner's is the ceiling's."""
    own, ceiling = sandbox.inline, settings.inline
    if own is None:
        raise _RefusedError(Reason.INVALID_SPEC, "cannot make a sandbox: it has neither a template nor an inline one")
    if ceiling is None:
        why = "the installation allows named templates only (Helm value inline)"
        raise _RefusedError(Reason.INLINE_NOT_ALLOWED, f"cannot use an inline template: {why}")
    _check_template(replace(ceiling, image=own.image), settings)
    own = _filled(own, ceiling)
    for contract in own.contracts:
        _check_contract(contract, ceiling.contracts, INSTALLATION)
    _check_egress(own.egress, ceiling.egress, INSTALLATION)
    resources = _lowered_resources(own.resources, ceiling.resources, INSTALLATION)
    return replace(
        ceiling,
        image=own.image,
        image_pull_policy=own.image_pull_policy,
        resources=resources,
        requests=_lowered_requests(own.requests, resources),
        limits=_lowered_limits(own.limits, ceiling.limits, resources.memory, INSTALLATION),
        workspace=_lowered_workspace(own.workspace, ceiling.workspace, INSTALLATION),
        envs={**ceiling.envs, **own.envs},
        egress=own.egress,
        contracts=own.contracts,
        max_lifetime=_lowered_time("maxLifetimeSeconds", own.max_lifetime, ceiling.max_lifetime, INSTALLATION),
        max_idle_timeout=_lowered_time(
            "maxIdleTimeoutSeconds", own.max_idle_timeout, ceiling.max_idle_timeout, INSTALLATION
        ),
    )


def _filled(own: TemplateSpec, ceiling: TemplateSpec) -> TemplateSpec:
    """What its owner has not written is a template's default, or the most that the ceiling allows where that is less."""
    limits = {
        name: _usual(getattr(own.limits, name), getattr(TEMPLATE_LIMITS, name), getattr(ceiling.limits, name))
        for name in LIMIT_FIELDS
    }
    size = _usual(own.workspace.size, WORKSPACE.size, ceiling.workspace.size)
    return replace(
        own,
        resources=_usual_resources(own.resources, MOST, ceiling.resources),
        requests=_usual_resources(own.requests, REQUESTS, Resources()),
        limits=replace(own.limits, **limits),
        workspace=replace(own.workspace, size=size),
        contracts=own.contracts or ceiling.contracts,
    )


def _usual(written: Number, default: Number, most: Number) -> Number:
    return written or (min(default, most) if most else default)


def _usual_resources(written: Resources, default: Resources, most: Resources) -> Resources:
    return Resources(
        cpu=_usual(written.cpu, default.cpu, most.cpu),
        memory=_usual(written.memory, default.memory, most.memory),
        ephemeral_storage=_usual(written.ephemeral_storage, default.ephemeral_storage, most.ephemeral_storage),
    )


def _check_template(template: TemplateSpec, settings: Settings) -> None:
    if not image_allowed(template.image, settings.allowed_images):
        why = f"image {template.image!r} is not on the installation's list (Helm value allowedImages)"
        raise _RefusedError(Reason.IMAGE_NOT_ALLOWED, f"cannot make a sandbox: {why}")
    if not template.runtime_class:
        raise _RefusedError(Reason.TEMPLATE_INVALID, "cannot use the template: it names no runtime class")
    if not template.contracts:
        raise _RefusedError(Reason.TEMPLATE_INVALID, "cannot use the template: it allows no contract")
    _check_sizes(template)
    _check_room(template.resources, settings, Reason.TEMPLATE_INVALID)
    if why := _no_room_for(template.workspace.size if template.workspace.ephemeral else 0, template.resources):
        raise _RefusedError(Reason.TEMPLATE_INVALID, f"cannot use the template: {why}")
    try:
        check_egress(template.egress)
        check_services(template.services)
        check_packages(template.packages, template.packages_timeout)
        check_placement(template.node_selector, template.tolerations)
    except FleetError as error:
        raise _RefusedError(Reason.TEMPLATE_INVALID, f"cannot use the template: {error.problem.message}") from None
    for name, value in _numbers(template.requests).items():
        most = getattr(template.resources, name)
        if value > most:
            why = f"its request for {name} of {value:g} is above its limit of {most:g}"
            raise _RefusedError(Reason.TEMPLATE_INVALID, f"cannot use the template: {why}")


def _check_sizes(template: TemplateSpec) -> None:
    sizes = (*_numbers(template.resources).items(), ("workspace.size", template.workspace.size))
    for name, value in sizes:
        if not value:
            raise _RefusedError(Reason.TEMPLATE_INVALID, f"cannot use the template: it has no limit for {name}")
    for name, most in MOST_BYTES.items():
        if getattr(template.limits, name) > most:
            why = f"its limits.{LIMIT_FIELDS[name]} is above {most >> 30}Gi"
            raise _RefusedError(Reason.TEMPLATE_INVALID, f"cannot use the template: {why}")


def _merged(template: TemplateSpec, sandbox: SandboxSpec, name: str, settings: Settings) -> Effective:
    resources = _lowered_resources(sandbox.resources, template.resources)
    workspace = _lowered_workspace(sandbox.workspace, template.workspace)
    egress = template.egress if sandbox.egress is None else sandbox.egress
    contract = sandbox.contract or template.contracts[0]
    envs = {**template.envs, **sandbox.envs}
    _check_contract(contract, template.contracts)
    _check_egress(egress, template.egress)
    _check_envs(envs)
    _check_room(resources, settings, Reason.INVALID_SPEC)
    if why := _no_room_for(workspace.size if workspace.ephemeral else 0, resources):
        raise _RefusedError(Reason.INVALID_SPEC, f"cannot make a sandbox: {why}")
    return Effective(
        template=name,
        image=template.image,
        image_pull_policy=template.image_pull_policy,
        image_pull_secrets=template.image_pull_secrets,
        runtime_class=template.runtime_class,
        resources=resources,
        requests=_lowered_requests(template.requests, resources),
        rollback=template.rollback,
        limits=_on_volume(
            _lowered_limits(sandbox.limits, template.limits, resources.memory - settings.memory_reserve), workspace
        ),
        workspace_size=workspace.size,
        storage_class=workspace.storage_class,
        retention=workspace.retention or Retention.DELETE,
        ephemeral=workspace.ephemeral,
        envs=envs,
        secret_envs=template.secret_envs,
        services=template.services,
        packages=template.packages,
        packages_timeout=template.packages_timeout,
        egress=egress,
        own_egress=not name or egress != template.egress,
        contract=contract,
        lifetime=_lowered_time("lifetimeSeconds", sandbox.lifetime, template.max_lifetime),
        idle_timeout=_lowered_time("idleTimeoutSeconds", sandbox.idle_timeout, template.max_idle_timeout),
        node_selector=template.node_selector,
        tolerations=template.tolerations,
        priority_class=template.priority_class,
    )


def _lowered(what: str, wish: Number, most: Number, whose: str = TEMPLATE) -> Number:
    """The wish, or the most where it is 0."""
    if not 0 <= wish < math.inf:
        raise _RefusedError(Reason.INVALID_SPEC, f"cannot set {what} to {wish:g}: it has to be a number above 0")
    if wish > most:
        raise _above(what, _shown(what, wish), _shown(what, most), whose)
    return wish or most


def _shown(what: str, value: float) -> str:
    return f"{value / MIB:.10g}Mi" if what in SIZES else f"{value:.10g}"


def _above(what: str, wish: str, most: str, whose: str) -> _RefusedError:
    return _RefusedError(Reason.ABOVE_TEMPLATE, f"cannot set {what} to {wish}: {whose} allows {most}")


def _lowered_time(what: str, wish: float | None, most: float | None, whose: str = TEMPLATE) -> float | None:
    if wish is None:
        return most
    if wish == 0:
        raise _RefusedError(Reason.INVALID_SPEC, f"cannot set {what} to 0: it has to be a number above 0")
    return _lowered(what, wish, math.inf if most is None else most, whose)


def _numbers(resources: Resources) -> dict[str, float]:
    return {one.name: getattr(resources, one.name) for one in fields(Resources)}


def _lowered_resources(wish: Resources, most: Resources, whose: str = TEMPLATE) -> Resources:
    return Resources(
        cpu=_lowered("resources.cpu", wish.cpu, most.cpu, whose),
        memory=_lowered("resources.memory", wish.memory, most.memory, whose),
        ephemeral_storage=_lowered("resources.ephemeralStorage", wish.ephemeral_storage, most.ephemeral_storage, whose),
    )


def _lowered_requests(requests: Resources, limits: Resources) -> Resources:
    """A request that is not given, or is above what its owner lowered the limit to, is the limit."""
    return Resources(
        cpu=min(requests.cpu or limits.cpu, limits.cpu),
        memory=min(requests.memory or limits.memory, limits.memory),
        ephemeral_storage=min(requests.ephemeral_storage or limits.ephemeral_storage, limits.ephemeral_storage),
    )


def _lowered_limits(wish: Limits, template: Limits, memory: int, whose: str = TEMPLATE) -> Limits:
    """As the executor itself lowers them: the default timeout follows the longest.

    `memory` is the most that user code gets of the container's: at the container's limit the kernel ends the whole sandbox.
    """
    values = {}
    for name, words in LIMIT_FIELDS.items():
        most = getattr(template, name) or getattr(TEMPLATE_LIMITS, name)
        values[name] = _lowered(f"limits.{words}", getattr(wish, name), most, whose)
    values["default_timeout"] = min(values["default_timeout"], values["max_timeout"])
    given = [one for one in (wish.memory_bytes, template.memory_bytes, memory) if one > 0]
    return Limits(**values, memory_bytes=min(given))


def _on_volume(limits: Limits, workspace: Workspace) -> Limits:
    """The disk's limit is no larger than the volume: not every provisioner enforces its size, and the kubelet evicts for it."""
    return replace(limits, disk_bytes=min(limits.disk_bytes, workspace.size) if workspace.size else limits.disk_bytes)


def _check_room(resources: Resources, settings: Settings, blamed: Reason) -> None:
    least = settings.memory_reserve + MIN_USER_MEMORY
    for name, value, needed in (
        ("memory", resources.memory, least),
        ("ephemeralStorage", resources.ephemeral_storage, MIN_EPHEMERAL_STORAGE),
    ):
        if value < needed:
            why = f"the executor and its runtime need {needed // MIB} MiB before anything else runs"
            raise _RefusedError(blamed, f"cannot run with resources.{name} of {value / MIB:.4g} MiB: {why}")


def _no_room_for(files: int, resources: Resources) -> str:
    """Of an ephemeral workspace: they count as the pod's own, and the kubelet evicts a pod that writes more than it may."""
    needed, most = files + MIN_EPHEMERAL_STORAGE, resources.ephemeral_storage
    if not files or needed <= most:
        return ""
    return f"an ephemeral workspace needs ephemeralStorage of {needed // MIB}Mi, and it has {most // MIB}Mi"


def _lowered_workspace(wish: Workspace, template: Workspace, whose: str = TEMPLATE) -> Workspace:
    """A storage class is its owner's to choose only where the template names none. An earlier workspace stays unless it is given away."""
    if wish.claim_name and template.ephemeral:
        why = "the template's workspaces are directories of their pods"
        raise _RefusedError(Reason.INVALID_SPEC, f"cannot start on workspace {wish.claim_name}: {why}")
    if None not in {wish.storage_class, template.storage_class} and wish.storage_class != template.storage_class:
        raise _above("workspace.storageClassName", repr(wish.storage_class), repr(template.storage_class), whose)
    return Workspace(
        size=_lowered("workspace.size", wish.size, template.size, whose),
        storage_class=template.storage_class or wish.storage_class,
        retention=wish.retention or (Retention.RETAIN if wish.claim_name else template.retention),
        ephemeral=wish.ephemeral or template.ephemeral,
    )


def _check_contract(wish: Contract, allowed: tuple[Contract, ...], whose: str = TEMPLATE) -> None:
    if wish not in allowed:
        names = ", ".join(one.value for one in allowed)
        message = f"cannot take contract {wish.value}: {whose} allows {names}"
        raise _RefusedError(Reason.CONTRACT_NOT_ALLOWED, message)


def _check_egress(wish: Egress, allowed: Egress, whose: str = TEMPLATE) -> None:
    outside = first_outside(wish, allowed)
    if outside:
        message = f"cannot allow egress to {outside}: {whose} does not allow it"
        raise _RefusedError(Reason.EGRESS_NOT_ALLOWED, message)


def _check_envs(envs: Mapping[str, str]) -> None:
    check_envs(envs, doing="set the environment")
    size = len(json.dumps(dict(envs)))
    if size > MAX_ENVS_JSON:
        why = f"{size} bytes as JSON are more than {MAX_ENVS_JSON}"
        raise _RefusedError(Reason.INVALID_SPEC, f"cannot set the environment: {why}")

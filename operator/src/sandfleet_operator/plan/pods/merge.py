"""Merges a template and a sandbox's spec into the values that count, or refuses with a reason."""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

from sandfleet_operator.api.conditions import Reason
from sandfleet_operator.api.errors import FleetError
from sandfleet_operator.api.kinds.mounts import check as check_mounts
from sandfleet_operator.api.kinds.packages import check as check_packages
from sandfleet_operator.api.kinds.preload import check as check_preload
from sandfleet_operator.api.kinds.sandbox import SandboxSpec
from sandfleet_operator.api.kinds.services import check as check_services
from sandfleet_operator.api.kinds.template import (
    DEFAULTS,
    Contract,
    Egress,
    ExecutorPlace,
    Resources,
    Retention,
    TemplateSpec,
    Workspace,
)
from sandfleet_operator.api.limits import BOUNDS, TEMPLATE_LIMITS, Limits
from sandfleet_operator.api.quantities import MIB
from sandfleet_operator.api.settings import Settings, image_allowed, is_pattern
from sandfleet_operator.api.table import in_bytes, table
from sandfleet_operator.api.validate import check_envs
from sandfleet_operator.api.values import Amount
from sandfleet_operator.plan.egress import lists
from sandfleet_operator.plan.pods.egress import allows_nothing, first_outside
from sandfleet_operator.plan.pods.egress import check as check_egress
from sandfleet_operator.plan.pods.placement import check as check_placement
from sandfleet_operator.plan.remembered import remembered

# Linux allows 128 KiB in one environment variable, and the executor gets all of these in one.
MAX_ENVS_JSON = 96 << 10
# Memory of an interpreter without any data, besides the executor's reserve.
MIN_USER_MEMORY = 64 * MIB
# Storage for the executor's own /tmp and the container's logs.
MIN_EPHEMERAL_STORAGE = 128 * MIB

LIMITS = "executionLimits"
LONGEST = f"{LIMITS}.maxTimeoutSeconds"
RESOURCES = "resources.limits"
# Users above are of no image; the session has no more.
USER = re.compile(r"|root|[0-9]{1,4}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5]")
# Fields that are shown in Mi.
SIZES = {"workspace.size"} | {
    f"{where}.{column.at.word}"
    for where, kind in ((LIMITS, Limits), (RESOURCES, Resources))
    for column in table(kind)
    if column.at.read is in_bytes
}

# Who sets the limits: the template for its sandboxes, the installation for inline templates.
TEMPLATE, INSTALLATION = "the template", "the installation"

Number = TypeVar("Number", int, float)
Table = TypeVar("Table", Resources, Limits)


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why no pod is created. The message is "cannot X: why"."""

    reason: Reason
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Effective(TemplateSpec):
    """A template with every value that a pod is made from: lowered by the sandbox's spec, every default filled in."""

    # Name of the SandboxTemplate; empty for an inline template.
    template: str
    # The sandbox has an egress list of its own instead of its template's.
    own_egress: bool
    contract: Contract
    # None: no end.
    lifetime: float | None
    idle_timeout: float | None

    @property
    def retention(self) -> Retention:
        return self.workspace.retention or Retention.DELETE


def amount_of(wanted: Effective) -> Amount:
    """What a sandbox of it counts against the quota of a queue: what its pod requests."""
    # Through millionths, as Kubernetes rounds up: 0.1 + 0.2 cores are 300m.
    return Amount(sandboxes=1, cpu=math.ceil(round(wanted.requests.cpu * 10**6) / 1000), memory=wanted.requests.memory)


def executor_contract(wanted: Effective) -> str:
    """The contract that its executor is started with, and that tokens for it repeat."""
    return str(wanted.contract.value)


class _RefusedError(Exception):
    """Ends the merge with a refusal."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.refusal = Refusal(reason, message)


@remembered
def effective(template: TemplateSpec | None, sandbox: SandboxSpec, settings: Settings) -> Effective | Refusal:
    """Merges the template (None: the spec has an inline one) and the spec. The spec can only lower limits."""
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
    """The inline template, limited by the ceiling. Values that its owner may not set come from the ceiling."""
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
    _check_egress(own.egress, ceiling.egress, settings, INSTALLATION)
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
        mounts={**ceiling.mounts, **own.mounts},
        egress=own.egress,
        contracts=own.contracts,
        max_lifetime=_lowered_time("maxLifetimeSeconds", own.max_lifetime, ceiling.max_lifetime, INSTALLATION),
        max_idle_timeout=_lowered_time(
            "maxIdleTimeoutSeconds", own.max_idle_timeout, ceiling.max_idle_timeout, INSTALLATION
        ),
    )


def _filled(own: TemplateSpec, ceiling: TemplateSpec) -> TemplateSpec:
    """Fills in what the owner has not written: a template's default, or the ceiling if that is lower."""
    size = _usual(own.workspace.size, DEFAULTS.workspace.size, ceiling.workspace.size)
    return replace(
        own,
        resources=_usual_of(own.resources, DEFAULTS.resources, ceiling.resources),
        requests=_usual_of(own.requests, DEFAULTS.requests, Resources()),
        limits=_usual_of(own.limits, DEFAULTS.limits, ceiling.limits),
        workspace=replace(own.workspace, size=size),
        contracts=own.contracts or ceiling.contracts,
    )


def _usual(written: Number, default: Number, most: Number) -> Number:
    return written or (min(default, most) if most else default)


def _usual_of(written: Table, default: Table, most: Table) -> Table:
    """The same for each number of resources or limits."""
    found = {
        column.name: _usual(*(getattr(one, column.name) for one in (written, default, most)))
        for column in table(type(written))
    }
    return replace(written, **found)


def with_image(wanted: Effective, image: str, settings: Settings) -> Effective | Refusal:
    """The same with the image that a claim names."""
    try:
        return replace(wanted, image=_named_image(wanted, image, settings))
    except _RefusedError as refused:
        return refused.refusal


def _named_image(template: TemplateSpec, image: str, settings: Settings) -> str:
    """The image that a sandbox names in the place of its template's."""
    if not image_allowed(image, template.images):
        listed = f"only {', '.join(template.images)}" if template.images else "none (field images)"
        why = f"its template allows {listed} in the place of its own"
        raise _RefusedError(Reason.IMAGE_NOT_ALLOWED, f"cannot take image {image!r}: {why}")
    _check_image(image, settings)
    return image


def _check_image(image: str, settings: Settings) -> None:
    if not image_allowed(image, settings.allowed_images):
        why = f"image {image!r} is not on the installation's list (Helm value allowedImages)"
        raise _RefusedError(Reason.IMAGE_NOT_ALLOWED, f"cannot make a sandbox: {why}")


def _check_template(template: TemplateSpec, settings: Settings) -> None:
    _check_image(template.image, settings)
    for pattern in template.images:
        if not is_pattern(pattern):
            why = f"images has {pattern[:100]!r}, which is neither an image nor REPOSITORY:* nor REPOSITORY@sha256:*"
            raise _RefusedError(Reason.TEMPLATE_INVALID, f"cannot use the template: {why}")
    if not template.runtime_class:
        raise _RefusedError(Reason.TEMPLATE_INVALID, "cannot use the template: it names no runtime class")
    _check_executor(template, settings)
    if not template.contracts:
        raise _RefusedError(Reason.TEMPLATE_INVALID, "cannot use the template: it allows no contract")
    _check_sizes(template)
    _check_room(template.resources, settings, Reason.TEMPLATE_INVALID)
    if why := _no_room_for(template.workspace.size if template.workspace.ephemeral else 0, template.resources):
        raise _RefusedError(Reason.TEMPLATE_INVALID, f"cannot use the template: {why}")
    try:
        check_egress(template.egress)
        lists.check(template.egress, settings.egress.sets, is_installed=bool(settings.egress.service))
        check_services(template.services)
        check_packages(template.packages, template.packages_timeout)
        check_preload(template.preload)
        check_mounts(template.mounts)
        check_placement(template)
    except FleetError as error:
        raise _RefusedError(Reason.TEMPLATE_INVALID, f"cannot use the template: {error.problem.message}") from None
    for name, value in _numbers(template.requests).items():
        most = getattr(template.resources, name)
        if value > most:
            why = f"its request for {name} of {value:g} is above its limit of {most:g}"
            raise _RefusedError(Reason.TEMPLATE_INVALID, f"cannot use the template: {why}")


def _check_executor(template: TemplateSpec, settings: Settings) -> None:
    if template.executor is ExecutorPlace.BESIDE and not settings.executor.image:
        why = "the installation names no executor to bring (Helm value settings.executor.image)"
        raise _RefusedError(Reason.TEMPLATE_INVALID, f"cannot use the template: {why}")
    if not USER.fullmatch(template.user):
        why = f"user is {template.user!r}, and has to be root, a number up to 65535, or empty for the image's"
        raise _RefusedError(Reason.TEMPLATE_INVALID, f"cannot use the template: {why}")


def _check_sizes(template: TemplateSpec) -> None:
    sizes = (*_numbers(template.resources).items(), ("workspace.size", template.workspace.size))
    for name, value in sizes:
        if not value:
            raise _RefusedError(Reason.TEMPLATE_INVALID, f"cannot use the template: it has no limit for {name}")
    for column in table(Limits):
        most = BOUNDS[column.name].most
        if most is not None and getattr(template.limits, column.name) > most:
            why = f"its {LIMITS}.{column.at.word} is above {most >> 30}Gi"
            raise _RefusedError(Reason.TEMPLATE_INVALID, f"cannot use the template: {why}")


def _merged(template: TemplateSpec, sandbox: SandboxSpec, name: str, settings: Settings) -> Effective:
    resources = _lowered_resources(sandbox.resources, template.resources)
    workspace = _lowered_workspace(sandbox.workspace, template.workspace)
    contract = sandbox.contract or template.contracts[0]
    egress = _egress(template, sandbox, contract)
    envs = {**template.envs, **sandbox.envs}
    mounts = {**template.mounts, **sandbox.mounts}
    _check_contract(contract, template.contracts)
    _check_no_secrets(template, contract)
    _check_egress(egress, template.egress, settings)
    _check_requests(egress, template.egress, settings)
    _check_envs(envs)
    check_mounts(mounts)
    _check_room(resources, settings, Reason.INVALID_SPEC)
    if why := _no_room_for(workspace.size if workspace.ephemeral else 0, resources):
        raise _RefusedError(Reason.INVALID_SPEC, f"cannot make a sandbox: {why}")
    limits = _lowered_limits(sandbox.limits, template.limits, resources.memory - settings.memory_reserve)
    given = {one.name: getattr(template, one.name) for one in fields(TemplateSpec)}
    lowered: dict[str, Any] = {
        "image": _named_image(template, sandbox.image, settings) if sandbox.image else template.image,
        "resources": resources,
        "requests": _lowered_requests(template.requests, resources),
        "limits": _on_volume(limits, workspace),
        "workspace": workspace,
        "envs": envs,
        "mounts": mounts,
        "egress": egress,
    }
    _check_fits(resources, workspace, settings)
    return Effective(
        **given | lowered,
        template=name,
        # Of addresses: to hosts by name the egress process alone leads.
        own_egress=not name or (egress.allow, egress.dns) != (template.egress.allow, template.egress.dns),
        contract=contract,
        lifetime=_lowered_time("lifetimeSeconds", sandbox.lifetime, template.max_lifetime),
        idle_timeout=_lowered_time("idleTimeoutSeconds", sandbox.idle_timeout, template.max_idle_timeout),
    )


def _check_fits(resources: Resources, workspace: Workspace, settings: Settings) -> None:
    _check_room(resources, settings, Reason.INVALID_SPEC)
    if why := _no_room_for(workspace.size if workspace.ephemeral else 0, resources):
        raise _RefusedError(Reason.INVALID_SPEC, f"cannot make a sandbox: {why}")


def _lowered(what: str, wish: Number, most: Number, whose: str = TEMPLATE) -> Number:
    """The wish, or the maximum if the wish is 0."""
    if not (0 <= wish < math.inf or (wish == math.inf and what == LONGEST)):
        raise _RefusedError(Reason.INVALID_SPEC, f"cannot set {what} to {wish:g}: it has to be a number above 0")
    if wish > most:
        raise _above(what, _shown(what, wish), _shown(what, most), whose)
    return wish or most


def _shown(what: str, value: float) -> str:
    if value == math.inf:
        return "0 (no longest one)"
    return f"{value / MIB:.10g}Mi" if what in SIZES else f"{value:.10g}"


def _above(what: str, wish: str, most: str, whose: str) -> _RefusedError:
    return _RefusedError(Reason.ABOVE_TEMPLATE, f"cannot set {what} to {wish}: {whose} allows {most}")


def _lowered_time(what: str, wish: float | None, most: float | None, whose: str = TEMPLATE) -> float | None:
    if wish is None:
        return most
    if wish == 0:
        raise _RefusedError(Reason.INVALID_SPEC, f"cannot set {what} to 0: it has to be a number above 0")
    return _lowered(what, wish, math.inf if most is None else most, whose)


def _numbers(resources: Resources) -> dict[str, Any]:
    return {one.name: getattr(resources, one.name) for one in fields(Resources)}


def _lowered_resources(wish: Resources, most: Resources, whose: str = TEMPLATE) -> Resources:
    found = {
        column.name: _lowered(
            f"{RESOURCES}.{column.at.word}", getattr(wish, column.name), getattr(most, column.name), whose
        )
        for column in table(Resources)
    }
    return Resources(**found)


def _lowered_requests(requests: Resources, limits: Resources) -> Resources:
    """A request that is not given, or is above what its owner lowered the limit to, is the limit."""
    most = _numbers(limits)
    return Resources(**{name: min(value or most[name], most[name]) for name, value in _numbers(requests).items()})


def _lowered_limits(wish: Limits, template: Limits, memory: int, whose: str = TEMPLATE) -> Limits:
    """Lowers the limits as the executor does: the default timeout is at most the longest timeout.

    `memory` is the part of the container's memory for user code. At the container's own limit the kernel would end the
    whole sandbox.
    """
    values = {}
    for column in table(Limits):
        most = getattr(template, column.name) or getattr(TEMPLATE_LIMITS, column.name)
        values[column.name] = _lowered(f"{LIMITS}.{column.at.word}", getattr(wish, column.name), most, whose)
    values["default_timeout"] = min(values["default_timeout"], values["max_timeout"])
    given = [one for one in (wish.memory_bytes, template.memory_bytes, memory) if one > 0]
    return Limits(**values, memory_bytes=min(given))


def _on_volume(limits: Limits, workspace: Workspace) -> Limits:
    """Bounds the disk limit by the volume, whose size not every provisioner enforces. The kubelet evicts for it."""
    return replace(limits, disk_bytes=min(limits.disk_bytes, workspace.size) if workspace.size else limits.disk_bytes)


def _check_room(resources: Resources, settings: Settings, blamed: Reason) -> None:
    least = settings.memory_reserve + MIN_USER_MEMORY
    for name, value, needed in (
        ("memory", resources.memory, least),
        ("ephemeral-storage", resources.ephemeral_storage, MIN_EPHEMERAL_STORAGE),
    ):
        if value < needed:
            why = f"the executor and its runtime need {needed // MIB} MiB before anything else runs"
            raise _RefusedError(blamed, f"cannot run with resources.limits.{name} of {value / MIB:.4g} MiB: {why}")


def _no_room_for(files: int, resources: Resources) -> str:
    """Why an ephemeral workspace does not fit; empty if it does. Its files count as the pod's ephemeral storage."""
    needed, most = files + MIN_EPHEMERAL_STORAGE, resources.ephemeral_storage
    if not files or needed <= most:
        return ""
    return f"an ephemeral workspace needs ephemeral-storage of {needed // MIB}Mi, and it has {most // MIB}Mi"


def _lowered_workspace(wish: Workspace, template: Workspace, whose: str = TEMPLATE) -> Workspace:
    """Merges the workspaces. The spec may name a storage class only if the template names none.

    An earlier workspace is retained unless the spec asks to delete it.
    """
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
        names = ", ".join(one.word for one in allowed)
        message = f"cannot take contract {wish.word}: {whose} allows {names}"
        raise _RefusedError(Reason.CONTRACT_NOT_ALLOWED, message)


def _egress(template: TemplateSpec, sandbox: SandboxSpec, contract: Contract) -> Egress:
    """What the sandbox may reach: with the contract Brokered nothing, whatever its template says."""
    own = sandbox.egress
    if contract is not Contract.BROKERED:
        # Secrets are the template's alone.
        return template.egress if own is None else replace(own, sets=(), credentials=template.egress.credentials)
    if own is not None and not (allows_nothing(own) and not own.by_name):
        message = "cannot allow egress: contract Brokered allows none; offer a tool that does what is needed"
        raise _RefusedError(Reason.EGRESS_NOT_ALLOWED, message)
    return Egress()


def _check_no_secrets(template: TemplateSpec, contract: Contract) -> None:
    """Code that calls tools of its host has no authority of its own."""
    if contract is Contract.BROKERED and template.secret_envs:
        named = ", ".join(sorted({one.secret for one in template.secret_envs}))
        why = f"the template gives its code Secrets ({named}); the tools of the host are to have them"
        raise _RefusedError(Reason.CONTRACT_NOT_ALLOWED, f"cannot take contract {contract.word}: {why}")


def _check_egress(wish: Egress, allowed: Egress, settings: Settings, whose: str = TEMPLATE) -> None:
    outside = first_outside(wish, allowed) or lists.outside(wish, allowed, settings.egress.sets)
    if outside:
        message = f"cannot allow egress to {outside}: {whose} does not allow it"
        raise _RefusedError(Reason.EGRESS_NOT_ALLOWED, message)


def _check_requests(wish: Egress, allowed: Egress, settings: Settings) -> None:
    """Warm pods are made from the template: it decides whether their programs trust the egress process."""
    sets = settings.egress.sets
    if unread := lists.first_unread(lists.names_of(wish, sets), allowed, lists.names_of(allowed, sets)):
        message = (
            f"cannot allow egress to {unread}: {TEMPLATE} has neither, so that programs would not trust what reads"
        )
        raise _RefusedError(Reason.EGRESS_NOT_ALLOWED, f"{message} their requests")


def envs_size(envs: Mapping[str, str]) -> int:
    """Bytes of the environment as a pod has it."""
    return len(json.dumps(dict(envs)))


def _check_envs(envs: Mapping[str, str]) -> None:
    check_envs(envs, doing="set the environment")
    size = envs_size(envs)
    if size > MAX_ENVS_JSON:
        why = f"{size} bytes as JSON are more than {MAX_ENVS_JSON}"
        raise _RefusedError(Reason.INVALID_SPEC, f"cannot set the environment: {why}")

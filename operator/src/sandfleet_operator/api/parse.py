"""Objects of the API server, as JSON, to the values of resources.py, and the status back.

Unknown fields are ignored; wrong types raise FleetError with "cannot read PATH: why". What the schema fills in is filled in here as well, so
that an object reads the same whether or not an API server has seen it. Bounds are the schema's; what a template allows is the plan's.
"""

from collections.abc import Mapping
from dataclasses import replace

from sandfleet_operator.api import packages, services
from sandfleet_operator.api.fields import Fields, unreadable
from sandfleet_operator.api.resources import (
    CodeSandbox,
    Condition,
    Contract,
    Egress,
    EgressRule,
    Meta,
    OperatingMode,
    PoolSpec,
    PoolStatus,
    Port,
    QueueSpec,
    Resources,
    Restart,
    Retention,
    Rollback,
    SandboxPool,
    SandboxQueue,
    SandboxSpec,
    SandboxStatus,
    SandboxTemplate,
    SecretEnv,
    ServiceState,
    ServiceStatus,
    TemplateSpec,
    Workspace,
)
from sandfleet_operator.api.times import time_text
from sandfleet_operator.api.values import TEMPLATE_LIMITS, Limits

GIB = 1 << 30
MOST = Resources(cpu=1.0, memory=2 * GIB, ephemeral_storage=4 * GIB)
REQUESTS = Resources(cpu=0.25, memory=GIB // 2, ephemeral_storage=GIB)
WORKSPACE = Workspace(size=GIB, retention=Retention.DELETE)
SERVICE_STATES = {one.value: one for one in ServiceState}


def code_sandbox(value: object) -> CodeSandbox:
    fields = Fields.of(value, "")
    return CodeSandbox(
        meta=_meta(fields), spec=_sandbox_spec(fields.inner("spec")), status=_status(fields.inner("status"))
    )


def sandbox_template(value: object) -> SandboxTemplate:
    fields = Fields.of(value, "")
    return SandboxTemplate(meta=_meta(fields), spec=_template_spec(fields.inner("spec")))


def sandbox_pool(value: object) -> SandboxPool:
    fields = Fields.of(value, "")
    spec = fields.inner("spec")
    pool = PoolSpec(
        template=spec.required_text("template"),
        size=spec.required_integer("size"),
        target_hit_rate=spec.maybe_number("targetHitRate"),
        max_warm=spec.maybe_integer("maxWarm"),
        max_size=spec.maybe_integer("maxSize"),
        max_starting=spec.maybe_integer("maxStarting"),
    )
    return SandboxPool(meta=_meta(fields), spec=pool)


def sandbox_queue(value: object) -> SandboxQueue:
    fields = Fields.of(value, "")
    spec = fields.inner("spec")
    queue = QueueSpec(
        weight=float(spec.integer("weight", 1)),
        cohort=spec.text("cohort"),
        nominal_quota=spec.required_integer("nominalQuota"),
        borrowing_limit=spec.maybe_integer("borrowingLimit"),
        lending_limit=spec.maybe_integer("lendingLimit"),
    )
    return SandboxQueue(meta=_meta(fields), spec=queue)


def status_json(status: SandboxStatus) -> dict[str, object]:
    """Every field, null where there is nothing to say, so that a merge patch removes what an older status said."""
    return {
        "observedGeneration": status.observed_generation,
        "conditions": [_condition_json(one) for one in status.conditions],
        "podName": status.pod or None,
        "podUID": status.pod_uid or None,
        "nodeName": status.node or None,
        "address": status.address or None,
        "runtime": status.runtime or None,
        "imageDigest": status.image_digest or None,
        "workspaceClaimName": status.workspace_claim or None,
        "restarts": status.restarts,
        "restartHistory": [_restart_json(one) for one in status.restart_history],
        "crashes": status.crashes,
        "services": [_service_json(one) for one in status.services] or None,
        "servicesReady": status.services_ready or None,
        "fencing": status.fencing,
    }


def pool_status_json(status: PoolStatus) -> dict[str, object]:
    """Every field, as above. The hit rate is given to a thousandth: it changes with each claim."""
    return {
        "observedGeneration": status.observed_generation,
        "conditions": [_condition_json(one) for one in status.conditions],
        "targetWarm": status.target_warm,
        "size": status.size,
        "warm": status.warm,
        "starting": status.starting,
        "claimed": status.claimed,
        "waiting": status.waiting,
        "hitRate": None if status.hit_rate is None else round(status.hit_rate, 3),
    }


def _condition_json(one: Condition) -> dict[str, object]:
    return {
        "type": one.type,
        "status": one.status,
        "reason": one.reason,
        "message": one.message,
        "lastTransitionTime": time_text(one.changed),
        "observedGeneration": one.observed_generation,
    }


def _restart_json(one: Restart) -> dict[str, object]:
    return {"reason": one.reason, "message": one.message, "time": time_text(one.time)}


def _service_json(one: ServiceStatus) -> dict[str, object]:
    """What there is nothing to say of is left out."""
    said = {"reason": one.reason, "message": one.message, "ports": list(one.ports)}
    found = {"name": one.name, "state": one.state.value, "restarts": one.restarts}
    return found | {name: value for name, value in said.items() if value}


def _meta(fields: Fields) -> Meta:
    meta = fields.inner("metadata")
    return Meta(
        namespace=meta.text("namespace"),
        name=meta.required_text("name"),
        uid=meta.text("uid"),
        generation=meta.integer("generation"),
        resource_version=meta.text("resourceVersion"),
        labels=meta.mapping("labels"),
        annotations=meta.mapping("annotations"),
        created=meta.time("creationTimestamp"),
        deleting=meta.has("deletionTimestamp"),
    )


def _sandbox_spec(spec: Fields) -> SandboxSpec:
    if spec.has("template") == spec.has("inline"):
        raise unreadable(spec.path, "exactly one of template and inline has to be there")
    return SandboxSpec(
        template=spec.text("template"),
        inline=_inline_spec(spec.inner("inline")) if spec.has("inline") else None,
        pool=spec.text("pool"),
        queue=spec.text("queue"),
        operating_mode=spec.choice("operatingMode", OperatingMode) or OperatingMode.RUNNING,
        workspace=_workspace(spec.inner("workspace"), Workspace()),
        resources=_resources(spec.inner("resources"), Resources()),
        limits=_limits(spec.inner("limits"), Limits()),
        envs=_envs(spec),
        egress=_egress(spec.inner("egress")) if spec.has("egress") else None,
        contract=spec.choice("contract", Contract),
        lifetime=spec.maybe_seconds("lifetimeSeconds"),
        idle_timeout=spec.maybe_seconds("idleTimeoutSeconds"),
    )


def _template_spec(spec: Fields) -> TemplateSpec:
    resources = _resources(spec.inner("resources").inner("limits"), MOST)
    return TemplateSpec(
        image=spec.required_text("image"),
        image_pull_policy=spec.text("imagePullPolicy", "IfNotPresent"),
        image_pull_secrets=tuple(one.required_text("name") for one in spec.items("imagePullSecrets")),
        runtime_class=spec.text("runtimeClassName", "gvisor"),
        resources=resources,
        requests=_at_most(_resources(spec.inner("resources").inner("requests"), REQUESTS), resources),
        limits=_limits(spec.inner("limits"), TEMPLATE_LIMITS),
        rollback=_rollback(spec.inner("rollback")),
        workspace=_workspace(spec.inner("workspace"), WORKSPACE),
        envs=_envs(spec),
        secret_envs=tuple(_secret_env(one) for one in spec.items("envFrom")),
        services=services.read(spec),
        packages=spec.texts("packages"),
        packages_timeout=float(spec.integer("packagesTimeoutSeconds", packages.DEFAULT_SECONDS)),
        egress=_egress(spec.inner("egress")),
        contracts=spec.choices("contracts", Contract) or (Contract.AUTONOMOUS,),
        max_lifetime=spec.maybe_seconds("maxLifetimeSeconds"),
        max_idle_timeout=spec.maybe_seconds("maxIdleTimeoutSeconds"),
        node_selector=spec.mapping("nodeSelector"),
        tolerations=tuple(dict(one.values) for one in spec.items("tolerations")),
        priority_class=spec.text("priorityClassName"),
    )


def _inline_spec(spec: Fields) -> TemplateSpec:
    """What is not written stays open, 0 or empty: whether a default fits is said by the settings, and not known here."""
    resources, workspace = spec.inner("resources"), spec.inner("workspace")
    return replace(
        _template_spec(spec),
        resources=_resources(resources.inner("limits"), Resources()),
        requests=_resources(resources.inner("requests"), Resources()),
        limits=_limits(spec.inner("limits"), Limits()),
        workspace=_workspace(workspace, replace(WORKSPACE, size=0)),
        contracts=spec.choices("contracts", Contract),
    )


def _resources(fields: Fields, default: Resources) -> Resources:
    return Resources(
        cpu=fields.cores("cpu", default.cpu),
        memory=fields.size("memory", default.memory),
        ephemeral_storage=fields.size("ephemeralStorage", default.ephemeral_storage),
    )


def _at_most(requests: Resources, limits: Resources) -> Resources:
    """A template that lowers a limit does not have to lower the request that the schema fills in."""
    return Resources(
        cpu=min(requests.cpu, limits.cpu),
        memory=min(requests.memory, limits.memory),
        ephemeral_storage=min(requests.ephemeral_storage, limits.ephemeral_storage),
    )


def _limits(fields: Fields, default: Limits) -> Limits:
    """Without memory: what user code gets of it is planned from the container's, which is written under resources."""
    return Limits(
        tmp_bytes=fields.size("tmp", default.tmp_bytes),
        processes=fields.integer("processes", default.processes),
        output_bytes=fields.size("output", default.output_bytes),
        executions=fields.integer("executions", default.executions),
        max_timeout=float(fields.integer("maxTimeoutSeconds", int(default.max_timeout))),
        default_timeout=float(fields.integer("defaultTimeoutSeconds", int(default.default_timeout))),
        open_files=fields.integer("openFiles", default.open_files),
        disk_bytes=fields.size("disk", default.disk_bytes),
    )


def _rollback(fields: Fields) -> Rollback:
    size = fields.size("maxMemory", Rollback().max_memory_bytes)
    return Rollback(enabled=fields.flag("enabled", default=True), max_memory_bytes=size)


def _workspace(fields: Fields, default: Workspace) -> Workspace:
    return Workspace(
        size=fields.size("size", default.size),
        storage_class=fields.text("storageClassName") or default.storage_class,
        retention=fields.choice("retention", Retention) or default.retention,
        ephemeral=fields.flag("ephemeral"),
        claim_name=fields.text("claimName"),
    )


def _envs(fields: Fields) -> Mapping[str, str]:
    return {one.required_text("name"): one.text("value") for one in fields.items("env")}


def _secret_env(fields: Fields) -> SecretEnv:
    secret = fields.inner("secretRef")
    return SecretEnv(
        secret=secret.required_text("name"), prefix=fields.text("prefix"), optional=secret.flag("optional")
    )


def _egress(fields: Fields) -> Egress:
    return Egress(allow=tuple(_egress_rule(one) for one in fields.items("allow")), dns=fields.flag("dns"))


def _egress_rule(fields: Fields) -> EgressRule:
    ports = tuple(
        Port(protocol=one.text("protocol", "TCP"), port=one.required_integer("port"), end_port=one.integer("endPort"))
        for one in fields.items("ports")
    )
    return EgressRule(cidr=fields.required_text("cidr"), excluded=fields.texts("except"), ports=ports)


def _status(fields: Fields) -> SandboxStatus:
    return SandboxStatus(
        conditions=tuple(_condition(one) for one in fields.items("conditions")),
        observed_generation=fields.integer("observedGeneration"),
        pod=fields.text("podName"),
        pod_uid=fields.text("podUID"),
        node=fields.text("nodeName"),
        address=fields.text("address"),
        runtime=fields.text("runtime"),
        image_digest=fields.text("imageDigest"),
        workspace_claim=fields.text("workspaceClaimName"),
        restarts=fields.integer("restarts"),
        restart_history=tuple(_restart(one) for one in fields.items("restartHistory")),
        crashes=fields.integer("crashes"),
        services=tuple(_service(one) for one in fields.items("services")),
        services_ready=fields.text("servicesReady"),
        fencing=fields.integer("fencing"),
    )


def _service(fields: Fields) -> ServiceStatus:
    return ServiceStatus(
        name=fields.required_text("name"),
        # A word of a later version makes no sandbox unreadable.
        state=SERVICE_STATES.get(fields.text("state"), ServiceState.UNKNOWN),
        reason=fields.text("reason"),
        message=fields.text("message"),
        restarts=fields.integer("restarts"),
        ports=fields.integers("ports"),
    )


def _condition(fields: Fields) -> Condition:
    return Condition(
        type=fields.required_text("type"),
        status=fields.required_text("status"),
        reason=fields.text("reason"),
        message=fields.text("message"),
        changed=fields.time("lastTransitionTime"),
        observed_generation=fields.integer("observedGeneration"),
    )


def _restart(fields: Fields) -> Restart:
    return Restart(reason=fields.required_text("reason"), time=fields.time("time"), message=fields.text("message"))

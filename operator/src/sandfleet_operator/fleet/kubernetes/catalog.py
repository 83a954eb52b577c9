"""What there is to claim: pools and templates as the objects say it. It reads values and writes nothing."""

import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

from sandfleet_operator.api.conditions import PoolReason
from sandfleet_operator.api.errors import FleetError
from sandfleet_operator.api.kinds.meta import Meta, referred
from sandfleet_operator.api.kinds.pool import PoolSpec, SandboxPool, sandbox_pool
from sandfleet_operator.api.kinds.sandbox import CodeSandbox, SandboxSpec
from sandfleet_operator.api.kinds.template import (
    Contract,
    Egress,
    NetworkClosure,
    SandboxTemplate,
    TemplateSpec,
    sandbox_template,
)
from sandfleet_operator.api.kube import NETWORK_POLICY, SANDBOX_POOL, SANDBOX_TEMPLATE, Json, Ref
from sandfleet_operator.api.reasons import ClaimReason
from sandfleet_operator.api.settings import Settings
from sandfleet_operator.api.values import Amount, Isolation, Template
from sandfleet_operator.cluster.store import Store
from sandfleet_operator.plan.claims.record import MAX_IMAGE
from sandfleet_operator.plan.pods import names
from sandfleet_operator.plan.pods.egress import allows_nothing
from sandfleet_operator.plan.pods.merge import Effective, Refusal, amount_of, effective, executor_contract, with_image
from sandfleet_operator.plan.pods.networkpolicy import default_deny, template_egress
from sandfleet_operator.plan.pods.openings import listed, openers
from sandfleet_operator.plan.pods.podspec import made_from, spec_hash
from sandfleet_operator.plan.pods.revision import revision_of
from sandfleet_operator.plan.sandbox.dependencies import is_in_place
from sandfleet_operator.plan.sandbox.observed import Pod
from sandfleet_operator.plan.scheduler.refill import Pool

# Seconds of a lease where the claim names none.
LEASE = 300.0
# Of the pools that have no object: NAMESPACE/~TEMPLATE, which no object can be called, and NAMESPACE/~TEMPLATE~CONTRACT
# of another contract than autonomous.
COLD = "~"


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """What the pods of a pool are made from. `wanted` is None where there can be none now: `closed` says why."""

    namespace: str
    # Of the SandboxPool; empty for cold starts of a template that no pool keeps warm.
    pool: str
    template: str
    spec: PoolSpec
    # The object that a pod goes with while it is warm.
    owner_kind: str
    owner: Meta | None
    wanted: Effective | None = None
    revision: str = ""
    # The manifest that keeps the template's spec.
    kept: Json | None = None
    closed: str = ""
    # What is wrong with the template, for people.
    why: str = ""
    # Seconds: the pool's, otherwise the template's; None where neither is known.
    start_timeout: float | None = None

    # Of cold starts; a pool has the first of its template.
    contract: str = Contract.AUTONOMOUS.value

    @property
    def name(self) -> str:
        return pool_name(self.namespace, self.pool, self.template, self.contract)

    @property
    def egress_class(self) -> str:
        """The value of the label that opens what the template allows; empty where that is nothing."""
        if self.wanted is None or allows_nothing(self.wanted.egress):
            return ""
        return names.bounded(self.template)


def pool_name(namespace: str, pool: str, template: str, contract: str = Contract.AUTONOMOUS.value) -> str:
    """What the scheduler calls it."""
    suffix = "" if contract == Contract.AUTONOMOUS.value else f"{COLD}{contract}"
    return f"{namespace}/{pool or COLD + template + suffix}"


class Catalog:
    def __init__(self, store: Store, settings: Settings) -> None:
        self._store = store
        self._settings = settings
        # Namespaces whose executors have the keys to check tokens with.
        self.keyed: set[str] = set()
        # Names of the pools without an object that were claimed from.
        self._cold: set[str] = set()
        # By name, with what each follows from: a claim asks for its recipe several times.
        self._known: dict[str, tuple[tuple[object, ...], Recipe | None]] = {}

    def recipes(self) -> Iterator[Recipe]:
        """All that can be claimed from now."""
        for obj in self._store.all(SANDBOX_POOL):
            meta = obj["metadata"]
            if recipe := self.recipe(pool_name(meta["namespace"], meta["name"], "")):
                yield recipe
        for name in sorted(self._cold):
            if recipe := self.recipe(name):
                yield recipe

    def recipe(self, name: str) -> Recipe | None:
        """By the scheduler's name."""
        namespace, _, rest = name.partition("/")
        pool = None if rest.startswith(COLD) else self._store.get(Ref(SANDBOX_POOL, namespace, rest))
        cold, _, contract = rest.removeprefix(COLD).partition(COLD)
        template = referred(pool, "templateRef") if pool else cold
        wanted = self._store.get(Ref(SANDBOX_TEMPLATE, namespace, template))
        if pool is None and (wanted is None or not rest.startswith(COLD)):
            self._known.pop(name, None)
            return None
        basis = (pool, wanted, self._store.changes(NETWORK_POLICY), namespace in self.keyed)
        known = self._known.get(name)
        if known is None or known[0] != basis:
            found = self._of_pool(pool) if pool else self._of_template(namespace, template, contract)
            known = self._known[name] = basis, found
        return known[1]

    def resolve(self, namespace: str, pool: str, template: str, contract: Contract | None = None) -> Recipe:
        """What a claim asks for. Raises FleetError where there is no such thing.

        A pool's sandboxes have the first contract of its template. Of another one, the claim's starts cold. A pool
        that starts from a snapshot serves only claims that name it.
        """
        if pool:
            found = self.recipe(pool_name(namespace, pool, ""))
            if found is None or (template and template != found.template):
                what = f"pool {pool!r}" + (f" of template {template!r}" if found else "")
                raise _missing(ClaimReason.POOL_NOT_FOUND, f"there is no {what} in namespace {namespace}", pool)
            return found if _has(found, contract) else self._cold_of(namespace, found.template, contract)
        template = template or Template().name
        named = [pool_name(namespace, obj["metadata"]["name"], "") for obj in self._store.all(SANDBOX_POOL, namespace)]
        pools = map(self.recipe, named)
        of_template = [one for one in pools if one is not None and one.template == template and _has(one, contract)]
        if empty := [one for one in of_template if not one.spec.snapshot]:
            return min(empty, key=lambda one: one.pool)
        return self._cold_of(namespace, template, contract)

    def _cold_of(self, namespace: str, template: str, contract: Contract | None) -> Recipe:
        """Cold starts of a template; None: with its first contract. Raises FleetError."""
        known = self._template(namespace, template)
        first = known.spec.contracts[:1] if isinstance(known, SandboxTemplate) else ()
        named = contract or next(iter(first), Contract.AUTONOMOUS)
        name = pool_name(namespace, "", template, named.value)
        found = self.recipe(name)
        if found is None:
            raise _missing(
                ClaimReason.TEMPLATE_NOT_FOUND,
                f"there is no SandboxTemplate {template!r} in namespace {namespace}",
                template,
            )
        self._cold.add(name)
        return found

    def check_image(self, recipe: Recipe, image: str) -> None:
        """Raises FleetError where a claim of the recipe cannot have this image."""
        why = ""
        if image and recipe.spec.snapshot:
            why = f"cannot take image {image!r}: pool {recipe.pool} starts from a snapshot, which is of its own image"
        elif image and recipe.wanted is not None:
            refusal = with_image(recipe.wanted, image, self._settings)
            why = refusal.message if isinstance(refusal, Refusal) else ""
        if why:
            raise ClaimReason.IMAGE_UNAVAILABLE.error(why, image[:MAX_IMAGE])

    def forget(self, name: str) -> None:
        """Forgets a template that is not claimed without a pool any more."""
        self._cold.discard(name)

    def pool_of(self, recipe: Recipe) -> Pool:
        """For the scheduler, of as many sandboxes as its spec says."""
        template = Template(name=recipe.template, lease=LEASE)
        if recipe.wanted is not None:
            gvisor = recipe.wanted.runtime_class in self._settings.gvisor_classes
            isolation = Isolation.GVISOR if gvisor else Isolation.NAMESPACE
            template = Template(
                name=recipe.template,
                isolation=isolation,
                # A claim may lower what the container has.
                limits=replace(recipe.wanted.limits, cpus=recipe.wanted.resources.cpu),
                lease=LEASE,
                amount=amount_of(recipe.wanted),
                contract=executor_contract(recipe.wanted),
            )
        return Pool(
            name=recipe.name,
            template=template,
            target_warm=recipe.spec.replicas,
            most=recipe.spec.max_size,
            max_starting=recipe.spec.max_starting,
            start_timeout=recipe.start_timeout,
            revision=recipe.revision,
            closed=recipe.closed,
        )

    def _of_pool(self, obj: Mapping[str, Any]) -> Recipe | None:
        try:
            pool = sandbox_pool(obj)
        except FleetError as error:
            return _unreadable(obj, error)
        return None if pool.meta.deleting else self._recipe(pool)

    def template_spec(self, namespace: str, template: str) -> TemplateSpec | None:
        """The template as it is now; None where it is gone or cannot be read."""
        found = self._template(namespace, template)
        return found.spec if isinstance(found, SandboxTemplate) else None

    def _of_template(self, namespace: str, name: str, contract: str) -> Recipe | None:
        found = self._template(namespace, name)
        if found is None or isinstance(found, FleetError):
            return None
        spec = PoolSpec(template=name, replicas=0)
        pool = SandboxPool(meta=Meta(namespace=namespace, name="", uid=""), spec=spec)
        named = next((one for one in Contract if one.value == contract), Contract.AUTONOMOUS)
        return self._recipe(pool, found.meta, named)

    def _recipe(self, pool: SandboxPool, cold_owner: Meta | None = None, contract: Contract | None = None) -> Recipe:
        namespace = pool.meta.namespace
        template = self._template(namespace, pool.spec.template)
        manifest = self._store.get(Ref(SANDBOX_TEMPLATE, namespace, pool.spec.template))
        wanted = self._wanted(template, contract)
        known = wanted if isinstance(wanted, Effective) else None
        readable = None if isinstance(template, FleetError) else template
        closed, why = self._closed(pool, readable) if isinstance(wanted, Effective) else wanted
        return Recipe(
            namespace=namespace,
            pool=pool.meta.name,
            template=pool.spec.template,
            spec=pool.spec,
            owner_kind="SandboxTemplate" if cold_owner else "SandboxPool",
            owner=cold_owner or pool.meta,
            wanted=known,
            revision=made_from(spec_hash(known, self._settings), pool.spec.snapshot) if known else "",
            kept=revision_of(manifest) if known and manifest else None,
            closed=closed,
            why=why,
            contract=(contract or Contract.AUTONOMOUS).value,
            start_timeout=pool.spec.start_timeout or (readable.spec.start_timeout if readable else None),
        )

    def _wanted(
        self, template: SandboxTemplate | FleetError | None, contract: Contract | None
    ) -> Effective | tuple[str, str]:
        """Or the reason why there can be none, and the words for it."""
        if template is None:
            return PoolReason.TEMPLATE_NOT_FOUND.value, ""
        if isinstance(template, FleetError):
            return PoolReason.TEMPLATE_INVALID.value, template.problem.message
        asked = SandboxSpec(template=template.meta.name, contract=contract)
        wanted = effective(template.spec, asked, self._settings)
        return (PoolReason.TEMPLATE_INVALID.value, wanted.message) if isinstance(wanted, Refusal) else wanted

    def _closed(self, pool: SandboxPool, template: SandboxTemplate | None) -> tuple[str, str]:
        """Why nothing may be started or handed out: what isolates has to be there before. A reason and a message."""
        namespace = pool.meta.namespace
        needed = [default_deny(namespace, self._settings)]
        if template is not None and (opening := template_egress(template, self._settings)):
            needed.append(opening)
        there = self._store.specs(NETWORK_POLICY, namespace)
        if not all(is_in_place(one, there) for one in needed) or namespace not in self.keyed:
            return PoolReason.POLICY_MISSING.value, ""
        if template is None or template.spec.network_closure is not NetworkClosure.REQUIRED:
            return "", ""
        found = self._openers(pool.meta.name, template.meta.name, there)
        return (PoolReason.OPENED_BY_OTHERS.value, f"opened by {listed(found)}") if found else ("", "")

    def _openers(self, pool: str, template: str, there: Mapping[str, Mapping[str, Any]]) -> tuple[str, ...]:
        """Policies of others that open, or may open, the pods of a pool."""
        name = names.bounded(template)
        labels = names.own_labels(**{names.TEMPLATE: name}) | ({names.POOL: names.bounded(pool)} if pool else {})
        # What only a claim says: which sandbox it is, and labels of its own.
        unknown = frozenset({names.SANDBOX, names.STATE, *self._settings.copied_labels})
        expected = [names.DEFAULT_DENY, names.class_policy(template)]
        # A claim decides whether its pod may reach what the template allows.
        found = (openers(there, known, expected, unknown) for known in (labels, labels | {names.EGRESS_CLASS: name}))
        return tuple(sorted(set(chain.from_iterable(found))))

    def egress(self, namespace: str, template: str) -> Egress:
        """What a template opens; nothing where it is gone, since its policy goes with it."""
        found = self.recipe(pool_name(namespace, "", template))
        return found.wanted.egress if found and found.wanted else Egress()

    def amount_of(self, sandbox: CodeSandbox) -> Amount | None:
        """What its pod would count against a quota; None where its template is missing or refuses it."""
        template = self._template(sandbox.meta.namespace, sandbox.spec.template)
        if sandbox.spec.template and not isinstance(template, SandboxTemplate):
            return None
        of = template.spec if isinstance(template, SandboxTemplate) else None
        wanted = effective(of, sandbox.spec, self._settings)
        return amount_of(wanted) if isinstance(wanted, Effective) else None

    def _template(self, namespace: str, name: str) -> SandboxTemplate | FleetError | None:
        """The error where it cannot be read."""
        obj = self._store.get(Ref(SANDBOX_TEMPLATE, namespace, name))
        try:
            return sandbox_template(obj) if obj else None
        except FleetError as error:
            return error


def _unreadable(obj: Mapping[str, Any], error: FleetError) -> Recipe | None:
    """A pool that nothing can be made from; its status says why."""
    meta = obj["metadata"]
    if "deletionTimestamp" in meta:
        return None
    owner = Meta(namespace=meta["namespace"], name=meta["name"], uid=meta["uid"], generation=meta.get("generation", 0))
    return Recipe(
        namespace=owner.namespace,
        pool=owner.name,
        template=referred(obj, "templateRef"),
        spec=PoolSpec(template="", replicas=0),
        owner_kind="SandboxPool",
        owner=owner,
        closed=PoolReason.UNREADABLE.value,
        why=error.problem.message,
    )


def _has(recipe: Recipe, contract: Contract | None) -> bool:
    """Whether its pods have the contract; None: any. The pods of a template that cannot be used have none."""
    return contract is None or recipe.wanted is None or recipe.wanted.contract is contract


def _missing(reason: ClaimReason, why: str, subject: str) -> FleetError:
    return reason.error(f"cannot claim: {why}", subject[:80])


# Of the names of pods.
ALPHABET = "abcdefghijklmnopqrstuvwxyz0123456789"
SUFFIX = 8


def new_name(pool: str) -> str:
    """What the scheduler calls a new pod of the pool."""
    namespace, _, name = pool.partition("/")
    suffix = "".join(secrets.choice(ALPHABET) for _ in range(SUFFIX))
    return f"{namespace}/{names.pod_name(name.removeprefix(COLD).replace(COLD, '-'), suffix)}"


def key_of(obj: Mapping[str, Any]) -> str:
    """NAMESPACE/NAME: what the scheduler calls a pod."""
    return f"{obj['metadata']['namespace']}/{obj['metadata']['name']}"


def pool_of_pod(namespace: str, pod: Pod) -> str:
    """What the scheduler calls the pool that a pod is of."""
    return pool_name(namespace, pod.labels.get(names.POOL, ""), pod.labels.get(names.TEMPLATE, ""), pod.contract)

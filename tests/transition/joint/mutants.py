"""The mends that the world watches over, and how each is taken out: by another value of its smallest function."""

import asyncio
import json
import math
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import fields, replace
from typing import Any
from weakref import WeakKeyDictionary

from sandfleet_operator.api.errors import FleetError
from sandfleet_operator.api.kinds.meta import Meta
from sandfleet_operator.api.kinds.sandbox import CodeSandbox
from sandfleet_operator.api.kube import CODE_SANDBOX, CONFIG_MAP, POD, SANDBOX_POOL, Json, Kind, Ref
from sandfleet_operator.api.limits import Limits
from sandfleet_operator.api.values import Claim, Sandbox, State
from sandfleet_operator.cluster import elector
from sandfleet_operator.cluster.intake import Unreadable
from sandfleet_operator.executors.pod_client import Errand, PodExecutors
from sandfleet_operator.fleet.driver import FleetDriver
from sandfleet_operator.fleet.kubernetes import adoption, feed, observer
from sandfleet_operator.fleet.kubernetes.api import KubernetesFleetApi
from sandfleet_operator.fleet.kubernetes.backend import KubernetesBackend
from sandfleet_operator.fleet.kubernetes.sessions import binding
from sandfleet_operator.fleet.kubernetes.writer import Writer
from sandfleet_operator.plan.claims import record
from sandfleet_operator.plan.pods import names, openings
from sandfleet_operator.plan.sandbox import dependencies
from sandfleet_operator.plan.sandbox.actions import RemovePolicy
from sandfleet_operator.plan.sandbox.binding import Binding, told
from sandfleet_operator.plan.scheduler.capacity import Capacity
from sandfleet_operator.plan.scheduler.refill import Pool
from sandfleet_operator.reconciler import housekeeping, operator, reconcile, templates
from sandfleet_operator.reconciler.apply import Applier
from sandfleet_operator.reconciler.housekeeping import Housekeeper
from sandfleet_operator.reconciler.reconcile import Reconciler
from transition.joint import scenarios
from transition.joint.scenarios import Scenario
from transition.mutant import Mutant


def _unchecked(kind: Callable[..., Any], said: dict[str, Any], _path: str) -> Any:
    """Reads a record without a look at its types."""
    known = {one.name for one in fields(record.Record)}
    given = {name: value for name, value in said.items() if name in known}
    given["lease"] = math.inf if given.get("lease") is None else float(given["lease"])
    given["limits"] = Limits(**given.get("limits", {}))
    try:
        return kind(**given)
    except TypeError as error:
        raise json.JSONDecodeError(str(error), "", 0) from error


def _without_text(one: record.Record, **changes: Any) -> record.Record:
    """A record that is spelled anew, from what this release knows of it."""
    return replace(one, **{name: value for name, value in changes.items() if name != "text"})


class _Refusing(Unreadable):
    """A list ends at the first object that cannot be read."""

    def note(self, kind: Kind, obj: Json, error: FleetError) -> None:
        del self, kind, obj
        raise error


async def _says_nothing(_self: Reconciler, _obj: Json, _error: FleetError) -> None:
    return None


async def _asks_no_executor(_driver: FleetDriver, _sandbox_id: str) -> bool:
    return True


def _requested_anywhere(self: KubernetesFleetApi, *args: Any, **kwargs: Any) -> Claim:
    """One request id for all places."""
    claim = REQUESTED(self, *args, **kwargs)
    return replace(claim, key=replace(claim.key, pool=""))


REQUESTED = KubernetesFleetApi._requested


def _names_by_annotation(sandbox: CodeSandbox) -> tuple[str, ...]:
    return (sandbox.meta.annotations.get(names.BOUND_POD, "").partition("/")[0] or sandbox.meta.name,)


async def _finds_no_labelled_pod(self: Applier, namespace: str, sandbox: str = "") -> list[Json]:
    return [] if sandbox else await ALL_PODS(self, namespace)


async def _writes_no_binding(_writer: Writer, _owner: Meta, _binding: Binding) -> None:
    return None


def _believes(sandbox: CodeSandbox, _pods: Any = ()) -> Binding | None:
    """The binding, by the word of the object."""
    return told(sandbox)


def _is_of_by_name(sandbox: CodeSandbox, known: Sandbox, binding: Binding | None, _written: Meta | None) -> bool:
    return binding is not None and f"{sandbox.meta.namespace}/{binding.pod}" == known.sandbox_id


async def _removes_whatever_is_there(self: Applier, ref: Ref) -> None:
    await self._kube.delete(ref)


async def _removes_nothing(_self: Housekeeper, _what: object = None) -> None:
    return None


def _without_keys() -> dict[Kind, str]:
    return {kind: selector for kind, selector in operator.WATCHED.items() if kind != CONFIG_MAP}


async def _deletes_the_policy_before_the_keys(self: Housekeeper, ref: Ref) -> None:
    await self._applier.apply(RemovePolicy(ref.namespace, names.DEFAULT_DENY))
    await DELETE_KEYS(self, ref)


@asynccontextmanager
async def _in_one_line(_self: PodExecutors, _errand: Errand, _sandbox: Sandbox) -> AsyncIterator[None]:
    """Slots for everybody on a loop, a few less than these nodes let start at once."""
    async with LINES.setdefault(asyncio.get_running_loop(), asyncio.Semaphore(8)):
        yield


def _warm_once_contacted(*args: Any, **given: Any) -> Sandbox:
    return WARM(*args, **{**given, "fills": True})


LINES: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()
WARM = adoption.warm


def _all_slots(self: Capacity, pool: Pool) -> int:
    return self.free_slots() + self._inventory.count_of(pool.name, State.STARTING)


ALL_PODS = Applier.pods
DELETE_KEYS = Housekeeper._delete_keys
BY_ANNOTATION = (
    (reconcile, "pod_names", _names_by_annotation),
    (reconcile.Reconciler, "_owned_pods", lambda _self, _sandbox: iter(())),
    (Applier, "pods", _finds_no_labelled_pod),
)

MUTANTS: tuple[Mutant[Scenario], ...] = (
    Mutant("A.1", scenarios.an_annotation_of_any_content, ((record, "decode", _unchecked),)),
    Mutant("A.2", scenarios.a_replaced_object, BY_ANNOTATION),
    Mutant(
        "A.2",
        scenarios.a_replaced_object_before_the_operator_looked,
        (*BY_ANNOTATION, (Writer, "bind", _writes_no_binding)),
    ),
    Mutant("A.3", scenarios.a_sandbox_named_like_a_warm_pod, ((dependencies, "_of_another", lambda *_: None),)),
    Mutant(
        "A.4",
        scenarios.a_forged_binding,
        ((observer, "binding_of", _believes), (adoption, "is_of", _is_of_by_name)),
    ),
    Mutant(
        "A.5",
        scenarios.a_pod_lost_while_the_operator_is_away_and_another_leader,
        ((observer.Observer, "_serving", lambda _self, sandbox: adoption.incarnation(sandbox)),),
    ),
    Mutant("A.5", scenarios.an_eviction_while_the_operator_is_away, ((Writer, "bind", _writes_no_binding),)),
    Mutant(
        "A.6",
        scenarios.a_renewed_lease_and_another_leader,
        (
            (FleetDriver, "learn_lease", _asks_no_executor),
            (Capacity, "lease_is_doubtful", lambda _self, _sandbox, _now: False),
            (observer, "lease_end", lambda _annotations, _now: None),
        ),
    ),
    Mutant("A.7", scenarios.one_request_id_in_two_places, ((KubernetesFleetApi, "_requested", _requested_anywhere),)),
    Mutant("A.8", scenarios.a_reinstallation, ((elector, "next_number", lambda last, _seen: last + 1),)),
    Mutant("A.9", scenarios.deletions, ((Applier, "_remove_policy", _removes_whatever_is_there),)),
    Mutant("A.10", scenarios.a_record_of_a_newer_version, ((record, "replace", _without_text),)),
    Mutant(
        "B.1",
        scenarios.a_claim_in_an_empty_namespace,
        ((housekeeping, "INHABITANTS", {CODE_SANDBOX: "", SANDBOX_POOL: "", POD: names.SANDBOX_SELECTOR}),),
    ),
    Mutant(
        "B.2",
        scenarios.refused_creations,
        ((KubernetesBackend, "_not_made", lambda self, run, why: self._not_started(run, why.message)),),
    ),
    Mutant("B.3", scenarios.a_pool_whose_pods_hang, ((Capacity, "share", _all_slots),)),
    Mutant(
        "B.4",
        scenarios.an_unreadable_object,
        ((feed, "Unreadable", _Refusing),),
    ),
    Mutant(
        "B.4",
        scenarios.an_unreadable_object,
        ((Reconciler, "_say_unreadable", _says_nothing),),
    ),
    Mutant("B.5", scenarios.a_policy_that_opens, ((openings, "openers", lambda *_args: ()),)),
    Mutant("B.6", scenarios.a_deleted_template, ((templates, "named_revision", lambda _name: ""),)),
    Mutant("B.6", scenarios.a_deleted_template, ((Housekeeper, "remove_revisions", _removes_nothing),)),
    Mutant("B.7", scenarios.an_uninstall, ((Housekeeper, "_leave", _removes_nothing),)),
    Mutant("B.7", scenarios.an_uninstall, ((Housekeeper, "_delete_keys", _removes_nothing),)),
    Mutant(
        "B.7",
        scenarios.an_uninstall_while_the_operator_crashes,
        # Either is enough: the policy goes last, and the next operator sees the keys.
        ((Housekeeper, "_delete_keys", _deletes_the_policy_before_the_keys), (operator, "WATCHED", _without_keys())),
    ),
    Mutant("42.15", scenarios.silent_executors_of_a_tenant, ((PodExecutors, "_turn", _in_one_line),)),
    Mutant("42.16", scenarios.a_takeover_before_first_contacts, ((adoption, "warm", _warm_once_contacted),)),
    Mutant("42.4", scenarios.a_policy_that_refuses_claims, ((binding, "tests_hold", lambda *_: False),)),
    Mutant("B.8", scenarios.marks_for_autoscalers, ((names, "SAFE_TO_EVICT", "sandfleet.io/unmarked"),)),
)

"""Egress by name on Kubernetes: the fleet says to egress processes what pods may reach, and keeps what they reached."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from sandfleet_api.fleet.v1 import egress_pb2 as pb
from sandfleet_api.fleet.v1.egress_pb2_grpc import EgressProcessServiceServicer

from sandfleet_operator.api.errors import FleetError
from sandfleet_operator.api.kinds.sandbox import SandboxSpec, readable
from sandfleet_operator.api.kinds.template import (
    Contract,
    Egress,
    EgressCredential,
    TemplateSpec,
    sandbox_template,
)
from sandfleet_operator.api.kube import CODE_SANDBOX, POD, SANDBOX_TEMPLATE, Json, KubeError, Ref
from sandfleet_operator.api.settings import Settings
from sandfleet_operator.api.values import Sandbox
from sandfleet_operator.cluster.reviews import Reviews
from sandfleet_operator.cluster.store import Store
from sandfleet_operator.executors.authority import Authority
from sandfleet_operator.executors.contact import Credentials
from sandfleet_operator.executors.session_authority import session_authority
from sandfleet_operator.fleet import calls
from sandfleet_operator.fleet.calls import Context
from sandfleet_operator.plan.audit import Record
from sandfleet_operator.plan.egress import lists
from sandfleet_operator.plan.egress.reports import HostReport, Reports, connection_record
from sandfleet_operator.plan.pods import names
from sandfleet_operator.plan.pods.merge import Effective, effective
from sandfleet_operator.plan.pods.podspec import PodState
from sandfleet_operator.plan.sandbox.binding import is_its
from sandfleet_operator.plan.sandbox.observed import pod_of

# The subresource that the egress process's role names; the API server serves nothing under it.
RIGHT = "egress"
# Sandboxes whose reports are kept: of more, those that were heard of last. Lists and authorities: as many.
MOST = 2048
# Egress processes ask once a second. A certificate, valid for 60 days, is signed anew after so many seconds.
SIGNED_SECONDS = 86_400.0


@dataclass(frozen=True, slots=True)
class Reached:
    """What the session of a pod may reach now."""

    sandbox_id: str
    egress: Egress
    names: tuple[str, ...] = ()
    # NAMESPACE/NAME, of which the placeholders tell.
    template: str = ""
    ends_tls: bool = False


class EgressDesk(EgressProcessServiceServicer):
    """`incarnation` gives what serves a pod by NAMESPACE/NAME, before its object."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        credentials: Credentials,
        incarnation: Callable[[str], Sandbox | None],
        *,
        write: Callable[[Record], None],
        clock: Callable[[], float],
    ) -> None:
        self._store = store
        self.settings = settings
        self._credentials = credentials
        self._incarnation = incarnation
        self._write = write
        self._clock = clock
        self._reports: dict[str, Reports] = {}
        # Hears of each row.
        self.measure: Callable[[Mapping[str, Any]], None] = lambda _: None
        # By the uid of the pod, with the objects from which each follows.
        self._known: dict[str, tuple[tuple[object, ...], Reached]] = {}
        self._signed = lru_cache(MOST)(_signed)

    def serve(self, reviews: Reviews, namespace: str, check_serving: Callable[[str], None]) -> None:
        """Comes before the first call. `namespace` is the control plane's."""
        self._reviews = reviews
        self._namespace = namespace
        self._check_serving = check_serving

    async def Exchange(self, request: pb.ExchangeRequest, context: Context) -> pb.ExchangeResponse:  # noqa: N802 - gRPC's name
        try:
            caller = await self._reviews.authenticate(calls.token(context))
            await self._reviews.authorize(caller, "create", self._namespace, "", RIGHT)
            self._check_serving("say what sessions may reach")
        except (FleetError, KubeError) as error:
            await calls.abort(context, calls.problem_of(error))
        self.heard(request.rows)
        return pb.ExchangeResponse(sessions=filter(None, map(self.session, request.pods)))

    def session(self, asked: pb.EgressPod) -> pb.EgressSession | None:
        """None where no session runs in the pod, or the name is another pod's."""
        reached = self.reached(asked.name, asked.uid)
        if reached is None:
            return None
        namespace = reached.sandbox_id.partition("/")[0]
        secrets = [_secret(namespace, reached.template, one) for one in reached.egress.credentials]
        authority = b""
        if reached.ends_tls:
            day = int(self._clock() // SIGNED_SECONDS)
            authority = self._signed(self._credentials.authority, asked.uid, day)
        return pb.EgressSession(
            pod_uid=asked.uid,
            sandbox_id=reached.sandbox_id,
            names=reached.names,
            secrets=secrets,
            authority=authority,
        )

    def reached(self, name: str, uid: str) -> Reached | None:
        namespace, _, own = name.partition("/")
        manifest = self._store.get(Ref(POD, namespace, own))
        if manifest is None or manifest["metadata"]["uid"] != uid:
            return None
        labels = manifest["metadata"].get("labels") or {}
        if labels.get(names.STATE) != PodState.CLAIMED.value:
            return None
        sandbox_id = f"{namespace}/{labels.get(names.SANDBOX, '')}"
        written = self._store.get(Ref(CODE_SANDBOX, namespace, labels.get(names.SANDBOX, "")))
        young = None if written else self._incarnation(name)
        template = self._template(namespace, written, young)
        basis = (manifest, written, young.claim if young else None, template)
        known = self._known.get(uid)
        if known is None or not all(a is b for a, b in zip(known[0], basis, strict=True)):
            if len(self._known) >= MOST:
                self._known.clear()
            known = self._known[uid] = basis, self._merged(sandbox_id, manifest, written, young, template)
        return known[1]

    def _template(self, namespace: str, written: Json | None, young: Sandbox | None) -> Json | None:
        spec = _spec(written, young)
        named = spec.template if spec else ""
        return self._store.get(Ref(SANDBOX_TEMPLATE, namespace, named)) if named else None

    def _merged(
        self, sandbox_id: str, manifest: Json, written: Json | None, young: Sandbox | None, template: Json | None
    ) -> Reached:
        """Nothing where an object cannot be read."""
        try:
            sandbox = readable(written) if written is not None else None
            if written is not None and (sandbox is None or not is_its(sandbox, pod_of(manifest))):
                return Reached(sandbox_id, Egress())
            return self._of(sandbox_id, _spec(written, young), _spec_of(template))
        except FleetError:
            return Reached(sandbox_id, Egress())

    def _of(self, sandbox_id: str, spec: SandboxSpec | None, made: TemplateSpec | None) -> Reached:
        """Nothing where the wish is refused. Raises FleetError."""
        if spec is None or (made is None and spec.inline is None):
            return Reached(sandbox_id, Egress())
        wanted = effective(made, spec, self.settings)
        if not isinstance(wanted, Effective):
            return Reached(sandbox_id, Egress())
        allowed = lists.names_of(wanted.egress, self.settings.egress.sets)
        texts = tuple(one.text for one in allowed)
        namespace = sandbox_id.partition("/")[0]
        ends_tls = lists.ends_tls(wanted.egress, allowed)
        return Reached(sandbox_id, wanted.egress, texts, f"{namespace}/{wanted.template}", ends_tls)

    def names(self, sandbox_id: str, session: Sandbox | None) -> tuple[str, ...]:
        """The list of a sandbox now; `session` is that of its claim. Raises FleetError."""
        namespace, _, name = sandbox_id.partition("/")
        written = self._store.get(Ref(CODE_SANDBOX, namespace, name))
        young = None if written else session
        template = self._template(namespace, written, young)
        return self._of(sandbox_id, _spec(written, young), _spec_of(template)).names

    # What was reached.

    def heard(self, rows: Sequence[pb.EgressRow]) -> None:
        for one in rows:
            row = {
                "host": one.host,
                "port": one.port,
                "reason": one.reason,
                "address": one.address,
                "connections": one.connections,
                "open": one.open,
                "sent": one.sent_bytes,
                "received": one.received_bytes,
            }
            # The sandbox that was heard of last is the last.
            reports = self._reports.pop(one.sandbox_id, None) or Reports()
            self._reports[one.sandbox_id] = reports
            reports.add(row, self._clock())
            self.measure(row)
            while len(self._reports) > MOST:
                del self._reports[next(iter(self._reports))]
            if one.connections:
                namespace, _, name = one.sandbox_id.partition("/")
                self._write(connection_record(name, row, namespace))

    def reports(self, sandbox_id: str) -> tuple[HostReport, ...]:
        found = self._reports.get(sandbox_id)
        return found.all() if found else ()


def _signed(authority: Authority, pod_uid: str, day: int) -> bytes:
    return session_authority(authority, pod_uid, day * SIGNED_SECONDS).both


def _spec(written: Json | None, young: Sandbox | None) -> SandboxSpec | None:
    """Raises FleetError."""
    if written is not None:
        sandbox = readable(written)
        return sandbox.spec if sandbox else None
    if young is None or young.claim is None:
        return None
    claim = young.claim
    own = None if claim.egress else Egress(names=tuple(lists.named(claim.egress_names)))
    contract = next((one for one in Contract if one.value == claim.contract), None)
    return SandboxSpec(template=young.template, egress=own, contract=contract)


def _secret(namespace: str, template: str, one: EgressCredential) -> pb.EgressSecret:
    found = lists.credential(one, lists.placeholder(template, one))
    return pb.EgressSecret(
        host=found.host,
        header=found.header,
        format=found.format,
        placeholder=found.placeholder,
        env=found.env,
        namespace=namespace,
        secret=one.secret,
        key=one.key,
    )


def _spec_of(template: Json | None) -> TemplateSpec | None:
    """Raises FleetError."""
    return sandbox_template(template).spec if template else None

"""The part of the fleet's API that shows and changes which hosts sandboxes reach by name."""

from collections.abc import Sequence

from sandfleet_api.fleet.v1 import egress_pb2, fleet_pb2

from sandfleet_operator.api.egress import Name, first_outside, parse_all
from sandfleet_operator.api.kinds.template import Egress
from sandfleet_operator.api.kube import CODE_SANDBOX, SANDBOX_TEMPLATE, Json, KubeError, Ref
from sandfleet_operator.api.reasons import ClaimReason
from sandfleet_operator.cluster.kube_api import KubeApi
from sandfleet_operator.cluster.reviews import Caller, Reviews
from sandfleet_operator.fleet import convert
from sandfleet_operator.fleet.kubernetes import feed
from sandfleet_operator.fleet.kubernetes.catalog import Recipe
from sandfleet_operator.fleet.kubernetes.egress_desk import EgressDesk
from sandfleet_operator.fleet.kubernetes.fleet import KubernetesFleet
from sandfleet_operator.fleet.kubernetes.sessions.shown import Sessions
from sandfleet_operator.plan.egress import lists


class EgressCalls:
    _kube: KubeApi
    _reviews: Reviews
    _kubernetes: KubernetesFleet
    _sessions: Sessions
    # None: no egress process is installed.
    egress: EgressDesk | None = None

    def check_serving(self, doing: str) -> None:
        """Raises FleetError."""
        raise NotImplementedError

    def _check_names(self, request: fleet_pb2.ClaimRequest, recipe: Recipe) -> None:
        """Whether a claim may have the names that it asks for: it may only narrow its template's list."""
        doing = "claim with names that the sandbox may reach"
        if request.credentials:
            why = "on a cluster they are Secrets that the template names (spec.egress.credentials)"
            raise ClaimReason.INVALID_EGRESS.error(f"cannot claim with credentials: {why}")
        if request.egress_names:
            self._check_within(parse_all(request.egress_names), recipe.wanted.egress if recipe.wanted else None, doing)

    def _check_within(self, wish: Sequence[Name], allowed: Egress | None, doing: str) -> None:
        if self.egress is None:
            why = "the installation has no egress by name (Helm value egress.enabled)"
            raise ClaimReason.INVALID_EGRESS.error(f"cannot {doing}: {why}")
        sets = self.egress.settings.egress.sets
        allowed = allowed or Egress()
        names = lists.names_of(allowed, sets)
        if outside := first_outside(wish, names) or lists.first_unread(wish, allowed, names):
            why = f"the template does not allow {outside} (spec.egress.names)"
            raise ClaimReason.INVALID_EGRESS.error(f"cannot {doing}: {why}", outside)

    async def get_egress(self, caller: Caller, request: egress_pb2.GetEgressRequest) -> egress_pb2.GetEgressResponse:
        doing = "look at the egress"
        namespace, name = feed.parse_id(request.sandbox_id, doing=doing)
        await self._reviews.authorize(caller, "get", namespace, name)
        self.check_serving(doing)
        desk = self._desk(doing)
        session = self._sessions.of(request.sandbox_id)
        if session is None:
            # NOT_FOUND where it has ended.
            await self._sessions.read(namespace, name)
        hosts = map(convert.host_report, desk.reports(request.sandbox_id))
        return egress_pb2.GetEgressResponse(names=desk.names(request.sandbox_id, session), hosts=hosts)

    async def set_egress(self, caller: Caller, request: egress_pb2.SetEgressRequest) -> egress_pb2.SetEgressResponse:
        """Writes the list into the CodeSandbox, as kubectl would."""
        doing = "change the egress list"
        namespace, name = feed.parse_id(request.sandbox_id, doing=doing)
        await self._reviews.authorize(caller, "patch", namespace, name)
        self.check_serving(doing)
        self._desk(doing)
        wish = parse_all(request.names)
        session = self._sessions.of(request.sandbox_id)
        if session is not None and self._kubernetes.object_of(request.sandbox_id) is None:
            # A young claim: its CodeSandbox is written now.
            await self._kubernetes.record(session)
        sandbox = await self._sessions.read(namespace, name)
        template = self._kubernetes.catalog.template_spec(namespace, sandbox.spec.template)
        if template is None or not template.egress.by_name:
            why = "its template lists no hosts, so that its programs do not look for the way out"
            raise ClaimReason.NO_EGRESS.error(f"cannot {doing}: {why}", request.sandbox_id)
        self._check_within(wish, template.egress, doing)
        written: Json = {"names": lists.written(wish)}
        if sandbox.spec.egress is None:
            # Addresses stay as the template has them.
            written |= self._addresses(Ref(SANDBOX_TEMPLATE, namespace, sandbox.spec.template))
        try:
            await self._kube.merge(Ref(CODE_SANDBOX, namespace, name), {"spec": {"egress": written}})
        except KubeError as error:
            raise ClaimReason.API_SERVER_FAILED.error(f"cannot {doing}: {error}") from error
        return egress_pb2.SetEgressResponse()

    def _addresses(self, template: Ref) -> Json:
        found = self._kubernetes.store.get(template) or {}
        listed = (found.get("spec") or {}).get("egress") or {}
        return {key: listed[key] for key in ("allow", "dns") if key in listed}

    def _desk(self, doing: str) -> EgressDesk:
        if self.egress is None:
            why = "the installation has none by name (Helm value egress.enabled)"
            raise ClaimReason.UNIMPLEMENTED.error(f"cannot {doing}: {why}")
        return self.egress

"""The leader's reviews: it follows each reviewed sandbox, and its CodeSandbox shows what waits."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from sandfleet_api.executor.v1 import review_pb2

from sandfleet_operator.api.errors import Code, FleetError
from sandfleet_operator.api.kinds.template import ReviewRule
from sandfleet_operator.api.kube import CODE_SANDBOX, Json, KubeError, Ref
from sandfleet_operator.api.values import Sandbox, State
from sandfleet_operator.cluster.clock import wall_clock
from sandfleet_operator.cluster.kube_api import KubeApi
from sandfleet_operator.executors.contact import Credentials, Executor
from sandfleet_operator.executors.reviews import ReviewClient, pod_way
from sandfleet_operator.fleet import convert
from sandfleet_operator.fleet.kubernetes.fleet import KubernetesFleet
from sandfleet_operator.fleet.kubernetes.reviews.votes import ObjectVotes
from sandfleet_operator.fleet.reviews.board import ReviewBoard, Reviewed
from sandfleet_operator.fleet.reviews.webhook import Webhook
from sandfleet_operator.plan.audit import Record
from sandfleet_operator.plan.claims.record import object_of
from sandfleet_operator.plan.pods.names import session_id
from sandfleet_operator.plan.reviews.votes import MAX_APPROVALS
from sandfleet_operator.plan.scheduler.recent import Recent

# Seconds between two looks at which sandboxes are reviewed, and at most one write of a status in each.
EVERY = 2.0
# Sandboxes whose demand for approvals is remembered.
REMEMBERED = 10_000
AWAITING = "AwaitingReview"

_LOG = logging.getLogger(__name__)


class KubernetesReviewed:
    """The reviewed sandboxes of claims and of objects."""

    def __init__(self, kubernetes: KubernetesFleet, credentials: Credentials) -> None:
        self._kubernetes = kubernetes
        self._credentials = credentials
        # The most that a template has demanded while the fleet has looked, by sandbox.
        self._approvals: Recent[str, int] = Recent(REMEMBERED)

    def _demands(self, sandbox_id: str, template: str) -> tuple[int, tuple[ReviewRule, ...]]:
        """How many have to approve, and the rules that do so without them.

        Where the template is gone or unreadable: as many as it has demanded before, or the most there is, and no rule.
        """
        known = self._approvals.get(sandbox_id) or 0
        spec = self._kubernetes.catalog.template_spec(sandbox_id.partition("/")[0], template)
        most = max(known, spec.approvals if spec is not None else known or MAX_APPROVALS)
        self._approvals.put(sandbox_id, most)
        return most, spec.review_rules if spec is not None else ()

    def find(self, sandbox_id: str) -> Reviewed | None:
        session = self._kubernetes.session_of(sandbox_id)
        if session is not None and session.bound:
            return None if session.state is State.ENDED else self._of_session(sandbox_id, session)
        found = self._kubernetes.object_of(sandbox_id)
        if found is None:
            return None
        try:
            endpoint = self._kubernetes.endpoint(found)
        except FleetError as error:
            if error.problem.code is Code.NOT_FOUND:
                return None
            raise
        contract = self._kubernetes.contract_of(found)
        executor = Executor(
            address=endpoint.address,
            pod_uid=endpoint.pod_uid,
            session_id=session_id(found.meta.namespace, found.meta.name),
            contract=contract,
        )
        way = pod_way(self._credentials, executor)
        inline = found.spec.inline
        if inline is not None:
            approvals, rules = inline.approvals, inline.review_rules
        else:
            approvals, rules = self._demands(sandbox_id, found.spec.template)
        return Reviewed(sandbox_id=sandbox_id, holder="", lease_expires=None, way=way, approvals=approvals, rules=rules)

    def _of_session(self, sandbox_id: str, session: Sandbox) -> Reviewed:
        assert session.claim is not None
        pod = self._kubernetes.pod_of(session)
        executor = Executor(
            address=self._kubernetes.fleet.address(session),
            pod_uid=pod.uid if pod else "",
            session_id=session_id(sandbox_id.partition("/")[0], object_of(session.claim)),
            contract=session.contract,
        )
        approvals, rules = self._demands(sandbox_id, session.template)
        return Reviewed(
            sandbox_id=sandbox_id,
            holder=session.claim.key.holder,
            lease_expires=convert.sandbox_message(session).lease_expires,
            way=pod_way(self._credentials, executor),
            approvals=approvals,
            rules=rules,
        )

    def ids(self) -> list[str]:
        """Of those that have a session now."""
        found = []
        for (namespace, pod), name in list(self._kubernetes.reviewed.sandboxes.items()):
            session = self._kubernetes.scheduler.inventory.of_incarnation(f"{namespace}/{pod}")
            if session is not None and session.bound and session.claim is not None:
                found.append(f"{namespace}/{object_of(session.claim)}")
                continue
            made = self._kubernetes.object_of(f"{namespace}/{name}")
            if made is not None and made.status.pod == pod:
                found.append(f"{namespace}/{name}")
        return found


class ReviewDesk:
    """`leading` gives the fencing number, or None; `audit` writes the records of what rules answer.

    `hook` tells of what waits.
    """

    def __init__(
        self,
        kube: KubeApi,
        kubernetes: KubernetesFleet,
        credentials: Credentials,
        leading: Callable[[], int | None],
        *,
        audit: Callable[[Record], None] = lambda _: None,
        hook: Webhook | None = None,
    ) -> None:
        self._kube = kube
        self._kubernetes = kubernetes
        self._leading = leading
        self._reviewed = KubernetesReviewed(kubernetes, credentials)
        self._hook = hook
        tell = hook.send if hook is not None else lambda _: None
        client, votes = ReviewClient(lambda: credentials.signer), ObjectVotes(kube, kubernetes, wall_clock)
        self.board = ReviewBoard(self._reviewed, client, audit=audit, tell=tell, call_votes=votes)

    async def run(self) -> None:
        """While it leads; until it is cancelled."""
        try:
            while True:
                if self._kubernetes.serving:
                    self.look()
                    await self._show()
                await asyncio.sleep(EVERY)
        finally:
            self.board.close()
            if self._hook is not None:
                self._hook.close()

    def look(self) -> None:
        """Follows the sandboxes that are reviewed now."""
        for sandbox_id in self._reviewed.ids():
            self.board.follow(sandbox_id)

    async def _show(self) -> None:
        """Writes what waits into the CodeSandboxes that say something else."""
        for sandbox_id, pending in self.board.waiting_for_people.items():
            found = self._kubernetes.object_of(sandbox_id)
            if found is None:
                # A young session; its object is written soon.
                continue
            shown = found.status.review.waiting if found.status.review else 0
            if shown != len(pending):
                ref = Ref(CODE_SANDBOX, found.meta.namespace, found.meta.name)
                await self._write(ref, found.meta.uid, pending)

    async def _write(self, ref: Ref, uid: str, pending: Sequence[review_pb2.PendingReview]) -> None:
        number = self._leading()
        if number is None:
            return
        patch: Json = {"metadata": {"uid": uid}, "status": {"review": _shown(pending, number)}}
        try:
            await self._kube.merge(ref, patch, "status")
        except KubeError as error:
            # The next look writes it, unless the object is gone.
            _LOG.info("cannot show the reviews of %s yet: %s", ref, error)


def _shown(pending: Sequence[review_pb2.PendingReview], fencing: int) -> Json | None:
    if not pending:
        return None
    since = min(one.since.seconds for one in pending)
    moment = datetime.fromtimestamp(min(max(since, 0), 1 << 33), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {"state": AWAITING, "waiting": len(pending), "since": moment, "fencing": fencing}

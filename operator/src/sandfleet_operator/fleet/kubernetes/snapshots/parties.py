"""A session of a cluster as a snapshotter has it: where its executor is, what it may, and a token for one transfer."""

from dataclasses import asdict
from typing import Protocol

from sandfleet_operator.api.limits import in_numbers
from sandfleet_operator.api.values import Mark, Sandbox
from sandfleet_operator.executors.contact import Credentials
from sandfleet_operator.executors.tokens import SNAPSHOT_SCOPES, TRANSFER_LIFETIME
from sandfleet_operator.fleet.kubernetes.fleet import KubernetesFleet
from sandfleet_operator.fleet.kubernetes.sessions.received import Received
from sandfleet_operator.fleet.snapshots.transfers import Party
from sandfleet_operator.plan.pods.names import session_id
from sandfleet_operator.plan.snapshots.claims import encode_claim

# Who the token of a transfer says that its holder is, and how long a transfer may wait for its turn, in seconds.
HOLDER = "sandfleet-snapshotter"


class Sessions(Protocol):
    """What the fleet's API knows of sessions."""

    @property
    def received(self) -> Received: ...
    def check_serving(self, doing: str) -> None:
        """Raises FleetError where another fleet leads."""
        ...


class Parties:
    def __init__(self, kubernetes: KubernetesFleet, credentials: Credentials, sessions: Sessions) -> None:
        self.kubernetes, self._credentials, self._sessions = kubernetes, credentials, sessions

    def of(self, sandbox: Sandbox) -> Party:
        """Of a session of a claim that has an executor."""
        sandbox_id, pod_uid = self.kubernetes.known_as(sandbox)

        async def note(marks: frozenset[Mark]) -> frozenset[Mark]:
            present = self.kubernetes.session_of(sandbox_id) or sandbox
            return await self._sessions.received.note(sandbox_id, present, marks)

        recipe = self.kubernetes.catalog.recipe(sandbox.pool)
        usual = in_numbers(recipe.wanted.limits) if recipe is not None and recipe.wanted is not None else {}
        asked = asdict(sandbox.claim.limits) if sandbox.claim else {}
        return Party(
            tenant=sandbox_id.partition("/")[0],
            sandbox_id=sandbox_id,
            template=sandbox.template,
            contract=sandbox.contract,
            limits=usual | {name: value for name, value in asked.items() if value},
            place=self._place(sandbox, sandbox_id, pod_uid),
            claim=encode_claim(sandbox.claim) if sandbox.claim else "",
            note=note,
        )

    def unclaimed(self, sandbox: Sandbox) -> Party:
        """Of a sandbox that has no session yet, as its pool's template has it."""
        pod, recipe = self.kubernetes.pod_of(sandbox), self.kubernetes.catalog.recipe(sandbox.pool)

        async def note(marks: frozenset[Mark]) -> frozenset[Mark]:
            return marks

        return Party(
            tenant=sandbox.sandbox_uid.partition("/")[0],
            sandbox_id=sandbox.sandbox_uid,
            template=sandbox.template,
            contract=sandbox.contract,
            limits=in_numbers(recipe.wanted.limits) if recipe is not None and recipe.wanted is not None else {},
            place=self._place(sandbox, sandbox.sandbox_uid, pod.uid if pod else ""),
            note=note,
        )

    def _place(self, sandbox: Sandbox, sandbox_id: str, pod_uid: str) -> dict[str, str]:
        token = self._credentials.signer.issue(
            sandbox_id=session_id(*sandbox_id.split("/")),
            sandbox_uid=pod_uid,
            holder=HOLDER,
            scopes=SNAPSHOT_SCOPES,
            lifetime=TRANSFER_LIFETIME,
            contract=sandbox.contract,
        )
        return {
            "address": self.kubernetes.fleet.address(sandbox),
            "token": token.text,
            "authority": self._credentials.authority.pem.decode("ascii"),
            "name": pod_uid,
        }

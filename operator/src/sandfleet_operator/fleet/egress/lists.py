"""What sessions of a cluster may reach, asked of the fleet that leads; and their secrets, read from the API server."""

import asyncio
import base64
import binascii
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from sandfleet_api.fleet.v1 import egress_pb2 as pb
from sandfleet_api.fleet.v1.egress_pb2_grpc import EgressProcessServiceStub

from sandfleet_operator.api.egress import Credential, is_value
from sandfleet_operator.api.errors import FleetError
from sandfleet_operator.api.kube import SECRET, KubeError, Ref
from sandfleet_operator.cluster.kube_api import KubeApi
from sandfleet_operator.fleet.egress.sessions import Session, Sessions
from sandfleet_operator.fleet.links.fleet_link import FleetLink

# Seconds between two requests to the fleet.
PERIOD = 1.0
# A session without connections is forgotten after so many seconds, and asked for again.
UNUSED_SECONDS = 60.0
# Seconds for which a Secret that was read counts.
SECRET_SECONDS = 10.0
MOST_SECRETS = 4096
# Rows that wait while no fleet answers; of more, the first ones are lost.
MOST_ROWS = 4096

_LOG = logging.getLogger(__name__)


class Secrets:
    """Values of Secrets, each read again after a while."""

    def __init__(self, kube: KubeApi, clock: Callable[[], float]) -> None:
        self._kube = kube
        self._clock = clock
        self._known: dict[tuple[str, str], tuple[float, dict[str, str]]] = {}

    async def value(self, namespace: str, name: str, key: str) -> str:
        """Empty where it cannot be read."""
        known = self._known.get((namespace, name))
        if known is None or known[0] < self._clock() - SECRET_SECONDS:
            if len(self._known) >= MOST_SECRETS:
                self._known.clear()
            known = self._known[namespace, name] = self._clock(), await self._read(namespace, name)
        return known[1].get(key, "")

    async def _read(self, namespace: str, name: str) -> dict[str, str]:
        try:
            return (await self._kube.get(Ref(SECRET, namespace, name))).get("data") or {}
        except KubeError as error:
            _LOG.warning("cannot read Secret %s of namespace %s: %s", name, namespace, error)
            return {}


class Lists:
    """The lists of the sessions that have connected. Without a fleet they stay as they are."""

    def __init__(
        self, fleet: FleetLink, credentials: Path, sessions: Sessions, secrets: Secrets, clock: Callable[[], float]
    ) -> None:
        """`credentials` is a folder with `token` of the own account."""
        self._fleet = fleet
        self._credentials = credentials
        self._sessions = sessions
        self._secrets = secrets
        self._clock = clock
        # By the uid of the pod: its name, and when it was last used.
        self._pods: dict[str, tuple[str, float]] = {}
        self._ids: dict[str, str] = {}
        self._rows: list[pb.EgressRow] = []
        self._asking: dict[str, asyncio.Task[None]] = {}
        self.connected = asyncio.Event()

    async def find(self, uid: str, name: str) -> Session | None:
        """The session of a pod that has proved its uid, and says its NAMESPACE/NAME."""
        found = self._sessions.find(uid)
        if found is None:
            # Connections that come together wait for one answer.
            if uid not in self._asking:
                self._asking[uid] = asyncio.create_task(self._ask(uid, name))
                self._asking[uid].add_done_callback(lambda _: self._asking.pop(uid, None))
            await asyncio.shield(self._asking[uid])
            found = self._sessions.find(uid)
        if found is not None:
            self._pods[uid] = name, self._clock()
        return found

    async def _ask(self, uid: str, name: str) -> None:
        try:
            await self.exchange([pb.EgressPod(uid=uid, name=name)])
        except (FleetError, OSError, UnicodeDecodeError) as error:
            _LOG.warning("cannot ask the fleet what pod %s may reach: %s", name[:320], error)

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            try:
                await self.exchange(self._in_use())
                self.connected.set()
            except (FleetError, OSError, UnicodeDecodeError) as error:
                _LOG.warning("cannot ask the fleet what sessions may reach: %s", error)
            await asyncio.sleep(PERIOD)

    def _in_use(self) -> list[pb.EgressPod]:
        """The pods whose lists count; others are forgotten."""
        now, used = self._clock(), []
        for uid, (name, before) in list(self._pods.items()):
            session = self._sessions.find(uid)
            last = now if session is not None and session.tasks else before
            if session is None or now - last > UNUSED_SECONDS:
                self._forget(uid)
            else:
                self._pods[uid] = name, last
                used.append(pb.EgressPod(uid=uid, name=name))
        return used

    def _forget(self, uid: str) -> None:
        self._sessions.end(uid)
        self._pods.pop(uid, None)

    async def exchange(self, pods: Sequence[pb.EgressPod]) -> None:
        """Raises FleetError; then nothing has changed."""
        self._rows += [self._row(uid, row) for uid, rows in self._sessions.reports().items() for row in rows]
        self._rows = self._rows[-MOST_ROWS:]
        sent, self._rows = self._rows, []
        token = (self._credentials / "token").read_text(encoding="ascii").strip()
        request = pb.ExchangeRequest(pods=pods, rows=sent)
        try:
            said = await self._fleet.call(lambda channel: EgressProcessServiceStub(channel).Exchange, request, token)
        except FleetError:
            self._rows = [*sent, *self._rows]
            raise
        allowed = {one.pod_uid: one for one in said.sessions}
        for pod in pods:
            try:
                if pod.uid in allowed:
                    await self._allow(allowed[pod.uid])
                else:
                    self._forget(pod.uid)
            except FleetError as error:
                # A newer fleet lists what this process cannot read: the session reaches nothing, and others their own.
                _LOG.warning("cannot take the list of pod %s: %s", pod.name[:320], error)
                self._forget(pod.uid)
        self._ids = {uid: one for uid, one in self._ids.items() if self._sessions.find(uid) or uid in allowed}

    async def _allow(self, said: pb.EgressSession) -> None:
        self._ids[said.pod_uid] = said.sandbox_id
        found = [await self._credential(one) for one in said.secrets]
        readable = [one for one in found if is_value(one.value)]
        self._sessions.allow(said.pod_uid, list(said.names), readable, said.authority.decode("ascii"))
        if (session := self._sessions.find(said.pod_uid)) is not None:
            session.without_secret = frozenset(one.host for one in found) - {one.host for one in readable}

    async def _credential(self, one: pb.EgressSecret) -> Credential:
        encoded = await self._secrets.value(one.namespace, one.secret, one.key)
        try:
            value = base64.b64decode(encoded, validate=True).decode("ascii").strip()
        except (binascii.Error, UnicodeDecodeError):
            value = ""
        return Credential(one.host, one.header, one.format, value, one.env, one.placeholder)

    def _row(self, uid: str, row: dict[str, Any]) -> pb.EgressRow:
        return pb.EgressRow(
            pod_uid=uid,
            sandbox_id=self._ids.get(uid, ""),
            host=row["host"],
            port=row["port"],
            reason=row["reason"],
            address=row["address"],
            connections=row["connections"],
            open=row["open"],
            sent_bytes=row["sent"],
            received_bytes=row["received"],
        )

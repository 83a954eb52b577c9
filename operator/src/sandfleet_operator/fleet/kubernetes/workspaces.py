"""Workspaces that released sandboxes have left, for claims that name one. The API server says which are free."""

import asyncio
import logging
import re
from collections.abc import AsyncIterator
from contextlib import aclosing, suppress

from sandfleet_rules.backoff import Backoff

from sandfleet_operator.api.errors import FleetError
from sandfleet_operator.api.kinds.meta import Meta
from sandfleet_operator.api.kinds.sandbox import CodeSandbox
from sandfleet_operator.api.kube import CODE_SANDBOX, PERSISTENT_VOLUME_CLAIM, POD, Json, Kind, KubeError, NotFound, Ref
from sandfleet_operator.api.reasons import ClaimReason
from sandfleet_operator.cluster.kube_api import KubeApi
from sandfleet_operator.cluster.lease import NotLeadingError
from sandfleet_operator.cluster.reflector import PAGE, TURN
from sandfleet_operator.cluster.store import Store
from sandfleet_operator.cluster.tasks import in_turns
from sandfleet_operator.fleet.kubernetes.writer import Writer
from sandfleet_operator.plan.claims.record import retention
from sandfleet_operator.plan.pods import names
from sandfleet_operator.plan.pods.volume import kept_patch
from sandfleet_operator.plan.sandbox.binding import Binding
from sandfleet_operator.plan.sandbox.observed import Pod, owner_of, owners_of, pod_of, volume_of
from sandfleet_operator.plan.sandbox.workspaces import User, is_kept, read_users, users

# Of a PersistentVolumeClaim.
NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
# Between two looks at a workspace that its users are leaving.
BACKOFF = Backoff(first=0.2, longest=2.0)
# Looks at the same time.
AT_ONCE = 8
# Objects that the watches have shown, and that are looked at before others get their turn: each has been read.
SEEN_TURN = 200
# Looks at a volume claim that others write at the same moment.
SETTLE_TRIES = 10

_LOG = logging.getLogger(__name__)


class Workspaces:
    def __init__(self, kube: KubeApi, store: Store) -> None:
        self._kube = kube
        self._store = store
        self._slots = asyncio.Semaphore(AT_ONCE)

    async def free(self, namespace: str, name: str, within: float) -> None:
        """Waits up to `within` seconds until no sandbox uses the workspace. Raises FleetError, KubeError.

        Watches may show a user too late: `only_for` sees it.
        """
        if not NAME.fullmatch(name):
            raise ClaimReason.INVALID_ID.error(
                f"cannot claim: {name[:80]!r} cannot be the id of a workspace", name[:80]
            )
        loop = asyncio.get_running_loop()
        looks, give_up = 0, loop.time() + within
        while await self._seen_users(namespace, name) and (found := await self._users(namespace, name)):
            looks += 1
            pause = BACKOFF.after(looks)
            if not all(one.leaving for one in found) or loop.time() + pause > give_up:
                raise _busy(name, found)
            await asyncio.sleep(pause)
        try:
            volume = volume_of(await self._kube.get(Ref(PERSISTENT_VOLUME_CLAIM, namespace, name)))
        except NotFound:
            volume = None
        if volume is None or not is_kept(volume):
            why = f"no sandbox has left a workspace {name!r} in namespace {namespace}"
            raise ClaimReason.WORKSPACE_NOT_FOUND.error(f"cannot claim: {why}", name)

    async def only_for(self, pod: Ref, name: str) -> None:
        """For an unclaimed pod on the workspace. Raises FleetError if another sandbox uses the workspace."""
        try:
            found = await self._users(pod.namespace, name, besides=pod.name)
        except KubeError as error:
            raise ClaimReason.API_SERVER_FAILED.error(f"cannot claim: {error}") from error
        if found:
            raise _busy(name, found)

    async def _seen_users(self, namespace: str, name: str) -> list[User]:
        sandboxes, pods = (self._store.all(kind, namespace) for kind in (CODE_SANDBOX, POD))
        return await _users_among(name, in_turns(sandboxes, SEEN_TURN), in_turns(pods, SEEN_TURN))

    async def _users(self, namespace: str, name: str, besides: str = "") -> list[User]:
        """Read past all caches; in turns, since a namespace may have thousands."""
        async with self._slots:
            sandboxes, pods = (
                self._listed(CODE_SANDBOX, namespace),
                self._listed(POD, namespace, names.SANDBOX_SELECTOR),
            )
            return await _users_among(name, sandboxes, pods, besides)

    async def _listed(self, kind: Kind, namespace: str, selector: str = "") -> AsyncIterator[Json]:
        async with aclosing(self._kube.pages(kind, namespace, selector, limit=PAGE)) as pages:
            async for page in pages:
                async for obj in in_turns(page.items, TURN):
                    yield obj


async def _users_among(
    name: str, objects: AsyncIterator[Json], their_pods: AsyncIterator[Json], besides: str = ""
) -> list[User]:
    sandboxes: list[CodeSandbox] = []
    unreadable: list[User] = []
    pods: list[Pod] = []
    async for obj in objects:
        read = read_users(name, (obj,))
        sandboxes += read[0]
        unreadable += read[1]
    async for obj in their_pods:
        with suppress(FleetError):
            pods.append(pod_of(obj))
    return [*unreadable, *users(name, sandboxes, [one for one in pods if one.name != besides])]


async def has_own_volume(writer: Writer, pod: Ref, pod_uid: str) -> bool:
    """Whether the volume claim of a warm pod's name was made for it; true for a fleet that leads no more."""
    try:
        found = await writer.look(Ref(PERSISTENT_VOLUME_CLAIM, pod.namespace, names.workspace_claim_name(pod.name)))
    except NotLeadingError:
        return True
    # The maker of a volume claim can name any owner; the label is the control plane's to write.
    made_for = (found["metadata"].get("labels") or {}).get(names.SANDBOX) if found is not None else None
    return found is not None and made_for == pod.name and owner_of(found, "Pod") == pod_uid


async def settle(writer: Writer, owner: Meta, binding: Binding, workspace: str) -> None:
    """Writes down to which CodeSandbox a claimed pod and its workspace belong. Raises NotLeadingError.

    The pod last: the next leader goes on with what is left to write as long as the pod has no owner.
    """
    if workspace:
        await _settle_workspace(writer, owner, binding, workspace)
    await writer.bind(owner, binding)
    await writer.own_pod(Ref(POD, owner.namespace, binding.pod), binding.pod_uid, binding.record, owner)


async def _settle_workspace(writer: Writer, owner: Meta, binding: Binding, name: str) -> None:
    """Gives the workspace `name` to its CodeSandbox, to go with it or to stay. Raises NotLeadingError.

    Until then, as when a release comes early, a new workspace goes with its pod and an earlier one stays. A workspace
    that belongs to another pod or sandbox is left alone.
    """
    ref = Ref(PERSISTENT_VOLUME_CLAIM, owner.namespace, name)
    for _ in range(SETTLE_TRIES):
        found = await writer.look(ref)
        if found is None or "deletionTimestamp" in found["metadata"]:
            return
        owners = {one.uid for one in owners_of(found)}
        if not owners <= {binding.pod_uid, owner.uid}:
            _LOG.error("workspace %s of %s belongs to another object and stays there", ref, owner.name)
            return
        if await writer.patch(ref, kept_patch(found, owner, retention(binding.record))):
            return


def _busy(name: str, found: list[User]) -> FleetError:
    why = f"workspace {name!r} is in use by {found[0].name}"
    passing = all(one.leaving for one in found)
    return ClaimReason.WORKSPACE_BUSY.error(f"cannot claim: {why}", name, passing=passing)

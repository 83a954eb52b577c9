"""Workspaces that released sandboxes have left, for claims that name one. Whether one is free is asked of the API server, past all caches."""

import asyncio
import re
from contextlib import suppress

from sandfleet_operator.api.errors import Code, FleetError, Problem, invalid
from sandfleet_operator.api.kube import CODE_SANDBOX, PERSISTENT_VOLUME_CLAIM, POD, KubeError, NotFound, Ref
from sandfleet_operator.api.parse import code_sandbox
from sandfleet_operator.api.resources import CodeSandbox, Meta
from sandfleet_operator.effects.kubeapi import KubeApi
from sandfleet_operator.fleet.kubernetes.writer import Writer
from sandfleet_operator.plan import names
from sandfleet_operator.plan.claims import Record, retention
from sandfleet_operator.plan.sandbox.observed import pod_of, volume_of
from sandfleet_operator.plan.sandbox.workspaces import User, is_kept, users
from sandfleet_operator.plan.volume import kept_patch

# Of a PersistentVolumeClaim.
NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
# Seconds between two looks at a workspace that is being left; it doubles from look to look.
FIRST_PAUSE, LONGEST_PAUSE = 0.2, 2.0


# Looks at the same time.
AT_ONCE = 8


class Workspaces:
    def __init__(self, kube: KubeApi) -> None:
        self._kube = kube
        self._slots = asyncio.Semaphore(AT_ONCE)

    async def free(self, namespace: str, name: str, within: float) -> None:
        """Returns once nobody uses it, for which those who leave it get so many seconds. Raises FleetError, KubeError."""
        if not NAME.fullmatch(name):
            raise invalid("InvalidId", f"cannot claim: {name[:80]!r} cannot be the id of a workspace", name[:80])
        loop = asyncio.get_running_loop()
        pause, give_up = FIRST_PAUSE, loop.time() + within
        while found := await self._users(namespace, name):
            if not all(one.leaving for one in found) or loop.time() + pause > give_up:
                raise _busy(name, found)
            await asyncio.sleep(pause)
            pause = min(LONGEST_PAUSE, 2 * pause)
        try:
            volume = volume_of(await self._kube.get(Ref(PERSISTENT_VOLUME_CLAIM, namespace, name)))
        except NotFound:
            volume = None
        if volume is None or not is_kept(volume):
            why = f"no sandbox has left a workspace {name!r} in namespace {namespace}"
            raise FleetError(Problem(Code.NOT_FOUND, "WorkspaceNotFound", f"cannot claim: {why}", name))

    async def only_for(self, pod: Ref, name: str) -> None:
        """Of a pod that is there, and that nobody uses yet. Raises FleetError where somebody else uses its workspace."""
        try:
            found = await self._users(pod.namespace, name, besides=pod.name)
        except KubeError as error:
            raise FleetError(Problem(Code.UNAVAILABLE, "ApiServerFailed", f"cannot claim: {error}")) from error
        if found:
            raise _busy(name, found)

    async def _users(self, namespace: str, name: str, besides: str = "") -> list[User]:
        async with self._slots:
            objects = (await self._kube.list(CODE_SANDBOX, namespace)).items
            pods = (await self._kube.list(POD, namespace, names.SANDBOX_SELECTOR)).items
        sandboxes: list[CodeSandbox] = []
        for obj in objects:
            # One of an older schema that cannot be read has no pod either.
            with suppress(FleetError):
                sandboxes.append(code_sandbox(obj))
        return users(name, sandboxes, [pod_of(one) for one in pods if one["metadata"]["name"] != besides])


async def settle(writer: Writer, pod: Ref, record: Record, owner: Meta) -> None:
    """Gives the workspace to its CodeSandbox, to go with it or to stay. Raises NotLeadingError.

    A release may come before the operator has looked: until then a new workspace goes with its pod, and an older one stays.
    """
    ref = Ref(PERSISTENT_VOLUME_CLAIM, pod.namespace, record.workspace or names.workspace_claim_name(pod.name))
    found = await writer.look(ref)
    if found is not None:
        await writer.patch(ref, kept_patch(found, owner, retention(record)))


def _busy(name: str, found: list[User]) -> FleetError:
    why = f"workspace {name!r} is in use by {found[0].name}"
    passing = all(one.leaving for one in found)
    return FleetError(Problem(Code.FAILED_PRECONDITION, "WorkspaceBusy", f"cannot claim: {why}", name, passing=passing))

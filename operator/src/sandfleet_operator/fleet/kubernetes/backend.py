"""Sandboxes as pods: made, claimed, recorded and removed through the API server, which is the only store.

An incarnation is called NAMESPACE/POD here. Only the leader writes. After a write whose reply was lost, the fleet asks
the API server before it does anything else.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress

from sandfleet_rules.backoff import Backoff

from sandfleet_operator.api.kinds.meta import Meta
from sandfleet_operator.api.kinds.sandbox import CodeSandbox, readable
from sandfleet_operator.api.kube import (
    CODE_SANDBOX,
    POD,
    Cause,
    Json,
    NotCreated,
    Ref,
)
from sandfleet_operator.api.reasons import EndReason
from sandfleet_operator.api.settings import Settings
from sandfleet_operator.api.values import Exit, Sandbox
from sandfleet_operator.cluster.creation import create
from sandfleet_operator.cluster.kube_api import KubeApi
from sandfleet_operator.cluster.lease import NotLeadingError
from sandfleet_operator.cluster.revisions import Revisions
from sandfleet_operator.cluster.store import Store
from sandfleet_operator.cluster.tasks import BackgroundTasks
from sandfleet_operator.fleet.backend import Event, Exited, Made, NotMade, Ready, RefusedError, Removed, TakenError
from sandfleet_operator.fleet.kubernetes.catalog import Catalog, Recipe, key_of
from sandfleet_operator.fleet.kubernetes.sessions.binding import bind, unsettled
from sandfleet_operator.fleet.kubernetes.sessions.modes import Modes
from sandfleet_operator.fleet.kubernetes.sessions.recorder import Recorder
from sandfleet_operator.fleet.kubernetes.sessions.run import Run
from sandfleet_operator.fleet.kubernetes.workspaces import Workspaces, has_own_volume
from sandfleet_operator.fleet.kubernetes.writer import Writer
from sandfleet_operator.plan.claims.patches import claim_patch
from sandfleet_operator.plan.claims.record import (
    Record,
    object_of,
    record_of,
    volume_of_workspace,
)
from sandfleet_operator.plan.pods import names
from sandfleet_operator.plan.pods.merge import Refusal, with_image
from sandfleet_operator.plan.pods.podspec import PodRequest, PodState, sandbox_pod, trusting
from sandfleet_operator.plan.pods.volume import workspace_claim
from sandfleet_operator.plan.sandbox.binding import settled_binding, told
from sandfleet_operator.plan.sandbox.dependencies import annotated
from sandfleet_operator.plan.sandbox.observed import Pod, pod_of
from sandfleet_operator.plan.sandbox.pod import WAITING
from sandfleet_operator.plan.sandbox.restarts import OOM_KILLED
from sandfleet_operator.plan.scheduler.sessions.recovery import ends_session

# Before the object of a claim whose name a user's object has is tried again.
NAME_TAKEN = Backoff(first=1.0, longest=60.0)

_LOG = logging.getLogger(__name__)


class KubernetesBackend:
    """`listens` says of a pod whether its executor may be spoken to; `wall_clock` gives seconds since the epoch.
    `lost` is called with a pod that another fleet has; its events were taken for this fleet's own until then.
    `unbound` is called with a CodeSandbox that is to be looked at again: a declared one that named no pod before its
    pod was gone, one whose operating mode was written, and one that was not written before its session was over.
    `goes` is called with a pod whose session is over, before the scheduler hears of that.
    """

    def __init__(
        self,
        kube: KubeApi,
        store: Store,
        catalog: Catalog,
        writer: Writer,
        *,
        settings: Settings,
        user_namespaces: Callable[[str], Awaitable[bool]],
        listens: Callable[[Pod], bool],
        wall_clock: Callable[[], float],
        lost: Callable[[Ref], None],
        unbound: Callable[[Ref], None],
        goes: Callable[[Ref, str, Record], None],
        authority: Callable[[], str],
    ) -> None:
        self._kube, self._store, self._authority = kube, store, authority
        self._catalog = catalog
        self._writer = writer
        self.modes = Modes(store, writer, unbound, wall_clock)
        self.decided = self.modes.decided
        self._settings = settings
        self._user_namespaces = user_namespaces
        self._listens = listens
        self._clock = wall_clock
        self._workspaces = Workspaces(kube, store)
        self._recorder = Recorder(
            store, catalog, writer, self, settings=settings, clock=wall_clock, remove=self._remove
        )
        self._background = BackgroundTasks()
        self._revisions = Revisions(kube)
        self._events: asyncio.Queue[Event] = asyncio.Queue()
        self._runs: dict[str, Run] = {}
        # Pods that this fleet wanted to end and that another fleet has.
        self._foreign: set[str] = set()
        self._lost = lost
        self._unbound = unbound
        self._goes = goes

    # What the watches show.

    def run(self, key: str) -> Run | None:
        return self._runs.get(key)

    def know(self, key: str, uid: str, record: Record | None = None, owner: Meta | None = None) -> Run:
        """A pod from before this fleet. A pod that serves a claim need not report again that it is ready."""
        namespace, _, name = key.partition("/")
        claimed = record is not None
        run = Run(Ref(POD, namespace, name), uid=uid, said_ready=claimed, record=record, claimed=claimed, object=owner)
        self._runs[key] = run
        return run

    def forget(self, key: str) -> None:
        """A session sleeps without a pod."""
        self._runs.pop(key, None)

    def is_taken(self, key: str, obj: Json) -> bool:
        """Whether another fleet has changed a pod that this fleet has not touched; then this fleet forgets it."""
        run = self._runs.get(key)
        state = (obj["metadata"].get("labels") or {}).get(names.STATE)
        if run is None or run.record is not None or run.lock.locked() or state == PodState.WARM.value:
            return False
        del self._runs[key]
        return True

    def saw_pod(self, obj: Json, *, gone: bool) -> None:
        """News of a pod that the scheduler knows."""
        run = self._runs.get(key_of(obj))
        if run is None or obj["metadata"].get("uid") != (run.uid or obj["metadata"].get("uid")):
            return
        pod = pod_of(obj)
        run.uid = pod.uid
        if gone or pod.ended is not None or (pod.deleting and run.record is None):
            self._over(run, pod, gone=gone)
        elif (image := pod.annotations.get(names.IMAGE)) and not run.said_ready and pod.waiting in WAITING:
            # The claim has named it, and is told: whether another pod would fare better is the scheduler's to say.
            self._not_started(run, f"its container with image {image} does not start: {pod.waiting_message}")
        elif pod.deleting and run.young is not None:
            # The operator recovers what is written down by the time that the pod is gone.
            self._background.begin(self._write_young(run, run.young), f"write down {run.key}")
        elif not run.said_ready and not pod.deleting and self._listens(pod):
            run.said_ready = True
            self._events.put_nowait(Ready(run.key, pod.address))

    def removed(self, key: str, reason: str) -> None:
        """Its CodeSandbox is gone or has expired; its pod may have gone before."""
        self._forget(key)
        self._events.put_nowait(Removed(key, reason))

    def _forget(self, key: str) -> bool:
        """Its session is over; whether its pod was known."""
        run = self._runs.pop(key, None)
        if run is not None and run.record is not None:
            self._goes(run.ref, run.uid, run.record)
        return run is not None

    def _over(self, run: Run, pod: Pod, *, gone: bool) -> None:
        end = _end_of(pod)
        if run.ending:
            return
        if run.young is not None and not ends_session(end):
            run.ending = True
            self._background.begin(self._end_written(run, run.young, end), f"write down {run.key}, whose pod ended")
            return
        del self._runs[run.key]
        if run.claimed and run.object is None and run.young is None:
            # The operator replaces no pod of a claim that is not recorded.
            self._events.put_nowait(Removed(run.key, EndReason.POD_LOST.value))
        else:
            self._events.put_nowait(Exited(run.key, end))
        if not gone and run.object is None and not pod.deleting:
            # Only the fleet removes a pod without a CodeSandbox.
            self._writer.delete_later(run.ref, pod.uid)

    async def _write_young(self, run: Run, sandbox: Sandbox) -> None:
        """Once: the end of its pod comes next, and asks whether it could be written down."""
        await self._recorder.write(run, sandbox)

    async def _end_written(self, run: Run, sandbox: Sandbox, end: Exit) -> None:
        """Tells the end of a young session's pod once the operator can recover the session."""
        is_settled = await self._recorder.write(run, sandbox)
        if self._runs.get(run.key) is not run or (is_settled and run.object is None):
            return
        del self._runs[run.key]
        lost = Removed(run.key, EndReason.POD_LOST.value)
        self._events.put_nowait(Exited(run.key, end) if is_settled else lost)

    async def next_event(self) -> Event:
        return await self._events.get()

    # What the scheduler asks.

    async def start(self, sandbox: Sandbox) -> None:
        recipe = self._catalog.recipe(sandbox.pool)
        namespace, _, name = sandbox.sandbox_uid.partition("/")
        run = self._runs[sandbox.sandbox_uid] = Run(Ref(POD, namespace, name))
        if recipe is None or recipe.wanted is None:
            self._not_started(run, f"its pool cannot be started from: {recipe.closed if recipe else 'it is gone'}")
            return
        workspace = volume_of_workspace(sandbox.claim.workspace_id) if sandbox.claim else ""
        async with run.lock:
            own_ids = await self._user_namespaces(recipe.wanted.runtime_class)
            image = sandbox.claim.pod_image if sandbox.claim else ""
            made_of = warm_pod(recipe, name, workspace, self._settings, user_namespace=own_ids, image=image)
            if isinstance(made_of, Refusal):
                self._not_started(run, made_of.message)
                return
            manifest = trusting(made_of, self._authority())
            made = await self._revisions.keep(recipe.kept, self._writer.fencing) or await self._create(manifest)
            if isinstance(made, NotCreated):
                self._not_made(run, made)
                return
            run.uid = made["metadata"]["uid"]
            if not (workspace or recipe.wanted.workspace.ephemeral):
                volume = await self._create(warm_volume(recipe, run.ref.name, run.uid))
                if isinstance(volume, NotCreated):
                    self._not_made(run, volume)
                    return
            self._store.put(POD, made)
            self._events.put_nowait(Made(run.key))
        self.saw_pod(self._store.get(run.ref) or made, gone=False)

    async def _create(self, manifest: Json) -> Json | NotCreated:
        try:
            self._writer.fencing()
        except NotLeadingError as error:
            return NotCreated(Cause.BUSY, str(error))
        return await create(self._kube, manifest)

    async def complete(self, sandbox: Sandbox) -> None:
        """Makes the volume of a warm pod whose fleet ended before it made the volume."""
        run, recipe = self._runs.get(sandbox.sandbox_uid), self._catalog.recipe(sandbox.pool)
        if run is None or recipe is None or recipe.wanted is None:
            return
        async with run.lock:
            made = await self._create(warm_volume(recipe, run.ref.name, run.uid))
            if isinstance(made, NotCreated) and made.exists:
                # Another account may have made it, and would have the files of the next session.
                if not await has_own_volume(self._writer, run.ref, run.uid):
                    self._not_started(run, "the volume claim of its name does not belong to it")
            elif isinstance(made, NotCreated):
                self._not_made(run, made)

    def _not_started(self, run: Run, why: str) -> None:
        self._never_ran(run, Exited(run.key, Exit(message=why)))

    def _not_made(self, run: Run, why: NotCreated) -> None:
        self._never_ran(run, NotMade(run.key, why))

    def _never_ran(self, run: Run, event: Event) -> None:
        if self._runs.pop(run.key, None) is not None:
            self._events.put_nowait(event)
        if run.uid:
            self._writer.discard_later(run.ref, run.uid, None)

    async def claim(self, sandbox: Sandbox) -> None:
        run = self._runs.get(sandbox.sandbox_uid)
        recipe = self._catalog.recipe(sandbox.pool)
        if run is None or recipe is None or sandbox.claim is None:
            raise TakenError
        async with run.lock:
            try:
                record = record_of(sandbox.claim, self._writer.fencing(), self._clock())
            except NotLeadingError as error:
                raise unsettled(str(error)) from error
            run.record = record
            copied = names.copied(record.labels, self._settings.copied_labels)
            if record.workspace:
                # The pod is there for others to see: who wants the workspace as well is seen now, or sees it.
                await self._workspaces.only_for(run.ref, record.workspace)
            patch = claim_patch(run.uid, record, recipe.egress_class, copied)
            try:
                await bind(self._kube, self._writer, run.ref, run.uid, (record, patch))
            except TakenError:
                self._runs.pop(run.key, None)
                asyncio.get_running_loop().call_soon(self._lost, run.ref)
                raise
            except RefusedError as error:
                # What may have been sent is still to be undone with the pod.
                run.record = None if error.untouched else record
                raise
            run.claimed = True

    def answered(self, sandbox: Sandbox) -> float:
        run = self._runs.get(sandbox.sandbox_uid)
        if run is None:
            return 0.0
        left, found = self._recorder.begin(run, sandbox), self._store.get(run.ref)
        if found is not None:
            # Its end may have come before its caller had it.
            self.saw_pod(found, gone=False)
        return left

    async def record(self, sandbox: Sandbox) -> None:
        run, tries = self._runs.get(sandbox.sandbox_uid), 0
        while run is not None and self._runs.get(run.key) is run and not await self._recorder.write(run, sandbox):
            tries += 1
            await asyncio.sleep(NAME_TAKEN.after(tries))

    async def suspend(self, sandbox: Sandbox) -> None:
        """The operator ends the pod of a CodeSandbox that is suspended."""
        await self.modes.suspend(sandbox)
        if not self.has_pod(sandbox):
            # None will be seen to end.
            self.forget(sandbox.sandbox_uid)
            self._events.put_nowait(Exited(sandbox.sandbox_uid, Exit(code=0)))

    def has_pod(self, sandbox: Sandbox) -> bool:
        """Whether the end of its incarnation is still to be reported."""
        run = self._runs.get(sandbox.sandbox_uid)
        return run is not None and self._recorder.pod_of(run) is not None

    def can_suspend(self, sandbox: Sandbox) -> bool:
        return self.has_pod(sandbox) and bool(self._recorder.workspace_of(self._runs[sandbox.sandbox_uid]))

    async def resume(self, sandbox: Sandbox) -> None:
        """The operator starts the pod, and its status says when it is Ready."""
        await self.modes.resume(sandbox)

    async def stop(self, sandbox_uid: str) -> None:
        run = self._runs.get(sandbox_uid)
        if run is None:
            # Its pod went before; what is left is its CodeSandbox.
            self._events.put_nowait(Exited(sandbox_uid, Exit(code=0)))
            return
        async with run.lock:
            if self._runs.get(sandbox_uid) is not run:
                return
            try:
                if not await self._remove(run):
                    self._foreign.add(run.key)
            except NotLeadingError as error:
                _LOG.info("pod %s is left to who leads now: %s", run.key, error)
            if self._forget(sandbox_uid):
                self._events.put_nowait(Exited(sandbox_uid, Exit(code=0)))

    async def _remove(self, run: Run) -> bool:
        """Removes the CodeSandbox and then the pod; False if another fleet has the pod."""
        if run.object is not None:
            await self._writer.delete(Ref(CODE_SANDBOX, run.ref.namespace, run.object.name), run.object.uid)
        # What is not written down may have another fleet by now, which goes on with the claim.
        elif run.claimed and run.record is not None:
            return await self._recorder.delete_claimed(run, run.record)
        elif run.uid and not await self._writer.retire(run.ref, run.uid, run.record, claimed=False):
            return False
        if run.uid:
            await self._writer.delete(run.ref, run.uid)
        return True

    async def gone(self, sandbox: Sandbox) -> None:
        if sandbox.sandbox_uid in self._foreign:
            self._foreign.discard(sandbox.sandbox_uid)
            self._lost(Ref(POD, *sandbox.sandbox_uid.split("/")))
        if not sandbox.bound or sandbox.claim is None:
            return
        ref = Ref(CODE_SANDBOX, sandbox.sandbox_id.partition("/")[0], object_of(sandbox.claim))
        found = self._store.get(ref)
        if (made := readable(found) if found else None) is None:
            # It was young, and is not to be looked for any more.
            self._unbound(ref)
            return
        if sandbox.claim.object_uid == made.meta.uid and settled_binding(made) is None:
            self._unbound(ref)
        elif told(made) is None:
            # It had the name of this session only, and may have one of its own now.
            self._unbound(ref)
        elif _ends_with(sandbox, made):
            with suppress(NotLeadingError):
                await self._writer.delete(ref, made.meta.uid)

    async def drop_workspace(self, workspace_id: str) -> None:
        """It goes with its pod, or with its CodeSandbox."""

    async def close(self) -> None:
        """Ends no sandbox: the next leader goes on with them."""
        self._background.close()
        await self._writer.close()


def has_address(pod: Pod) -> bool:
    """Its container was given to the node's runtime, and is about to listen."""
    return bool(pod.address) and not pod.waiting


def _end_of(pod: Pod) -> Exit:
    """How its executor ended. Where the pod was taken away the executor is told to end: its code says nothing then."""
    ended = pod.ended
    message = ended.message or ended.reason if ended else "its pod was deleted"
    if ended is None or pod.deleting or pod.disruption:
        return Exit(message=message)
    return Exit(code=ended.code, message=message, out_of_memory=ended.reason == OOM_KILLED)


def _ends_with(sandbox: Sandbox, made: CodeSandbox) -> bool:
    """Whether the CodeSandbox is this session's and ends with it: a declared one outlives its pod, not its release."""
    assert sandbox.claim is not None
    # What it tells can be forged: then its owner ends an object of their own.
    binding = settled_binding(made) if sandbox.claim.object_uid else told(made)
    if binding is None or binding.pod != sandbox.sandbox_id.partition("/")[2]:
        return False
    released = sandbox.ended_reason == EndReason.RELEASED.value and sandbox.claim.object_uid == made.meta.uid
    return released or not sandbox.claim.object_uid


def warm_pod(
    recipe: Recipe, name: str, workspace: str, settings: Settings, *, user_namespace: bool, image: str = ""
) -> Json | Refusal:
    """A pod that waits for a claim. `workspace` is the claim of an older volume; empty: its own one, made behind it.

    `image` is what a claim has named; empty: the template's. A template that has changed since may refuse it.
    """
    assert recipe.wanted is not None
    assert recipe.owner is not None
    wanted = with_image(recipe.wanted, image, settings) if image else recipe.wanted
    if isinstance(wanted, Refusal):
        return wanted
    request = PodRequest(
        namespace=recipe.namespace,
        name=name,
        wanted=wanted,
        image=image,
        state=PodState.WARM,
        pool=recipe.pool,
        workspace=workspace,
        revision=recipe.kept["metadata"]["name"] if recipe.kept else "",
        snapshot="" if workspace or image else recipe.spec.snapshot,
        user_namespace=user_namespace,
    )
    pod = sandbox_pod(request, settings)
    pod["metadata"]["ownerReferences"] = [names.owned_by(recipe.owner_kind, recipe.owner)]
    return pod


def warm_volume(recipe: Recipe, pod: str, pod_uid: str) -> Json:
    """The claim of its workspace. It goes with the pod, until a CodeSandbox owns it."""
    assert recipe.wanted is not None
    manifest = annotated(workspace_claim(recipe.namespace, pod, recipe.wanted, owner=None), recipe.wanted.retention)
    owner = {"apiVersion": "v1", "kind": "Pod", "name": pod, "uid": pod_uid}
    return {**manifest, "metadata": {**manifest["metadata"], "ownerReferences": [owner]}}

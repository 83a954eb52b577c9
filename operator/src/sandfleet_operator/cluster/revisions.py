"""ControllerRevisions that keep the specs of templates: made once, read by name."""

import asyncio
import logging
from collections.abc import Callable

from sandfleet_operator.api.kinds.template import TemplateSpec
from sandfleet_operator.api.kube import (
    CONTROLLER_REVISION,
    AlreadyExists,
    Cause,
    Conflict,
    Forbidden,
    Invalid,
    Json,
    KubeError,
    NotCreated,
    NotFound,
    Ref,
)
from sandfleet_operator.cluster.creation import not_created
from sandfleet_operator.cluster.kube_api import KubeApi
from sandfleet_operator.cluster.lease import NotLeadingError
from sandfleet_operator.plan.pods.revision import is_genuine, kept_spec, revision_of

# Of each of its memories.
MAX_KNOWN = 10_000

_LOG = logging.getLogger(__name__)


class Revisions:
    def __init__(self, kube: KubeApi) -> None:
        self._kube = kube
        # Namespace and template → the revision made last: an older one may have been removed since.
        self._there: dict[tuple[str, str], str] = {}
        self._made: dict[tuple[str, str], tuple[Json, Json]] = {}
        # Their content never changes.
        self._read: dict[tuple[str, str], TemplateSpec] = {}
        self._making = asyncio.Lock()

    def of(self, template: Json) -> Json:
        """The manifest for a SandboxTemplate. Many sandboxes share one version of a template."""
        key = template["metadata"]["namespace"], template["metadata"]["name"]
        known = self._made.get(key)
        if known is None or known[0] is not template:
            if len(self._made) >= MAX_KNOWN:
                self._made.clear()
            known = self._made[key] = template, revision_of(template)
        return known[1]

    def has(self, manifest: Json) -> bool:
        """Whether it is known to exist."""
        namespace, name = _key(manifest)
        return self._there.get((namespace, manifest["data"]["template"])) == name

    def forget(self) -> None:
        """Makes each again when it is next needed, because another user may have deleted it."""
        self._there.clear()

    async def ensure(self, manifest: Json) -> None:
        """Creates it unless it exists. Raises KubeError.

        Without the right to create it sandboxes still start; they then follow their template.
        """
        async with self._making:
            if self.has(manifest):
                return
            try:
                await self._create(manifest)
            except (Forbidden, Invalid) as error:
                _LOG.warning("sandboxes follow edits of their template: %s", error)
            if len(self._there) >= MAX_KNOWN:
                self._there.clear()
            namespace, name = _key(manifest)
            self._there[namespace, manifest["data"]["template"]] = name

    async def keep(self, manifest: Json | None, fencing: Callable[[], object]) -> NotCreated | None:
        """As `ensure`, where there is a manifest; why it cannot now. `fencing` raises NotLeadingError."""
        if manifest is None or self.has(manifest):
            return None
        try:
            fencing()
            await self.ensure(manifest)
        except NotLeadingError as error:
            return NotCreated(Cause.BUSY, str(error))
        except KubeError as error:
            return not_created(error)
        return None

    async def _create(self, manifest: Json) -> None:
        try:
            await self._kube.create(manifest)
        except AlreadyExists:
            ref = Ref(CONTROLLER_REVISION, *_key(manifest))
            found = await self._kube.get(ref)
            if is_genuine(found):
                return
            # Content is immutable: another user has made this one.
            await self._kube.delete(ref, uid=found["metadata"]["uid"])
            await self._kube.create(manifest)

    async def read(self, namespace: str, name: str, template: str) -> TemplateSpec | None:
        """The spec that it keeps of the template; None if it keeps none. Raises KubeError."""
        if (known := self._read.get((namespace, name))) is not None:
            return known
        try:
            found = kept_spec(await self._kube.get(Ref(CONTROLLER_REVISION, namespace, name)), template)
        except NotFound:
            return None
        if found is not None:
            if len(self._read) >= MAX_KNOWN:
                self._read.clear()
            self._read[namespace, name] = found
        return found

    async def remove(self, obj: Json) -> None:
        """Raises KubeError."""
        try:
            await self._kube.delete(Ref(CONTROLLER_REVISION, *_key(obj)), uid=obj["metadata"]["uid"])
        except Conflict:
            return
        # Its name may be needed again.
        self._there = {template: name for template, name in self._there.items() if name != obj["metadata"]["name"]}


def _key(obj: Json) -> tuple[str, str]:
    return obj["metadata"]["namespace"], obj["metadata"]["name"]

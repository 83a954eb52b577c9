"""The templates of sandboxes: as they are now, and the specs that sandboxes have kept."""

from sandfleet_operator.api.errors import FleetError
from sandfleet_operator.api.kinds.sandbox import CodeSandbox
from sandfleet_operator.api.kinds.template import SandboxTemplate, TemplateSpec, sandbox_template
from sandfleet_operator.api.kube import SANDBOX_TEMPLATE, Json, Ref
from sandfleet_operator.cluster.revisions import Revisions
from sandfleet_operator.cluster.store import Store
from sandfleet_operator.plan.pods.revision import named_revision


class Templates:
    def __init__(self, store: Store, revisions: Revisions) -> None:
        self._store = store
        self._revisions = revisions
        # Parsed templates by version, because many sandboxes share one.
        self._parsed: dict[Ref, tuple[Json, SandboxTemplate]] = {}

    def now(self, sandbox: CodeSandbox) -> tuple[SandboxTemplate | None, str]:
        """The template, or why it cannot be read."""
        name = sandbox.spec.template
        ref = Ref(SANDBOX_TEMPLATE, sandbox.meta.namespace, name)
        found = self._store.get(ref) if name else None
        if found is None:
            self._parsed.pop(ref, None)
            return None, ""
        read = self._parsed.get(ref)
        if read is not None and read[0] is found:
            return read[1], ""
        try:
            template = sandbox_template(found)
        except FleetError as error:
            return None, error.problem.message
        self._parsed[ref] = found, template
        return template, ""

    async def kept(self, sandbox: CodeSandbox) -> tuple[Json | None, bool, TemplateSpec | None]:
        """What keeps the template as it is now, whether it is in place, and the spec that the sandbox has kept."""
        namespace, name = sandbox.meta.namespace, sandbox.spec.template
        if not name:
            return None, False, None
        found = self._store.get(Ref(SANDBOX_TEMPLATE, namespace, name))
        manifest = self._revisions.of(found) if found else None
        named = named_revision(sandbox.status.template_revision)
        if not named or (manifest and manifest["metadata"]["name"] == named):
            return manifest, manifest is not None and self._revisions.has(manifest), None
        return manifest, True, await self._revisions.read(namespace, named, name)

"""What the operator and the fleet ask of the Kubernetes API; `Kube` does it over HTTP, tests have one in memory."""

from collections.abc import AsyncGenerator, Sequence
from typing import Any, Protocol

from sandfleet_operator.api.kube import Event, Json, Kind, Listing, Ref


class KubeApi(Protocol):
    """Objects are JSON dicts. Each call ends within a bound, is sent once, and raises KubeError.

    A write whose error says `unsettled` may have been done: read before trying again.
    """

    async def get(self, ref: Ref) -> Json: ...

    async def list(
        self, kind: Kind, namespace: str | None = None, selector: str = "", fields: str = "", limit: int = 500
    ) -> Listing:
        """All of them, `limit` in one answer; without a namespace, of all namespaces. Raises Expired when it takes too long."""
        ...

    async def create(self, obj: Json) -> Json: ...

    async def apply(self, obj: Json) -> Json:
        """Server-side apply: make these fields so, and remove those that an earlier apply of ours had and this one has not.

        With metadata.uid it writes to that object only: raises Conflict where it is gone, Invalid where there is another one.
        """
        ...

    async def apply_status(self, obj: Json) -> Json:
        """The same for the status alone. Raises NotFound where there is no object.

        A metadata.uid guards nothing here (the API server does not look at it); a metadata.resourceVersion does: Conflict.
        """
        ...

    async def patch(self, ref: Ref, operations: Sequence[Json], subresource: str = "", *, brief: bool = False) -> Json:
        """A JSON patch. Raises Invalid where one of its tests fails. `brief`: the reply may have the metadata only."""
        ...

    async def merge(self, ref: Ref, patch: Json, subresource: str = "") -> Json:
        """A JSON merge patch. Raises Conflict where it names another metadata.resourceVersion than the object has,
        Invalid where another metadata.uid.
        """
        ...

    async def delete(
        self,
        ref: Ref,
        uid: str | None = None,
        resource_version: str | None = None,
        grace_seconds: int | None = None,
        propagation: str = "Background",
    ) -> bool:
        """False where there is no such object. Raises Conflict where its uid or resource version is another."""
        ...

    def watch(
        self, kind: Kind, namespace: str | None = None, selector: str = "", resource_version: str = ""
    ) -> AsyncGenerator[Event, None]:
        """Changes since the resource version, bookmarks among them; without one, first each object as ADDED.

        Close it when done (contextlib.aclosing). Ends after a while: go on from the last version seen. Raises Expired where that is too old, Unreachable where the
        stream broke.
        """
        ...

    def apart(self) -> "KubeApi":
        """Another client of the same API server with connections of its own, also for another event loop. Close it too."""
        ...

    async def version(self) -> dict[str, Any]:
        """What the API server says of itself, `gitVersion` among it."""
        ...

    async def close(self) -> None: ...

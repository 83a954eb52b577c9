"""The calls of the Kubernetes API that the control plane makes.

`Kube` makes them over HTTP; tests have one in memory.
"""

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Sequence
from typing import Protocol

from sandfleet_operator.api.kube import Event, Json, Kind, Listing, Ref

# Objects of a list that are read before others get their turn: a few milliseconds' work with what is done with them.
PART = 10


class KubeApi(Protocol):
    """Objects are JSON dicts. Each call ends within a bound, is sent once, and raises KubeError.

    A write whose error says `unsettled` may have been done: read before trying again.
    """

    async def get(self, ref: Ref) -> Json: ...

    async def list(
        self, kind: Kind, namespace: str | None = None, selector: str = "", fields: str = "", limit: int = 500
    ) -> Listing:
        """All objects, `limit` in a page; without a namespace, of all namespaces.

        Raises Expired if it takes too long.
        """
        ...

    def pages(
        self, kind: Kind, namespace: str | None = None, selector: str = "", fields: str = "", limit: int = 500
    ) -> AsyncGenerator[Listing, None]:
        """The same objects, all as of one version, in parts of PART objects at most.

        Never more than a page of `limit` objects is in memory, and others get their turn before each part. The version
        stands in the last part, which may be empty. Close it when done. Raises Expired if it takes too long.
        """
        ...

    async def create(self, obj: Json) -> Json: ...

    async def apply(self, obj: Json) -> Json:
        """Server-side apply: sets these fields, and removes fields that only an earlier apply of ours had.

        With metadata.uid it writes to that object only. Raises Conflict if it is gone, Invalid if another has its name.
        """
        ...

    async def patch(self, ref: Ref, operations: Sequence[Json], subresource: str = "", *, brief: bool = False) -> Json:
        """A JSON patch. Raises Invalid if one of its tests fails. `brief`: the reply may have the metadata only."""
        ...

    async def merge(self, ref: Ref, patch: Json, subresource: str = "") -> Json:
        """A JSON merge patch. Raises Conflict if its metadata.resourceVersion differs from the object's.

        Raises Invalid if its metadata.uid differs.
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
        """False if there is no such object. Raises Conflict if its UID or resource version differs."""
        ...

    def watch(
        self,
        kind: Kind,
        namespace: str | None = None,
        selector: str = "",
        resource_version: str = "",
        seconds: float | None = None,
        *,
        fields: str = "",
    ) -> AsyncGenerator[Event, None]:
        """Changes since the resource version, bookmarks among them; without one, first each object as ADDED.

        Close it when done (contextlib.aclosing). A watch ends after some minutes: go on from the last version seen.
        One of 3 or more `seconds` ends then, and two seconds before that it has a bookmark.
        Raises Expired if that version is too old, Unreachable if the stream broke.
        """
        ...

    def apart(self) -> "KubeApi":
        """Another client with connections of its own, which another event loop may use. Close it, too."""
        ...

    async def close(self) -> None: ...


class PagedLists(ABC):
    """`KubeApi.list`, which puts the pages together."""

    @abstractmethod
    def pages(
        self, kind: Kind, namespace: str | None = None, selector: str = "", fields: str = "", limit: int = 500
    ) -> AsyncGenerator[Listing, None]: ...

    async def list(
        self, kind: Kind, namespace: str | None = None, selector: str = "", fields: str = "", limit: int = 500
    ) -> Listing:
        items: list[Json] = []
        version = ""
        async for page in self.pages(kind, namespace, selector, fields, limit):
            items += page.items
            version = page.resource_version
        return Listing(tuple(items), version)

"""CodeSandboxes as they change, for those who watch: each reader sees the last state of each, whatever it missed in between."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping

from sandfleet_api.fleet.v1 import fleet_pb2

from sandfleet_operator.api.errors import FleetError
from sandfleet_operator.api.kube import CODE_SANDBOX, Json, Ref
from sandfleet_operator.api.parse import code_sandbox
from sandfleet_operator.api.resources import CodeSandbox
from sandfleet_operator.effects.store import Store
from sandfleet_operator.fleet.kubernetes.objects import key_of

Matches = Callable[[Mapping[str, str]], bool]


class _Reader:
    def __init__(self) -> None:
        # What it has not seen: the last object by name, and whether it is gone.
        self.news: dict[str, tuple[Json, bool]] = {}
        self.came = asyncio.Event()


class Changes:
    """`describe` says how callers see a CodeSandbox."""

    def __init__(self, store: Store, describe: Callable[[CodeSandbox], fleet_pb2.Sandbox]) -> None:
        self._store = store
        self._describe = describe
        self._readers: set[_Reader] = set()

    def say(self, obj: Json, *, gone: bool) -> None:
        for reader in self._readers:
            reader.news[key_of(obj)] = (obj, gone)
            reader.came.set()

    def say_again(self, name: str) -> None:
        """Something is new of a CodeSandbox, NAMESPACE/NAME, that does not stand in it."""
        namespace, _, own = name.partition("/")
        obj = self._store.get(Ref(CODE_SANDBOX, namespace, own))
        if obj is not None:
            self.say(obj, gone=False)

    async def watch(self, namespace: str, matches: Matches) -> AsyncIterator[fleet_pb2.WatchResponse]:
        """Without a namespace: of all. Until it is closed."""
        reader, sequence = _Reader(), 0
        self._readers.add(reader)
        try:
            for obj in list(self._store.all(CODE_SANDBOX, namespace or None)):
                reader.news[key_of(obj)] = (obj, False)
            first = True
            while True:
                for message in self._taken(reader, namespace, matches):
                    sequence += 1
                    message.sequence = sequence
                    yield message
                if first:
                    sequence += 1
                    yield fleet_pb2.WatchResponse(sequence=sequence, synced=True)
                    first = False
                await reader.came.wait()
                reader.came.clear()
        finally:
            self._readers.discard(reader)

    def _taken(self, reader: _Reader, namespace: str, matches: Matches) -> list[fleet_pb2.WatchResponse]:
        news, reader.news = reader.news, {}
        found = []
        for obj, gone in news.values():
            if namespace and obj["metadata"]["namespace"] != namespace:
                continue
            try:
                sandbox = code_sandbox(obj)
            except FleetError:
                continue
            if not matches(sandbox.meta.labels):
                continue
            message = self._describe(sandbox)
            found.append(fleet_pb2.WatchResponse(removed=message) if gone else fleet_pb2.WatchResponse(changed=message))
        return found

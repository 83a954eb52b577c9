"""Saved states as a reviewer sees them, bound to the bytes that are restored."""

import asyncio
import hashlib
import json
import os
from contextvars import ContextVar
from dataclasses import dataclass

from sandfleet_executor.core.contexts.states import Manifest
from sandfleet_executor.effects.contexts.state_store import NAMED, StateReplacedError, StateStore

PIECE = 1 << 20

# SHA-256 of the state that a reviewer has let the present call restore; None: no reviewer is needed.
APPROVED: ContextVar[str | None] = ContextVar("approved_state", default=None)


@dataclass(frozen=True, slots=True)
class Shown:
    """`content`: what a reviewer sees, with the hash of the state's bytes in it."""

    content: bytes
    sha256: str


class StoredStates:
    def __init__(self, store: StateStore) -> None:
        self._store = store

    async def shown(self, name: str) -> Shown:
        """What the state of this name has now. Raises StateError."""
        return await asyncio.to_thread(self._shown, name)

    def _shown(self, name: str) -> Shown:
        manifest, fd = self._store.read(NAMED, name)
        try:
            found = hash_of(fd)
        finally:
            os.close(fd)
        return Shown(_described(manifest, found), found)


def check_approved(fd: int, name: str) -> None:
    """Raises StateReplacedError where a reviewer has let another state through than the descriptor's. Blocks."""
    approved = APPROVED.get()
    if approved is not None and hash_of(fd) != approved:
        raise StateReplacedError(
            f"cannot restore state {name}: another one of its name was saved since it was reviewed"
        )


def hash_of(fd: int) -> str:
    """SHA-256 of a whole file in hexadecimal; the descriptor's place stays as it is."""
    found, position = hashlib.sha256(), 0
    while data := os.pread(fd, PIECE, position):
        found.update(data)
        position += len(data)
    return found.hexdigest()


def _described(manifest: Manifest, sha256: str) -> bytes:
    """What the context that has saved it says of it, and what is known of the bytes whatever it says."""
    variables = [{"name": one.name, "kind": one.kind, "type": one.type, "bytes": one.size} for one in manifest.saved]
    said = {
        "sha256": sha256,
        "bytes": manifest.size,
        "saved_by_context": manifest.context_id,
        "after_cell": manifest.cell,
        "variables": variables,
        "variables_not_listed": manifest.saved_omitted,
    }
    return json.dumps(said, indent=1, ensure_ascii=False).encode()

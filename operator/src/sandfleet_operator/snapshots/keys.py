"""The keys of a tenant, and what is made with them: names of chunks, and what is written of chunks and manifests.

From one secret of 32 bytes each tenant gets keys of its own (HKDF, RFC 5869). The name of a chunk is the HMAC-SHA256
of its content, so equal content has equal names within a tenant, and names say nothing to others. What is stored is
encrypted with AES-256-GCM under a random nonce; a chunk has a key of its own, made from its name.
"""

import contextlib
import hmac
import json
import os
import secrets
import tempfile
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import zstandard
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from sandfleet_operator.plan.snapshots.errors import Reason, SnapshotError, corrupt
from sandfleet_operator.plan.snapshots.manifest import MAX_CHUNK, MAX_MANIFEST, checked_name

SECRET_BYTES = 32
_NONCE = 12
_LEVEL = 3
# What begins a stored manifest, so that the key it needs is known before it is opened.
_MAGIC = b"sandfleet snapshot 1 "
_PURPOSES = ("names", "chunks", "manifests", "cuts")


@dataclass(frozen=True, slots=True)
class TenantKeys:
    """The keys of one tenant that one secret gives. `name` is the secret's."""

    name: str
    tenant: str
    names: bytes = field(repr=False)
    chunks: bytes = field(repr=False)
    manifests: bytes = field(repr=False)
    cuts: bytes = field(repr=False)

    def chunk_id(self, data: bytes | memoryview) -> bytes:
        return hmac.digest(self.names, data, "sha256")

    def seal(self, chunk_id: bytes, data: bytes | memoryview) -> bytes:
        """What is stored of a chunk."""
        nonce = os.urandom(_NONCE)
        packed = _compress(data)
        return nonce + self._cipher(chunk_id).encrypt(nonce, packed, chunk_id)

    def open(self, chunk_id: bytes, stored: bytes | memoryview, size: int) -> bytes:
        """The chunk: it has this size and this name. Raises SnapshotError."""
        try:
            packed = self._cipher(chunk_id).decrypt(bytes(stored[:_NONCE]), stored[_NONCE:], chunk_id)
            # What is allocated is what the frame says.
            if size > MAX_CHUNK or zstandard.frame_content_size(packed) != size:
                raise corrupt("a chunk has another size than its table says")
            data = zstandard.ZstdDecompressor().decompress(packed)
        except (InvalidTag, ValueError) as error:
            raise corrupt("a chunk is not what was written") from error
        except zstandard.ZstdError as error:
            raise corrupt("a chunk cannot be decompressed") from error
        if not hmac.compare_digest(self.chunk_id(data), chunk_id):
            raise corrupt("a chunk has another content than its name says")
        return data

    def _cipher(self, chunk_id: bytes) -> AESGCM:
        return AESGCM(hmac.digest(self.chunks, chunk_id, "sha256"))

    def seal_manifest(self, snapshot_id: str, text: bytes) -> bytes:
        head = _MAGIC + self.name.encode("ascii") + b"\n"
        nonce = os.urandom(_NONCE)
        packed = _compress(text)
        return head + nonce + AESGCM(self.manifests).encrypt(nonce, packed, self._bound(head, snapshot_id))

    def open_manifest(self, snapshot_id: str, stored: bytes) -> bytes:
        """The text that was sealed as this tenant's and this snapshot's. Raises SnapshotError."""
        head, _, sealed = stored.partition(b"\n")
        try:
            bound = self._bound(head + b"\n", snapshot_id)
            packed = AESGCM(self.manifests).decrypt(sealed[:_NONCE], sealed[_NONCE:], bound)
            if not 0 < zstandard.frame_content_size(packed) <= MAX_MANIFEST:
                raise corrupt("its manifest is too large")
            return zstandard.ZstdDecompressor().decompress(packed)
        except (InvalidTag, ValueError) as error:
            why = "its manifest was not written with this tenant's key under this name"
            raise SnapshotError(Reason.FOREIGN, f"cannot read the snapshot: {why}") from error
        except zstandard.ZstdError as error:
            raise corrupt("its manifest cannot be decompressed") from error

    def _bound(self, head: bytes, snapshot_id: str) -> bytes:
        return b"\0".join((head, self.tenant.encode("ascii"), snapshot_id.encode("ascii")))


class _Compressors(threading.local):
    """One a thread: making one costs as much as a small chunk."""

    def __init__(self) -> None:
        self.one = zstandard.ZstdCompressor(level=_LEVEL)


_COMPRESSORS = _Compressors()


def _compress(data: bytes | memoryview) -> bytes:
    return _COMPRESSORS.one.compress(data)


def key_name(stored: bytes) -> str:
    """The name of the key of a stored manifest. Raises SnapshotError."""
    head, end, _ = stored[:128].partition(b"\n")
    if not end or not head.startswith(_MAGIC):
        raise corrupt("its manifest is none")
    return head[len(_MAGIC) :].decode("ascii", "replace")


def tenant_keys(name: str, secret: bytes, tenant: str) -> TenantKeys:
    made = {
        purpose: HKDF(
            algorithm=SHA256(), length=32, salt=None, info=f"sandfleet snapshots 1\0{purpose}\0{tenant}".encode("ascii")
        ).derive(secret)
        for purpose in _PURPOSES
    }
    return TenantKeys(name=name, tenant=tenant, **made)


class Keys(Protocol):
    """Where keys come from: a file, a Secret, a service. Called for each snapshot, from any thread."""

    def current(self, tenant: str) -> TenantKeys:
        """Those to write with. Raises SnapshotError."""

    def named(self, tenant: str, name: str) -> TenantKeys:
        """Those that a manifest was written with. Raises SnapshotError: the tenant does not have that key."""


@dataclass(frozen=True)
class SecretKeys:
    """Keys of all tenants from secrets by name; the current one writes, and all of them read."""

    secrets: Mapping[str, bytes] = field(repr=False)
    writes: str

    def __post_init__(self) -> None:
        for name, secret in self.secrets.items():
            checked_name(name, "a key")
            if len(secret) != SECRET_BYTES:
                raise SnapshotError(Reason.DENIED, f"cannot use the key {name}: it has not {SECRET_BYTES} bytes")
        if self.writes not in self.secrets:
            raise SnapshotError(Reason.DENIED, f"cannot use the keys: there is none of the name {self.writes!r}")

    def current(self, tenant: str) -> TenantKeys:
        return self.named(tenant, self.writes)

    def named(self, tenant: str, name: str) -> TenantKeys:
        secret = self.secrets.get(name)
        if secret is None:
            why = f"it was written with the key {name[:64]!r}, which is not among those of this store"
            raise SnapshotError(Reason.FOREIGN, f"cannot read the snapshot: {why}")
        return tenant_keys(name, secret, checked_name(tenant, "a tenant"))


def key_file(path: Path) -> SecretKeys:
    """The keys in a file, which is made with a random one where it is missing. Raises SnapshotError."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not path.exists():
            _make_key_file(path)
        said = json.loads(path.read_bytes())
        kept = {str(name): bytes.fromhex(secret) for name, secret in said["keys"].items()}
        return SecretKeys(kept, str(said["current"]))
    except OSError as error:
        raise SnapshotError(Reason.DENIED, f"cannot read the keys in {path}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise SnapshotError(Reason.DENIED, f"cannot read the keys in {path}: it is not a file of keys") from error


def _make_key_file(path: Path) -> None:
    """Of two that make it at once one wins, and both read it."""
    name = f"k{secrets.token_hex(4)}"
    text = json.dumps({"current": name, "keys": {name: secrets.token_hex(SECRET_BYTES)}}) + "\n"
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=".keys-")
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        with contextlib.suppress(FileExistsError):
            os.link(temporary, path)
    finally:
        Path(temporary).unlink()

"""The signing material of the control plane, in one Secret: the certificate authority and the token keys.

The first process creates the Secret. Every process reads it again regularly, and so sees keys that another has added.
Times are seconds since the epoch.
"""

import asyncio
import base64
import binascii
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from sandfleet_operator.api.kube import SECRET, AlreadyExists, Conflict, Json, KubeError, NotFound, Ref
from sandfleet_operator.cluster.kube_api import KubeApi
from sandfleet_operator.executors.authority import Authority, AuthorityError
from sandfleet_operator.executors.tokens import DAY, MAX_KEYS, KeyRing, Signer, TokenKey, TooManyKeysError, base64url
from sandfleet_operator.plan.pods.names import CA_CONFIG_MAP, MANAGED_BY, PRODUCT

SECRET_NAME = "sandfleet-signing"  # noqa: S105 - the object's name
CA_KEY, CA_CERTIFICATE, TOKEN_KEYS = "ca.key", "ca.crt", "tokens.json"
# Seconds for which a new key is published before it signs. Processes have to read it (REFRESH) and write ConfigMaps,
# and kubelets take up to a minute and a half to show them.
PROPAGATION = 300.0
REFRESH = 30.0
ROTATE_EVERY = 7 * 86400.0
# Attempts at a write that conflicts with writes of other processes.
ATTEMPTS = 5

_LOG = logging.getLogger(__name__)


class SigningError(Exception):
    """The Secret cannot be used, or cannot be written. The message is "cannot X: why"."""


@dataclass(frozen=True)
class Material:
    authority: Authority
    tokens: KeyRing
    resource_version: str

    def public_keys(self, now: float) -> str:
        """The JWKS for executors: they take only keys with the authority's signature, until their end."""
        return self.tokens.public(self.authority.sign, now)


async def load_or_create(kube: KubeApi, namespace: str, now: float) -> Material:
    """The namespace's material; created if there is none. Raises SigningError, KubeError."""
    ref = Ref(SECRET, namespace, SECRET_NAME)
    for _ in range(ATTEMPTS):
        found = await _get(kube, ref)
        if found is not None and found.get("data"):
            return read(found)
        made = _data(Authority.new(now), KeyRing((TokenKey.new(now),)))
        written = await _try(_write(kube, ref, found, made))
        if written is not None:
            return read(written)
        # Another process was faster, or the reply was lost: read what the Secret has now.
    raise SigningError(f"cannot write {ref}: another process has written it {ATTEMPTS} times")


async def rotate(
    kube: KubeApi, namespace: str, now: float, *, older_than: float = 0.0, propagation: float = PROPAGATION
) -> Material:
    """Adds a token key if the youngest has signed for more than `older_than` seconds. It signs after `propagation`.

    Several processes may rotate at once: one adds the key, the others read it. Raises SigningError, KubeError.
    """
    ref = Ref(SECRET, namespace, SECRET_NAME)
    for _ in range(ATTEMPTS):
        found = await kube.get(ref)
        material = read(found)
        if material.tokens.keys[-1].signs_from > now - older_than:
            return material
        try:
            ring = material.tokens.rotated(now, propagation)
        except TooManyKeysError as error:
            raise SigningError(str(error)) from error
        written = await _try(_write(kube, ref, found, _data(material.authority, ring)))
        if written is not None:
            return read(written)
    raise SigningError(f"cannot rotate the token key: another process has written {ref} {ATTEMPTS} times")


class Signing:
    """The material as last read. Use `authority` and `signer` only after `load` has returned."""

    def __init__(self, kube: KubeApi, namespace: str, wall_clock: Callable[[], float]) -> None:
        self._kube = kube
        self._namespace = namespace
        self._clock = wall_clock
        self._material: Material | None = None
        self._signer: Signer | None = None
        self._published = b""
        # The text for executors, and the version of the Secret and the day for which it was made.
        self._public: tuple[str, int, str] = ("", 0, "")

    @property
    def material(self) -> Material:
        assert self._material is not None, "load comes first"
        return self._material

    @property
    def authority(self) -> Authority:
        return self.material.authority

    @property
    def signer(self) -> Signer:
        assert self._signer is not None, "load comes first"
        return self._signer

    @property
    def public_keys(self) -> str:
        """The JWKS for executors now."""
        now = self._clock()
        version, day = self.material.resource_version, int(now // DAY)
        if self._public[:2] != (version, day):
            self._public = (version, day, self.material.public_keys(now))
        return self._public[2]

    async def load(self) -> Material:
        """Raises SigningError, KubeError."""
        return self._take(await load_or_create(self._kube, self._namespace, self._clock()))

    async def refresh(self, *, rotate_every: float | None = None) -> Material:
        """Reads the material again; with `rotate_every`, adds a token key if the youngest is that old (seconds).

        Does not create a missing Secret: the known material still works, and a new authority would not. Raises
        SigningError, KubeError.
        """
        if rotate_every is None:
            return self._take(read(await self._kube.get(Ref(SECRET, self._namespace, SECRET_NAME))))
        return self._take(await rotate(self._kube, self._namespace, self._clock(), older_than=rotate_every))

    async def publish(self) -> None:
        """Publishes the certificate for clients, unless this process has done so. Raises KubeError."""
        if self.authority.pem != self._published:
            certificate = self.material.authority.pem.decode("ascii")
            await self._kube.apply(ca_config_map(self._namespace, certificate))
            self._published = self.authority.pem

    async def run(self, *, rotate_every: float | None = None) -> None:
        """Refreshes the material until cancelled. While it cannot be read, the last one stays in use."""
        while True:
            await asyncio.sleep(REFRESH)
            try:
                await self.refresh(rotate_every=rotate_every)
                await self.publish()
            except (SigningError, KubeError) as error:
                _LOG.warning("%s", error)

    def _take(self, material: Material) -> Material:
        self._material = material
        if self._signer is None:
            self._signer = Signer(material.tokens, self._clock)
        self._signer.keys = material.tokens
        return material


def read(secret: Mapping[str, Any]) -> Material:
    """Raises SigningError. Unreadable material is never replaced, because every sandbox depends on it."""
    try:
        values = {name: base64.b64decode(text, validate=True) for name, text in secret["data"].items()}
        authority = Authority.load(values[CA_KEY], values[CA_CERTIFICATE])
        ring = KeyRing(tuple(_key(one) for one in json.loads(values[TOKEN_KEYS])["keys"][:MAX_KEYS]))
    except KeyError as error:
        raise SigningError(f"cannot use Secret {SECRET_NAME}: {error} is missing") from error
    except (AuthorityError, binascii.Error, ValueError, TypeError, AttributeError) as error:
        raise SigningError(f"cannot use Secret {SECRET_NAME}: {error}") from error
    if not ring.keys:
        raise SigningError(f"cannot use Secret {SECRET_NAME}: it has no token key")
    return Material(authority, ring, secret["metadata"]["resourceVersion"])


def ca_config_map(namespace: str, certificate: str) -> dict[str, Any]:
    """The authority's certificate (PEM) for clients, in the control plane's namespace.

    Without labels: Helm makes it.
    """
    metadata = {"namespace": namespace, "name": CA_CONFIG_MAP}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {CA_CERTIFICATE: certificate}}


def _key(said: Mapping[str, Any]) -> TokenKey:
    private = Ed25519PrivateKey.from_private_bytes(base64.urlsafe_b64decode(said["d"] + "="))
    return TokenKey(str(said["kid"]), private, float(said["signsFrom"]))


def _data(authority: Authority, ring: KeyRing) -> dict[str, str]:
    keys = [
        {"kid": key.kid, "d": base64url(key.private.private_bytes_raw()), "signsFrom": key.signs_from}
        for key in ring.keys
    ]
    values = {
        CA_CERTIFICATE: authority.pem,
        CA_KEY: authority.key_pem,
        TOKEN_KEYS: json.dumps({"keys": keys}).encode("ascii"),
    }
    return {name: base64.b64encode(value).decode("ascii") for name, value in values.items()}


async def _get(kube: KubeApi, ref: Ref) -> Json | None:
    try:
        return await kube.get(ref)
    except NotFound:
        return None


async def _try(write: Awaitable[Json]) -> Json | None:
    """The written object. None if it has to be read again: another write came first, or the outcome is unknown."""
    try:
        return await write
    except (AlreadyExists, Conflict, NotFound):
        return None
    except KubeError as error:
        if error.unsettled:
            return None
        raise


async def _write(kube: KubeApi, ref: Ref, found: Json | None, data: Mapping[str, str]) -> Json:
    """Writes the Secret, only if it is still the version that was found."""
    if found is not None:
        version = {"resourceVersion": found["metadata"]["resourceVersion"]}
        return await kube.merge(ref, {"metadata": version, "data": data})
    metadata = {"namespace": ref.namespace, "name": ref.name, "labels": {MANAGED_BY: PRODUCT}}
    return await kube.create(
        {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "Opaque", "data": data}
    )

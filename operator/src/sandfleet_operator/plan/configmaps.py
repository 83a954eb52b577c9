"""What is published: the keys that executors check tokens with, and the certificate that clients check everybody with."""

from collections.abc import Mapping
from typing import Any

from sandfleet_operator.plan import names

KEYS_FILE = "keys.json"
CA_CERTIFICATE = "ca.crt"


def keys_config_map(namespace: str, public_keys: str) -> dict[str, Any]:
    """In each namespace with sandboxes; `public_keys` is a JWKS."""
    labels = {names.MANAGED_BY: names.PRODUCT}
    return _config_map(
        {"namespace": namespace, "name": names.KEYS_CONFIG_MAP, "labels": labels}, KEYS_FILE, public_keys
    )


def ca_config_map(namespace: str, certificate: str) -> dict[str, Any]:
    """In the control plane's namespace; `certificate` is PEM. Without labels: Helm makes it, with its own."""
    return _config_map({"namespace": namespace, "name": names.CA_CONFIG_MAP}, CA_CERTIFICATE, certificate)


def _config_map(metadata: Mapping[str, Any], key: str, text: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": dict(metadata), "data": {key: text}}

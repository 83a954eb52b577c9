"""The cluster's certificate authority and who has a certificate from it."""

from __future__ import annotations

import base64
import datetime as dt
import ipaddress
import json
import os
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from .layout import DOMAIN, NODE_NAME, Addresses

LIFETIME = dt.timedelta(days=3650)


@dataclass(frozen=True)
class Identity:
    """A certificate to be: `group` is the organization, which Kubernetes reads as a group."""

    file: str
    name: str
    group: str = ""
    hosts: tuple[str, ...] = ()


def identities(addresses: Addresses) -> tuple[Identity, ...]:
    services = ("kubernetes", "kubernetes.default", "kubernetes.default.svc", f"kubernetes.default.svc.{DOMAIN}")
    ways_in = (*services, "localhost", "127.0.0.1", addresses.node, addresses.kubernetes_service)
    return (
        Identity("apiserver", "kube-apiserver", hosts=ways_in),
        Identity("apiserver-kubelet-client", "kube-apiserver-kubelet-client", "system:masters"),
        Identity("front-proxy", "front-proxy-client"),
        Identity("kubelet-server", NODE_NAME, hosts=(NODE_NAME, addresses.node)),
        Identity("admin", "admin", "system:masters"),
        Identity("controller-manager", "system:kube-controller-manager"),
        Identity("scheduler", "system:kube-scheduler"),
        Identity("kubelet", f"system:node:{NODE_NAME}", "system:nodes"),
        Identity("kube-proxy", "system:kube-proxy"),
        Identity("enforcer", "sandfleet:policy-enforcer"),
        Identity("provisioner", "sandfleet:volume-provisioner"),
    )


def _write(path: Path, content: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(content)


def _save_key(path: Path) -> ec.EllipticCurvePrivateKey:
    key = ec.generate_private_key(ec.SECP256R1())
    plain = serialization.NoEncryption()
    _write(path, key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, plain))
    return key


def _name(common: str, group: str = "") -> x509.Name:
    parts = [x509.NameAttribute(NameOID.COMMON_NAME, common)]
    return x509.Name([*([x509.NameAttribute(NameOID.ORGANIZATION_NAME, group)] if group else []), *parts])


def _host(value: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(value))
    except ValueError:
        return x509.DNSName(value)


def make(directory: Path, addresses: Addresses, now: dt.datetime) -> None:
    """Write ca, every identity and the service accounts' key pair as PEM files for root only; keeps complete ones."""
    done = directory / "complete"
    if done.exists():
        return
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    authority_key = _save_key(directory / "ca.key")
    issuer = _name("sandfleet-test-cluster")

    def begin(subject: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key.public_key())
        builder = builder.serial_number(x509.random_serial_number())
        return builder.not_valid_before(now - dt.timedelta(hours=1)).not_valid_after(now + LIFETIME)

    def finish(path: Path, builder: x509.CertificateBuilder) -> None:
        certificate = builder.sign(authority_key, hashes.SHA256())
        _write(path, certificate.public_bytes(serialization.Encoding.PEM))

    authority = begin(issuer, authority_key).add_extension(
        x509.BasicConstraints(ca=True, path_length=None), critical=True
    )
    finish(directory / "ca.crt", authority)
    both_ends = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
    for identity in identities(addresses):
        key = _save_key(directory / f"{identity.file}.key")
        builder = begin(_name(identity.name, identity.group), key).add_extension(both_ends, critical=False)
        if identity.hosts:
            names = x509.SubjectAlternativeName([_host(host) for host in identity.hosts])
            builder = builder.add_extension(names, critical=False)
        finish(directory / f"{identity.file}.crt", builder)
    public = _save_key(directory / "service-accounts.key").public_key()
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    _write(directory / "service-accounts.pub", public.public_bytes(serialization.Encoding.PEM, form))
    done.touch()


def kubeconfig(directory: Path, identity: str, server: str) -> str:
    """With everything in it, so that the file works from anywhere (JSON is YAML)."""

    def data(name: str) -> str:
        return base64.b64encode((directory / name).read_bytes()).decode()

    cluster = {"server": server, "certificate-authority-data": data("ca.crt")}
    user = {"client-certificate-data": data(f"{identity}.crt"), "client-key-data": data(f"{identity}.key")}
    value = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "sandfleet", "cluster": cluster}],
        "users": [{"name": identity, "user": user}],
        "contexts": [{"name": "sandfleet", "context": {"cluster": "sandfleet", "user": identity}}],
        "current-context": "sandfleet",
    }
    return json.dumps(value, indent=2) + "\n"

"""The processes of the cluster, each as a value: what is run, after what, and how to tell that it is ready."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from .layout import NODE_NAME, PROVISIONER, Addresses, Layout

ETCD = "http://127.0.0.1:2379"
PORT = 6443
# Two minutes, not 40 s: on a machine that is busy with tests a late heartbeat is no dead node.
NODE_GRACE = "2m0s"


@dataclass(frozen=True)
class Component:
    """`after` names components that must be ready first; `ready` is a TCP port of the node, "api" (readyz) or ""."""

    name: str
    command: tuple[str, ...]
    after: str = ""
    ready: str = ""


@dataclass(frozen=True)
class Context:
    """All that the commands are made of."""

    layout: Layout
    addresses: Addresses
    programs: Mapping[str, Path]
    python: str

    @property
    def server(self) -> str:
        return f"https://{self.addresses.node}:{PORT}"

    def pki(self, file: str) -> str:
        return str(self.layout.pki / file)

    def access(self, identity: str) -> str:
        return str(self.layout.etc / f"{identity}.kubeconfig")


def _flags(**values: str) -> tuple[str, ...]:
    return tuple(f"--{name.replace('_', '-')}={value}" for name, value in values.items())


def etcd(context: Context) -> Component:
    flags = _flags(
        data_dir=str(context.layout.root / "etcd"),
        listen_client_urls=ETCD,
        advertise_client_urls=ETCD,
        listen_peer_urls="http://127.0.0.1:2380",
        initial_advertise_peer_urls="http://127.0.0.1:2380",
        initial_cluster="default=http://127.0.0.1:2380",
        quota_backend_bytes=str(4 << 30),
        log_level="warn",
    )
    # Its data need not survive a loss of power, only of processes.
    return Component("etcd", (str(context.programs["etcd"]), *flags, "--unsafe-no-fsync"), ready="2379")


def apiserver(context: Context) -> Component:
    flags = _flags(
        etcd_servers=ETCD,
        secure_port=str(PORT),
        advertise_address=context.addresses.node,
        service_cluster_ip_range=context.addresses.services,
        authorization_mode="Node,RBAC",
        enable_admission_plugins="NodeRestriction,MutatingAdmissionPolicy",
        # On by default from 1.36: tests play other controllers' webhooks with it.
        feature_gates="MutatingAdmissionPolicy=true",
        runtime_config="admissionregistration.k8s.io/v1beta1=true",
        allow_privileged="true",
        client_ca_file=context.pki("ca.crt"),
        tls_cert_file=context.pki("apiserver.crt"),
        tls_private_key_file=context.pki("apiserver.key"),
        kubelet_client_certificate=context.pki("apiserver-kubelet-client.crt"),
        kubelet_client_key=context.pki("apiserver-kubelet-client.key"),
        kubelet_certificate_authority=context.pki("ca.crt"),
        kubelet_preferred_address_types="InternalIP",
        requestheader_client_ca_file=context.pki("ca.crt"),
        requestheader_allowed_names="front-proxy-client",
        requestheader_username_headers="X-Remote-User",
        requestheader_group_headers="X-Remote-Group",
        requestheader_extra_headers_prefix="X-Remote-Extra-",
        proxy_client_cert_file=context.pki("front-proxy.crt"),
        proxy_client_key_file=context.pki("front-proxy.key"),
        service_account_issuer="https://kubernetes.default.svc.cluster.local",
        service_account_key_file=context.pki("service-accounts.pub"),
        service_account_signing_key_file=context.pki("service-accounts.key"),
    )
    return Component("kube-apiserver", (str(context.programs["kube-apiserver"]), *flags), after="etcd", ready="api")


def controller_manager(context: Context) -> Component:
    access = context.access("controller-manager")
    flags = _flags(
        kubeconfig=access,
        authentication_kubeconfig=access,
        authorization_kubeconfig=access,
        bind_address="127.0.0.1",
        leader_elect="false",
        use_service_account_credentials="true",
        root_ca_file=context.pki("ca.crt"),
        service_account_private_key_file=context.pki("service-accounts.key"),
        cluster_signing_cert_file=context.pki("ca.crt"),
        cluster_signing_key_file=context.pki("ca.key"),
        cluster_cidr=context.addresses.pods,
        service_cluster_ip_range=context.addresses.services,
        node_monitor_grace_period=NODE_GRACE,
        kube_api_qps="500",
        kube_api_burst="1000",
    )
    program = str(context.programs["kube-controller-manager"])
    return Component("kube-controller-manager", (program, *flags), after="kube-apiserver")


def scheduler(context: Context) -> Component:
    access = context.access("scheduler")
    flags = _flags(
        kubeconfig=access,
        authentication_kubeconfig=access,
        authorization_kubeconfig=access,
        bind_address="127.0.0.1",
        leader_elect="false",
        kube_api_qps="1000",
        kube_api_burst="2000",
    )
    return Component("kube-scheduler", (str(context.programs["kube-scheduler"]), *flags), after="kube-apiserver")


def kube_proxy(context: Context) -> Component:
    config = str(context.layout.etc / "kube-proxy.json")
    return Component("kube-proxy", (str(context.programs["kube-proxy"]), f"--config={config}"), after="kube-apiserver")


def containerd(context: Context) -> Component:
    config = str(context.layout.etc / "containerd.toml")
    return Component("containerd", (str(context.programs["containerd"]), "--config", config))


def kubelet(context: Context) -> Component:
    flags = _flags(
        config=str(context.layout.etc / "kubelet.json"),
        kubeconfig=context.access("kubelet"),
        hostname_override=NODE_NAME,
        node_ip=context.addresses.node,
    )
    return Component("kubelet", (str(context.programs["kubelet"]), *flags), after="kube-apiserver")


def enforcer(context: Context) -> Component:
    config = str(context.layout.etc / "enforcer.json")
    return Component(
        "enforcer", (context.python, "-P", "-m", "cluster.harness.enforcer", config), after="kube-apiserver"
    )


def provisioner(context: Context) -> Component:
    flags = _flags(
        kubeconfig=context.access("provisioner"), name=PROVISIONER, directory=str(context.layout.root / "volumes")
    )
    return Component(
        "volume-provisioner", (str(context.programs["volume-provisioner"]), *flags), after="kube-apiserver"
    )


def all_components(context: Context) -> tuple[Component, ...]:
    parts = (etcd, containerd, apiserver, controller_manager, scheduler, enforcer, kubelet, kube_proxy, provisioner)
    return tuple(part(context) for part in parts)


def dump(components: tuple[Component, ...]) -> str:
    return json.dumps([asdict(component) for component in components], indent=2) + "\n"


def load(text: str) -> tuple[Component, ...]:
    values = json.loads(text)
    return tuple(Component(**{**value, "command": tuple(value["command"])}) for value in values)

"""Objects of a new cluster: name resolution, a storage class, gVisor's runtime class, rights of node helpers."""

from __future__ import annotations

from typing import Any

from .images import COREDNS_IMAGE
from .layout import DOMAIN, PROVISIONER, Addresses

Json = dict[str, Any]

_COREFILE = f""".:53 {{
    errors
    health
    ready
    kubernetes {DOMAIN} in-addr.arpa {{
        pods insecure
        ttl 5
    }}
    cache 5
    reload
    loadbalance
}}
"""


def _system(kind: str, version: str, name: str, **rest: Any) -> Json:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": "kube-system"}, **rest}


def _rights(name: str, rules: list[Json], subject: Json) -> list[Json]:
    group = "rbac.authorization.k8s.io"
    version = f"{group}/v1"
    role = {"apiVersion": version, "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules}
    binding = {
        "apiVersion": version,
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": name},
        "subjects": [subject],
    }
    return [role, binding]


def _may(group: str, resources: list[str], verbs: list[str]) -> Json:
    return {"apiGroups": [group], "resources": resources, "verbs": verbs}


def _user(name: str) -> Json:
    return {"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": name}


def rights() -> list[Json]:
    look, all_verbs = ["get", "list", "watch"], ["*"]
    enforcer = [
        _may("", ["pods", "namespaces"], look),
        _may("networking.k8s.io", ["networkpolicies"], look),
    ]
    provisioner = [
        _may("", ["nodes"], look),
        _may("", ["persistentvolumes", "persistentvolumeclaims", "events"], all_verbs),
        _may("storage.k8s.io", ["storageclasses"], look),
    ]
    coredns = [
        _may("", ["endpoints", "services", "pods", "namespaces"], look),
        _may("discovery.k8s.io", ["endpointslices"], look),
    ]
    account = {"kind": "ServiceAccount", "name": "coredns", "namespace": "kube-system"}
    return [
        *_rights("sandfleet-test-policy-enforcer", enforcer, _user("sandfleet:policy-enforcer")),
        *_rights("sandfleet-test-volume-provisioner", provisioner, _user("sandfleet:volume-provisioner")),
        *_rights("sandfleet-test-coredns", coredns, account),
    ]


def _coredns_pod() -> Json:
    container = {
        "name": "coredns",
        "image": COREDNS_IMAGE,
        "imagePullPolicy": "IfNotPresent",
        "args": ["-conf", "/etc/coredns/Corefile"],
        "ports": [
            {"name": "dns", "containerPort": 53, "protocol": "UDP"},
            {"name": "dns-tcp", "containerPort": 53, "protocol": "TCP"},
        ],
        "readinessProbe": {"httpGet": {"path": "/ready", "port": 8181}, "periodSeconds": 1},
        "volumeMounts": [{"name": "config", "mountPath": "/etc/coredns", "readOnly": True}],
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]},
        },
    }
    return {
        "serviceAccountName": "coredns",
        "dnsPolicy": "Default",
        "priorityClassName": "system-cluster-critical",
        "terminationGracePeriodSeconds": 1,
        "tolerations": [{"operator": "Exists"}],
        # Nodes of other tests that only pretend carry this label; a pod there would pretend too.
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [
                        {"matchExpressions": [{"key": "type", "operator": "NotIn", "values": ["kwok"]}]}
                    ]
                }
            }
        },
        "containers": [container],
        "volumes": [{"name": "config", "configMap": {"name": "coredns"}}],
    }


def names(addresses: Addresses) -> list[Json]:
    """CoreDNS as most clusters have it, so that policies that name it by label or port mean the same here."""
    labels = {"k8s-app": "kube-dns"}
    template = {"metadata": {"labels": labels}, "spec": _coredns_pod()}
    spec = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}
    ports = [
        {"name": "dns", "port": 53, "protocol": "UDP"},
        {"name": "dns-tcp", "port": 53, "protocol": "TCP"},
    ]
    service = {"clusterIP": addresses.dns_service, "selector": labels, "ports": ports}
    return [
        _system("ServiceAccount", "v1", "coredns"),
        _system("ConfigMap", "v1", "coredns", data={"Corefile": _COREFILE}),
        _system("Deployment", "apps/v1", "coredns", spec=spec),
        _system("Service", "v1", "kube-dns", spec=service),
    ]


def storage() -> list[Json]:
    default = {"storageclass.kubernetes.io/is-default-class": "true"}
    return [
        {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "StorageClass",
            "metadata": {"name": "standard", "annotations": default},
            "provisioner": PROVISIONER,
            "volumeBindingMode": "WaitForFirstConsumer",
            "reclaimPolicy": "Delete",
        },
    ]


def runtime_classes() -> list[Json]:
    version = "node.k8s.io/v1"
    return [{"apiVersion": version, "kind": "RuntimeClass", "metadata": {"name": "gvisor"}, "handler": "runsc"}]


def everything(addresses: Addresses) -> list[Json]:
    return [*rights(), *runtime_classes(), *storage(), *names(addresses)]

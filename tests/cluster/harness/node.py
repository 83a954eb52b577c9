"""The configuration files of the node: containerd with its two runtimes, the kubelet, CNI, kube-proxy, volumes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from .components import Context
from .layout import DOMAIN, NODE_NAME, TESTKIT_IMAGE
from .machine import Machine

MOST_PODS = 250
SHIM = "containerd-shim-runsc-v1"
UPLINK = "uplink"

_CONTAINERD = """\
version = 3
root = "{root}/containerd"
state = "/run/containerd"
disabled_plugins = ["io.containerd.nri.v1.nri"]

[grpc]
address = "{socket}"

[plugins."io.containerd.cri.v1.images"]
snapshotter = "overlayfs"

[plugins."io.containerd.cri.v1.images".pinned_images]
sandbox = "{pause}"

[plugins."io.containerd.cri.v1.runtime"]
restrict_oom_score_adj = {restrict_oom}

[plugins."io.containerd.cri.v1.runtime".cni]
bin_dirs = ["/usr/lib/cni", "{policy_plugin}"]
conf_dir = "{etc}/cni"

[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"

[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runsc]
runtime_type = "io.containerd.runsc.v1"

[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runsc.options]
TypeUrl = "io.containerd.runsc.v1.options"
ConfigPath = "{etc}/runsc.toml"
"""

_RUNSC = """\
binary_name = "{runsc}"
[runsc_config]
platform = "systrap"
"""

# Without CAP_SYS_RESOURCE the shim may not lower its child's oom_score_adj and gives up, unless it believes that it is
# in a user namespace, which it reads from its uid_map.
_SHIM_WRAPPER = """\
#!/bin/sh
for last in "$@"; do :; done
[ "$last" = start ] && mount --bind {map} /proc/$$/uid_map
exec {real} "$@"
"""


def containerd(context: Context, machine: Machine) -> str:
    layout = context.layout
    return _CONTAINERD.format(
        root=layout.root,
        socket=layout.containerd_socket,
        etc=layout.etc,
        pause=TESTKIT_IMAGE,
        policy_plugin=context.programs["sandfleet-policy"].parent,
        restrict_oom=str(not machine.may_raise_limits).lower(),
    )


def kubelet(context: Context) -> dict[str, Any]:
    layout = context.layout
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": context.pki("ca.crt")},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": context.pki("kubelet-server.crt"),
        "tlsPrivateKeyFile": context.pki("kubelet-server.key"),
        "containerRuntimeEndpoint": f"unix://{layout.containerd_socket}",
        "clusterDomain": DOMAIN,
        "clusterDNS": [context.addresses.dns_service],
        "resolvConf": str(layout.etc / "resolv.conf"),
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{layout.cgroup}",
        "failCgroupV1": False,
        "failSwapOn": False,
        "oomScoreAdj": 0,
        "maxPods": MOST_PODS,
        "serializeImagePulls": False,
        "volumePluginDir": str(layout.root / "volume-plugins"),
        # The disk is the machine's: only when it is all but full may a test cluster begin to evict.
        "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
        "nodeStatusUpdateFrequency": "10s",
        "kubeAPIQPS": 200,
        "kubeAPIBurst": 400,
    }


def kube_proxy(context: Context) -> dict[str, Any]:
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "iptables",
        "clientConnection": {"kubeconfig": context.access("kube-proxy")},
        "clusterCIDR": context.addresses.pods,
        "hostnameOverride": NODE_NAME,
        "oomScoreAdj": 0,
        # The limit is the machine's, and a network namespace may not set it.
        "conntrack": {"maxPerCore": 0, "min": 0},
        "iptables": {"minSyncPeriod": "100ms"},
    }


def cni(context: Context) -> dict[str, Any]:
    """Point to point, not a bridge: every packet is routed, so policies see it whether or not br_netfilter is there."""
    ranges = [[{"subnet": context.addresses.pods}]]
    ipam = {"type": "host-local", "dataDir": "/run/cni-addresses", "ranges": ranges, "routes": [{"dst": "0.0.0.0/0"}]}
    policy = {"type": "sandfleet-policy", "socket": str(context.layout.enforcer_socket)}
    return {"cniVersion": "1.0.0", "name": "sandfleet", "plugins": [{"type": "ptp", "ipam": ipam}, policy]}


def enforcer(context: Context) -> dict[str, Any]:
    return {
        "server": context.server,
        "ca": context.pki("ca.crt"),
        "certificate": context.pki("enforcer.crt"),
        "key": context.pki("enforcer.key"),
        "socket": str(context.layout.enforcer_socket),
        "node_name": NODE_NAME,
        "pods": context.addresses.pods,
        "machine_link": UPLINK,
        "machine_address": context.addresses.machine,
    }


def _write(path: Path, content: str | dict[str, Any], mode: int = 0o600) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content, indent=2) + "\n")
    path.chmod(mode)


def write_all(context: Context, machine: Machine) -> None:
    """Every configuration file, and in `bin` of the cluster's directory what containerd finds before anything else."""
    etc, binaries = context.layout.etc, context.layout.root / "bin"
    _write(etc / "containerd.toml", containerd(context, machine))
    _write(etc / "runsc.toml", _RUNSC.format(runsc=context.programs["runsc"]))
    _write(etc / "kubelet.json", kubelet(context))
    _write(etc / "kube-proxy.json", kube_proxy(context))
    _write(etc / "enforcer.json", enforcer(context))
    _write(etc / "cni" / "10-sandfleet.conflist", cni(context))
    _write(etc / "resolv.conf", "# No name server outside: pods ask the cluster's own.\n")
    _write(etc / "uid_map", "0 0 4294967294\n")
    (binaries / SHIM).unlink(missing_ok=True)
    if machine.may_raise_limits:
        binaries.mkdir(parents=True, exist_ok=True)
        (binaries / SHIM).symlink_to(context.programs[SHIM])
    else:
        _write(binaries / SHIM, _SHIM_WRAPPER.format(map=etc / "uid_map", real=context.programs[SHIM]), 0o700)

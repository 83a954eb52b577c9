"""How the test cluster is laid out: the pure parts, which need neither root nor a cluster."""

from __future__ import annotations

import io
import json
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest
from cluster.harness import binaries, components, images, node
from cluster.harness.layout import Addresses, ClusterError, Layout, cache, choose_addresses, directory
from cluster.harness.machine import Machine, cgroups

ADDRESSES = Addresses("10.212.0.0/14")
CONTEXT = components.Context(
    Layout(Path("/cluster")),
    ADDRESSES,
    {name: Path("/programs", module.name, name) for module in binaries.MODULES for name in module.names},
    "python",
)
WITHOUT = Machine(1, (Path("/sys/fs/cgroup/memory"),), may_raise_limits=False)
VERSION_1 = """\
30 22 0:26 / /sys/fs/cgroup rw - tmpfs tmpfs rw
31 30 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
32 30 0:28 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct
33 30 0:29 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd
34 30 0:30 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
"""


def test_the_networks_do_not_overlap_and_each_party_has_one_address():
    assert [ADDRESSES.link, ADDRESSES.pods, ADDRESSES.services] == ["10.212.0.0/16", "10.213.0.0/16", "10.214.0.0/16"]
    everyone = [
        ADDRESSES.machine,
        ADDRESSES.node,
        *ADDRESSES.outside,
        ADDRESSES.kubernetes_service,
        ADDRESSES.dns_service,
    ]
    assert len(set(everyone)) == 6


def test_a_block_that_a_route_of_the_machine_touches_is_not_taken():
    assert choose_addresses([]).block == "10.212.0.0/14"
    assert choose_addresses(["10.213.7.0/24"]).block == "10.204.0.0/14"
    with pytest.raises(ClusterError, match="cannot start a cluster: each of"):
        choose_addresses(["10.0.0.0/8"])


def test_two_clusters_share_no_name_outside_of_their_directories():
    one, other = Layout(Path("/a")), Layout(Path("/b"))
    assert one.machine_link != other.machine_link
    assert one.cgroup != other.cgroup
    assert len(one.machine_link) <= 15


def test_where_things_are_can_be_said_in_the_environment():
    assert directory({"SANDFLEET_CLUSTER_DIR": "/somewhere"}) == Path("/somewhere")
    assert directory({}) == Path("/var/lib/sandfleet-cluster")
    assert cache({"XDG_CACHE_HOME": "/elsewhere"}) == Path("/elsewhere/sandfleet")


def test_cgroups_of_either_version_are_recognised():
    assert cgroups(VERSION_1) == (
        1,
        tuple(Path("/sys/fs/cgroup", name) for name in ("memory", "cpu,cpuacct", "systemd", "unified")),
    )
    hybrid = "\n".join(VERSION_1.splitlines()[-2:])
    assert cgroups(hybrid) == (2, (Path("/sys/fs/cgroup/unified"),))
    assert cgroups("30 22 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n") == (2, (Path("/sys/fs/cgroup"),))
    with pytest.raises(ClusterError, match="no cgroups"):
        cgroups("")


def test_each_component_waits_for_one_that_is_there():
    parts = components.all_components(CONTEXT)
    names = {part.name for part in parts}
    assert {part.after for part in parts if part.after} <= {part.name for part in parts if part.ready} <= names
    assert components.load(components.dump(parts)) == parts


def test_containerd_finds_the_gvisor_runtime_and_our_pause_image():
    text = node.containerd(CONTEXT, WITHOUT)
    assert 'runtime_type = "io.containerd.runsc.v1"' in text
    assert 'sandbox = "localhost/sandfleet-testkit:1"' in text
    assert "restrict_oom_score_adj = true" in text
    assert "restrict_oom_score_adj = false" in node.containerd(CONTEXT, Machine(2, (), may_raise_limits=True))


def test_a_build_is_named_by_everything_that_decides_it():
    module = binaries.MODULES[0]
    name = binaries.digest(module, "go1.26.0")
    assert name == binaries.digest(module, "go1.26.0")
    assert name != binaries.digest(module, "go1.26.1")
    assert name != binaries.digest(replace(module, tags="other"), "go1.26.0")
    assert name == binaries.digest(replace(module, seconds=1), "go1.26.0")


def test_a_program_that_was_changed_or_is_gone_is_not_used(tmp_path: Path):
    assert not binaries.intact(tmp_path)
    (tmp_path / "etcd").write_bytes(b"program")
    (tmp_path / binaries.SUMS).write_text(f"{binaries.checksum(tmp_path / 'etcd')}  etcd\n")
    assert binaries.intact(tmp_path)
    (tmp_path / "etcd").write_bytes(b"progrom")
    assert not binaries.intact(tmp_path)
    (tmp_path / "etcd").unlink()
    assert not binaries.intact(tmp_path)


def test_every_module_is_pinned_with_checksums():
    for module in binaries.MODULES:
        assert (module.source / "go.mod").exists(), module.name
        needs_nothing = "require" not in (module.source / "go.mod").read_text()
        assert needs_nothing or (module.source / "go.sum").exists(), module.name


def test_an_image_is_a_layout_whose_blobs_are_named_by_their_content():
    entries = [images.Entry("bin/"), images.Entry("bin/tool", content=b"hello"), images.Entry("bin/sh", link="tool")]
    content = images.archive("localhost/tool:1", entries, {"Entrypoint": ["/bin/tool"]})
    with tarfile.open(fileobj=io.BytesIO(content)) as outer:
        index = json.load(outer.extractfile("index.json"))
        manifest = index["manifests"][0]
        assert manifest["annotations"]["io.containerd.image.name"] == "localhost/tool:1"
        described = json.load(outer.extractfile(f"blobs/sha256/{manifest['digest'].split(':')[1]}"))
        layer = outer.extractfile(f"blobs/sha256/{described['layers'][0]['digest'].split(':')[1]}").read()
    with tarfile.open(fileobj=io.BytesIO(layer)) as inner:
        assert inner.extractfile("bin/tool").read() == b"hello"
        assert inner.getmember("bin/sh").linkname == "tool"

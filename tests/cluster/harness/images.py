"""Images without Docker: small OCI archives written here, larger ones from buildah, all loaded into containerd."""

from __future__ import annotations

import hashlib
import io
import json
import subprocess
import tarfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .layout import TESTKIT_IMAGE, ClusterError, Layout

COREDNS_IMAGE = "localhost/coredns:1"
LAYER = "application/vnd.oci.image.layer.v1.tar"
CONFIG = "application/vnd.oci.image.config.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
BUSYBOX = Path("/bin/busybox")


@dataclass(frozen=True)
class Entry:
    """A file of an image, or with `link` a symbolic link; a path that ends with / is a directory."""

    path: str
    source: Path | None = None
    link: str = ""
    mode: int = 0o755
    content: bytes = b""


def _layer(entries: Iterable[Entry]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for entry in entries:
            info = tarfile.TarInfo(entry.path.rstrip("/"))
            info.mode = entry.mode
            content = entry.source.read_bytes() if entry.source else entry.content
            if entry.link:
                info.type, info.linkname, content = tarfile.SYMTYPE, entry.link, b""
            elif entry.path.endswith("/"):
                info.type = tarfile.DIRTYPE
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def archive(name: str, entries: Iterable[Entry], config: dict[str, Any]) -> bytes:
    """An OCI image layout of one layer as a tar, for `ctr images import`."""
    blobs: dict[str, bytes] = {}

    def blob(content: bytes, media: str) -> dict[str, Any]:
        digest = hashlib.sha256(content).hexdigest()
        blobs[digest] = content
        return {"mediaType": media, "digest": f"sha256:{digest}", "size": len(content)}

    layer = blob(_layer(entries), LAYER)
    described = {
        "architecture": "amd64",
        "os": "linux",
        "config": config,
        "rootfs": {"type": "layers", "diff_ids": [layer["digest"]]},
    }
    configuration = blob(json.dumps(described).encode(), CONFIG)
    content = {"schemaVersion": 2, "mediaType": MANIFEST, "config": configuration, "layers": [layer]}
    manifest = blob(json.dumps(content).encode(), MANIFEST)
    manifest["annotations"] = {"io.containerd.image.name": name, "org.opencontainers.image.ref.name": name}
    index = {"schemaVersion": 2, "manifests": [manifest]}
    files = {
        "oci-layout": b'{"imageLayoutVersion": "1.0.0"}',
        "index.json": json.dumps(index).encode(),
        **{f"blobs/sha256/{digest}": content for digest, content in blobs.items()},
    }
    return _layer(Entry(path, content=content, mode=0o644) for path, content in files.items())


def testkit(probe: Path) -> bytes:
    """The pause container, the tests' probe and a small shell in one image; raises ClusterError without the shell."""
    if not BUSYBOX.exists():
        raise ClusterError(f"cannot make the testkit image: {BUSYBOX} is missing (Debian: busybox-static)")
    applets = subprocess.run([BUSYBOX, "--list"], capture_output=True, text=True, check=True).stdout.split()
    entries = [
        Entry("bin/"),
        Entry("tmp/", mode=0o1777),
        Entry("probe", source=probe),
        Entry("bin/busybox", source=BUSYBOX),
        *(Entry(f"bin/{applet}", link="busybox") for applet in applets if applet != "busybox"),
    ]
    config = {"Entrypoint": ["/probe"], "Cmd": ["pause"], "Env": ["PATH=/bin"], "User": "65532:65532"}
    return archive(TESTKIT_IMAGE, entries, config)


def coredns(program: Path) -> bytes:
    return archive(COREDNS_IMAGE, [Entry("coredns", source=program)], {"Entrypoint": ["/coredns"]})


def client(layout: Layout, ctr: Path) -> list[str]:
    """How to talk with containerd about the kubelet's images."""
    return [str(ctr), "--address", str(layout.containerd_socket), "--namespace", "k8s.io", "images"]


def load(layout: Layout, ctr: Path, content: bytes | Path) -> None:
    """Put an OCI (or Docker) archive into the node's containerd, under the name that it carries.

    Raises:
        ClusterError: the cluster does not run, or the archive is none.
    """
    source = str(content) if isinstance(content, Path) else "-"
    given = content if isinstance(content, bytes) else None
    _ctr(layout, ctr, "import", source, given=given)


def tag(layout: Layout, ctr: Path, name: str, others: Iterable[str]) -> None:
    """Give an image of the node other names, which may have been another image's; raises ClusterError."""
    _ctr(layout, ctr, "tag", "--force", name, *others)


def has(layout: Layout, ctr: Path, name: str) -> bool:
    """Whether the node has an image of this name; raises ClusterError when the cluster does not run."""
    return name in _ctr(layout, ctr, "list", "--quiet").split()


def _ctr(layout: Layout, ctr: Path, *arguments: str, given: bytes | None = None) -> str:
    done = subprocess.run([*client(layout, ctr), *arguments], input=given, capture_output=True, check=False)
    if done.returncode:
        raise ClusterError(f"cannot {arguments[0]} an image: {done.stderr.decode(errors='replace').strip()}")
    return done.stdout.decode(errors="replace")

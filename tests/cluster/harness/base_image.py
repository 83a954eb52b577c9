"""The base of our images without a registry: Debian 12 with Python 3.11, in buildah's storage in the cache."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from .layout import ClusterError
from .machine import install_packages
from .plan import Say

SUITE = "bookworm"
PACKAGES = ("ca-certificates", "python3", "python3-venv")
NEEDED = {"buildah": "buildah", "debootstrap": "debootstrap", "unshare": "util-linux"}
# As in the public images that it stands in for, `python` is on the path; what only people read and caches are left out.
FINISH = """\
set -eu
root=$1
ln -s /usr/bin/python3 "$root/usr/local/bin/python"
ln -s /usr/bin/python3 "$root/usr/local/bin/python3"
rm -rf "$root"/var/cache/apt/* "$root"/var/lib/apt/lists/* "$root"/usr/share/doc/* "$root"/usr/share/man/* \\
       "$root"/usr/share/locale/* "$root"/var/log/*.log "$root"/var/log/apt "$root"/debootstrap
find "$root" -name __pycache__ -prune -exec rm -rf {} +
rm -f "$root/etc/resolv.conf" "$root/etc/hostname" "$root/etc/machine-id"
"""


PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def _recipe(*parts: object) -> str:
    return f"{SUITE}-{hashlib.sha256(repr((SUITE, PACKAGES, FINISH, *parts)).encode()).hexdigest()[:12]}"


def name() -> str:
    return f"localhost/sandfleet-base:{_recipe(PATH)}"


def buildah(cache: Path, *arguments: str) -> str:
    """Run buildah on the cache's own storage, without a daemon or a registry; raises ClusterError with its output."""
    storage = cache / "containers"
    storage.mkdir(parents=True, exist_ok=True)
    places = ["--root", str(storage / "storage"), "--runroot", str(storage / "run"), "--storage-driver", "overlay"]
    environment = {**os.environ, "BUILDAH_ISOLATION": "chroot"}
    done = subprocess.run(
        ["buildah", *places, *arguments], capture_output=True, text=True, check=False, env=environment, cwd="/"
    )
    if done.returncode:
        raise ClusterError(f"cannot run buildah {arguments[0]}: {done.stderr.strip()[-2000:]}")
    return done.stdout.strip()


def _run(what: str, *command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd="/")
    if done.returncode:
        raise ClusterError(f"cannot {what}: {(done.stdout + done.stderr).strip()[-2000:]}")


def _bootstrap(target: Path) -> None:
    """A root file system as a tar; what is mounted on the way is in a namespace that ends with it."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".debian-") as folder:
        root = Path(folder, "root")
        apart = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
        include = f"--include={','.join(PACKAGES)}"
        _run("make a base image", *apart, "debootstrap", "--variant=minbase", include, SUITE, str(root))
        _run("finish the base image", "sh", "-c", FINISH, "finish", str(root))
        partial = Path(folder, "root.tar")
        _run("pack the base image", "tar", "--numeric-owner", "--sort=name", "-C", str(root), "-cf", str(partial), ".")
        partial.replace(target)


def make(cache: Path, say: Say) -> str:
    """The image's name in buildah's storage; about a minute the first time, and nothing to do after that.

    Raises:
        ClusterError: not root, or debootstrap or buildah failed.
    """
    if os.geteuid() != 0:
        raise ClusterError("cannot make a base image: not root")
    install_packages(say, sorted({package for program, package in NEEDED.items() if shutil.which(program) is None}))
    image = name()
    if image in buildah(cache, "images", "--format", "{{.Name}}:{{.Tag}}").split():
        return image
    tree = cache / "images" / f"{_recipe()}.tar"
    if not tree.exists():
        say("making the Debian base image")
        _bootstrap(tree)
    container = buildah(cache, "from", "scratch")
    buildah(cache, "add", container, str(tree), "/")
    buildah(cache, "config", "--env", f"PATH={PATH}", "--cmd", "python3", container)
    buildah(cache, "commit", "--rm", container, image)
    return image


def export(cache: Path, image: str, target: Path) -> Path:
    """Write an image of buildah's storage as an archive that `load-image` takes."""
    target.unlink(missing_ok=True)
    buildah(cache, "push", image, f"docker-archive:{target}:{image}")
    return target

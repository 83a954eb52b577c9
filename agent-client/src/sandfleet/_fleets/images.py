"""Images of sandboxes on this machine: a folder as it is, or an archive or a reference that buildah unpacks once."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sandfleet.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sandfleet._wire import api
    from sandfleet.values.options import CreateOptions

# A pull has no other bound.
_SECONDS = 3600.0
_FOLDER = ("/", "./", "../", "~/")
# Files of the image become this user's: a session shows them as its own. Devices are the machine's.
_UNPACK = """
container=$(buildah from --quiet "$1")
trap 'buildah rm "$container" > /dev/null' EXIT
buildah inspect --type container "$container" > "$2/image.json"
mkdir "$2/rootfs"
tar -C "$(buildah mount "$container")" --exclude=./dev -c . | tar -C "$2/rootfs" --no-same-owner -p -x
"""


@dataclass(frozen=True, slots=True)
class Root:
    """An unpacked image: its folder, who code is in it, and its environment variables."""

    path: str
    user: int
    envs: Mapping[str, str]


async def with_image(
    request: api.fleet.ClaimRequest, options: CreateOptions, *, on_cluster: bool
) -> api.fleet.ClaimRequest:
    """Write the option `image` into the request of a claim: its reference, or its root. Raises InvalidArgument."""
    image, user = options.get("image", ""), options.get("user")
    if on_cluster:
        if user is not None:
            raise InvalidArgument("cannot claim with a user: on a cluster a SandboxTemplate names it (spec.user)")
        if image.startswith(_FOLDER):
            why = "on a cluster it is a reference that nodes can pull"
            raise InvalidArgument(f"cannot claim with the image {image}: {why}", subject=image)
        request.image = image
    elif image:
        root = await asyncio.to_thread(_root, image, user)
        request.image = root.path
        request.user = root.user
        request.image_envs.update(root.envs)
    elif user is not None:
        raise InvalidArgument("cannot claim with a user: only sandboxes with an image of their own have one")
    return request


def _root(image: str, user: int | str | None) -> Root:
    place = Path(image).expanduser()
    if image.startswith(_FOLDER) and not place.exists():
        raise InvalidArgument(f"cannot claim with the image {image}: there is no such folder or archive", subject=image)
    if place.is_dir():
        return _with_user(place.resolve(), user, {})
    kept = _unpacked(f"{_kind(place)}:{place.resolve()}" if place.is_file() else f"docker://{image}", image)
    said = json.loads((kept / "image.json").read_text())
    config: dict[str, Any] = said["OCIv1"].get("config") or {}
    envs = dict(pair.split("=", 1) for pair in config.get("Env") or [] if "=" in pair)
    return _with_user(kept / "rootfs", config.get("User", "") if user is None else user, envs)


def _kind(archive: Path) -> str:
    """Return the word of buildah for an archive; both are tar files."""
    listed = _run(["tar", "-tf", str(archive), "oci-layout"])
    return "oci-archive" if listed.returncode == 0 else "docker-archive"


def _unpacked(source: str, image: str) -> Path:
    """Return the folder with the unpacked image, which is made at its first use, by its content."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "sandfleet" / "roots"
    known = cache / f"{_stamp(source)}.name"
    if known.exists() and (cache / known.read_text()).is_dir():
        return cache / known.read_text()
    if shutil.which("buildah") is None:
        raise InvalidArgument(
            f"cannot unpack the image {image}: buildah is not installed (Debian: sudo apt-get install buildah)"
        )
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as work:
        around = [] if os.geteuid() == 0 else ["buildah", "unshare"]
        done = _run([*around, "sh", "-euc", _UNPACK, "sh", source, work])
        if done.returncode:
            why = done.stderr.strip().splitlines()[-1:] or ["buildah gave no reason"]
            raise InvalidArgument(f"cannot unpack the image {image}: {why[0]}", subject=image)
        said = json.loads((Path(work) / "image.json").read_text())
        name = str(said["FromImageID"])
        if not (cache / name).is_dir():
            Path(work).rename(cache / name)
            Path(work).mkdir()
    known.write_text(name)
    return cache / name


def _stamp(source: str) -> str:
    """Return a file name for a reference, or for an archive as it is now."""
    kind, _, path = source.partition(":")
    if kind == "docker":
        return source.replace("/", "_")
    status = Path(path).stat()
    return f"{kind}-{status.st_dev}-{status.st_ino}-{status.st_size}-{status.st_mtime_ns}"


def _with_user(root: Path, user: int | str | None, envs: Mapping[str, str]) -> Root:
    """Return the root with a user, by name or number, and the user's home. Raises InvalidArgument."""
    name = str(user or 0).partition(":")[0]
    passwd = root / "etc" / "passwd"
    # A link would be followed out of the root.
    readable = passwd.is_file() and not passwd.is_symlink() and not passwd.parent.is_symlink()
    lines = passwd.read_text(errors="replace").splitlines() if readable else []
    # name:password:number:group:comment:home:shell
    known = [parts for line in lines if len(parts := line.split(":")) > 5]
    found = next((parts for parts in known if name in {parts[0], parts[2]}), None)
    number = found[2] if found else {"root": "0"}.get(name, name)
    if not number.isdigit():
        raise InvalidArgument(f"cannot claim with the user {name!r}: the image has no such user", subject=name)
    status = root.stat()
    if (status.st_uid, status.st_gid) != (os.geteuid(), os.getegid()):
        owner = f"user {status.st_uid} and group {status.st_gid}"
        why = f"its files belong to {owner}, and a session shows them as its own; make a copy of the folder"
        raise InvalidArgument(f"cannot claim with the image {root}: {why}", subject=str(root))
    home = {"HOME": found[5]} if found and found[5].startswith("/") else {}
    return Root(str(root), int(number), {**home, **envs})


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=_SECONDS)

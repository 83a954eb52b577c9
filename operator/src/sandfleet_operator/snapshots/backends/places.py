"""Where the snapshots of one machine are kept, and their keys."""

from collections.abc import Mapping
from pathlib import Path


def store_url(environment: Mapping[str, str]) -> str:
    """Where snapshots are kept: SANDFLEET_SNAPSHOTS, else a folder of this user."""
    data = environment.get("XDG_DATA_HOME") or f"{environment.get('HOME', '/root')}/.local/share"
    return environment.get("SANDFLEET_SNAPSHOTS") or f"file://{data}/sandfleet/snapshots"


def keys_path(environment: Mapping[str, str]) -> Path:
    """The file of the keys with which they are encrypted: SANDFLEET_SNAPSHOT_KEYS, else one of this user."""
    config = environment.get("XDG_CONFIG_HOME") or f"{environment.get('HOME', '/root')}/.config"
    return Path(environment.get("SANDFLEET_SNAPSHOT_KEYS") or f"{config}/sandfleet/snapshot-keys.json")


def may_exist(environment: Mapping[str, str]) -> bool:
    """Whether anything can be in the store: a folder is made with the first snapshot."""
    url = store_url(environment)
    return not url.startswith("file://") or Path(url.removeprefix("file://")).exists()

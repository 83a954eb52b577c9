"""Mounts: folders of the workspace that user code also finds at other paths, checked as the executor will."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Annotated

from sandfleet_rules import mounts as rules

from sandfleet_operator.api.reasons import ClaimReason
from sandfleet_operator.api.table import at, decode, listed


@dataclass(frozen=True, slots=True)
class _Mount:
    path: Annotated[str, at("path", required=True)]
    folder: Annotated[str, at("folder")] = ""


def read(value: object, path: str) -> dict[str, str]:
    """Path → folder, of a list of mounts."""
    return {one.path: one.folder for one in listed(partial(decode, _Mount))(value, path)}


def listing(mounts: Mapping[str, str]) -> list[dict[str, str]]:
    """As a custom resource has them."""
    return [{"path": path} | ({"folder": mounts[path]} if mounts[path] else {}) for path in sorted(mounts)]


def check(mounts: Mapping[str, str], *, of_machine: bool = False) -> None:
    """Raises FleetError for what an executor would not take. Only it knows where its interpreter is.

    `of_machine`: an absolute folder is of the machine, which only executors on one machine take.
    """
    try:
        rules.check(mounts)
        for path, folder in mounts.items():
            if folder.startswith("/") and not of_machine:
                why = "a folder of the caller's machine can be mounted on one machine alone"
                how = f"on a cluster, copy {folder[:80]!a} with files.upload, or keep a workspace"
                raise rules.refusal(path, f"{why}: {how}")
    except rules.Refused as error:
        raise ClaimReason.INVALID_MOUNT.error(str(error), error.subject) from None

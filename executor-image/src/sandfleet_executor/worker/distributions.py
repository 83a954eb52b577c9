"""Distributions of Python that are installed in a folder, by what they say of themselves."""

from collections.abc import Iterable, Iterator
from importlib.metadata import Distribution, distributions
from pathlib import Path

from packaging.utils import canonicalize_name


def installed(path: list[str]) -> Iterator[tuple[str, str, Distribution]]:
    """(name, version, distribution) on a path, each name once in each folder: the one that was installed last is what is there.

    `pip install --target` leaves behind what an earlier version of a package says of itself.
    """
    for folder in dict.fromkeys(path):
        if not (Path(folder).is_dir() or Path(folder).is_file()):
            # To look into a pipe would be to wait for its writer.
            continue
        newest: dict[str, tuple[float, str, str, Distribution]] = {}
        for each in distributions(path=[folder]):
            try:
                name, version = str(each.metadata["Name"] or ""), str(each.version or "")
                made = _made(each)
            except Exception:  # noqa: BLE001, S112 what is installed may say anything of itself, or be half gone
                continue
            key = canonicalize_name(name)
            if name and version and (key not in newest or made > newest[key][0]):
                newest[key] = (made, name, version, each)
        for _, name, version, each in newest.values():
            yield name, version, each


def records(folder: Path, names: Iterable[str]) -> list[Path]:
    """What says in the folder that packages of these names are installed: without it they are not."""
    wanted = {canonicalize_name(name) for name in names}
    return [
        path
        for path in sorted(folder.glob("*.dist-info"))
        if canonicalize_name(path.name.removesuffix(".dist-info").partition("-")[0]) in wanted
    ]


def _made(distribution: Distribution) -> float:
    place = getattr(distribution, "_path", None)
    return place.stat().st_mtime if isinstance(place, Path) else 0.0

"""Python distributions installed in a folder, by their own metadata."""

from collections.abc import Iterable, Iterator
from importlib.metadata import Distribution, distributions
from pathlib import Path

from packaging.utils import canonicalize_name


def installed(path: list[str]) -> Iterator[tuple[str, str, Distribution]]:
    """(name, version, distribution) of all on a path; of each name the newest in each folder.

    `pip install --target` leaves the metadata of earlier versions behind: the newest tells what is installed.
    """
    for folder in dict.fromkeys(path):
        if not (Path(folder).is_dir() or Path(folder).is_file()):
            # Reading a pipe would wait for its writer.
            continue
        newest: dict[str, tuple[float, str, str, Distribution]] = {}
        for each in distributions(path=[folder]):
            try:
                name, version = str(each.metadata["Name"] or ""), str(each.version or "")
                made = _made(each)
            except Exception:  # noqa: BLE001, S112 metadata may be invalid or half removed
                continue
            key = canonicalize_name(name)
            if name and version and (key not in newest or made > newest[key][0]):
                newest[key] = (made, name, version, each)
        for _, name, version, each in newest.values():
            yield name, version, each


def records(folder: Path, names: Iterable[str]) -> list[Path]:
    """The records (*.dist-info) of these packages. Without its record a package does not count as installed."""
    wanted = {canonicalize_name(name) for name in names}
    return [
        path
        for path in sorted(folder.glob("*.dist-info"))
        if canonicalize_name(path.name.removesuffix(".dist-info").partition("-")[0]) in wanted
    ]


def _made(distribution: Distribution) -> float:
    place = getattr(distribution, "_path", None)
    return place.stat().st_mtime if isinstance(place, Path) else 0.0

"""Which snapshots have been kept long enough."""

from collections import defaultdict
from collections.abc import Iterable

from sandfleet_operator.plan.snapshots.manifest import Manifest

DAY_MS = 86_400_000


def outlived(manifests: Iterable[Manifest], now_ms: int) -> list[str]:
    """Ids of those that their own retention does not keep, oldest first.

    By age each stands alone. By count the snapshots of one session that were taken for one reason are a series, and
    the count of its newest one holds for it.
    """
    series: defaultdict[tuple[str, str], list[Manifest]] = defaultdict(list)
    over: list[Manifest] = []
    for manifest in manifests:
        days = manifest.about.keep.days
        if days is not None and now_ms - manifest.created_ms > days * DAY_MS:
            over.append(manifest)
        else:
            series[manifest.about.session or manifest.id, manifest.about.reason].append(manifest)
    for members in series.values():
        members.sort(key=_age, reverse=True)
        count = members[0].about.keep.count
        if count is not None:
            over += members[max(1, count) :]
    return [manifest.id for manifest in sorted(over, key=_age)]


def _age(manifest: Manifest) -> tuple[int, str]:
    return manifest.created_ms, manifest.id

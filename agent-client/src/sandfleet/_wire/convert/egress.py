"""Egress by name: from the API's messages and to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sandfleet._wire import api
from sandfleet._wire.convert.common import moment
from sandfleet.values.egress import Egress, EgressReport, Header, HostUse

_NAMES, _HOSTS, _TEXT = 1000, 1000, 256


def names(wish: Egress | Sequence[str] | str | None) -> tuple[str, ...]:
    """Return the names of a wish; a word of the template's egress, and None, have none."""
    if wish is None or isinstance(wish, str):
        return ()
    return wish.names if isinstance(wish, Egress) else tuple(wish)


def envs(wish: Egress | Sequence[str] | str | None) -> Mapping[str, str]:
    """Return the variables that come with a wish."""
    return wish.envs if isinstance(wish, Egress) else {}


def credentials(wish: Mapping[str, Header]) -> list[api.fleet.EgressCredential]:
    """Write secrets for hosts."""
    return [
        api.fleet.EgressCredential(host=host, header=one.name, format=one.format, value=one.key, env=one.env)
        for host, one in wish.items()
    ]


def report(said: api.egress.GetEgressResponse) -> EgressReport:
    """Read a report."""
    return EgressReport(tuple(each[:_TEXT] for each in said.names[:_NAMES]), tuple(map(_host, said.hosts[-_HOSTS:])))


def _host(said: api.egress.HostReport) -> HostUse:
    return HostUse(
        host=said.host[:_TEXT],
        port=said.port,
        reason=said.reason[:_TEXT],
        address=said.address[:_TEXT],
        connections=said.connections,
        open=said.open,
        sent=said.sent_bytes,
        received=said.received_bytes,
        first=moment(said.first),
        last=moment(said.last),
    )

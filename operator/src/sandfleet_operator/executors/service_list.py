"""Turns what an executor reports of its services into values that a status can hold.

The report is untrusted, because user code writes part of it.
"""

import re
from collections.abc import Iterable

from sandfleet_api.executor.v1 import service_pb2 as pb

from sandfleet_operator.api.kinds.sandbox import ServiceState, ServiceStatus
from sandfleet_operator.api.kinds.services import NAME
from sandfleet_operator.plan.sandbox.services.status import MAX_MESSAGE, MAX_SERVICES

MAX_PORTS = 16
MAX_RESTARTS = (1 << 31) - 1
REASON = re.compile(r"[A-Z][A-Za-z0-9]{0,63}")
STATES = {
    pb.ServiceState.Value(f"SERVICE_STATE_{state.name}"): state
    for state in ServiceState
    if state is not ServiceState.UNKNOWN
}


def services_of(said: Iterable[pb.Service]) -> tuple[ServiceStatus, ...]:
    """The services of the template, up to MAX_SERVICES. Services that the session declared are left out."""
    found: dict[str, ServiceStatus] = {}
    for one in said:
        if one.from_template and NAME.fullmatch(one.name) and len(found) < MAX_SERVICES:
            found.setdefault(one.name, _service(one))
    return tuple(found.values())


def _service(said: pb.Service) -> ServiceStatus:
    return ServiceStatus(
        name=said.name,
        # States of a newer API are unknown.
        state=STATES.get(said.state, ServiceState.UNKNOWN),
        reason=said.reason if REASON.fullmatch(said.reason) else "",
        message=_line(said.message),
        restarts=min(said.restarts, MAX_RESTARTS),
        ports=tuple(sorted({port for port in said.ports if 0 < port < 1 << 16})[:MAX_PORTS]),
    )


def _line(text: str) -> str:
    """One line without control characters, which a terminal might obey."""
    words = " ".join(text[: 4 * MAX_MESSAGE].split())
    return "".join(letter if letter.isprintable() else "?" for letter in words)[:MAX_MESSAGE]

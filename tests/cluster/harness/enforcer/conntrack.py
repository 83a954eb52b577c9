"""Flows that began before a policy did: which of them the world no longer allows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from .model import World

Tuple = dict[str, str]
# TCP connections that carry nothing any more, which are most of a busy table.
OVER = {"TIME_WAIT", "CLOSE"}


@dataclass(frozen=True)
class Flow:
    """One entry of the connection table; the real destination is where the answers come from, behind any Service."""

    protocol: str
    source: str
    source_port: int
    asked: str
    asked_port: int
    destination: str
    port: int


def parse(listing: str) -> Iterator[Flow]:
    """Read `conntrack --dump`: each line has the tuple of the question and then the tuple of the answer."""
    for line in listing.splitlines():
        words = line.split()
        if not words or words[0] not in {"tcp", "udp", "sctp"} or words[3] in OVER:
            continue
        question: Tuple = {}
        answer: Tuple = {}
        for key, found, value in (word.partition("=") for word in words):
            if found and key in {"src", "dst", "sport", "dport"}:
                (answer if key in question else question)[key] = value
        if len(answer) == len(question) == 4:
            yield Flow(
                words[0],
                question["src"],
                int(question["sport"]),
                question["dst"],
                int(question["dport"]),
                answer["src"],
                int(answer["sport"]),
            )


def forbidden(world: World, flows: Iterable[Flow], machine_address: str) -> list[Flow]:
    """The flows of pods that may not begin (again) now. The machine is the node and may always reach its pods."""
    addresses = {pod.address for pod in world.pods}
    verdicts: dict[tuple[str, str, str, int], bool] = {}

    def allowed(flow: Flow) -> bool:
        question = (flow.source, flow.destination, flow.protocol.upper(), flow.port)
        if question not in verdicts:
            verdicts[question] = world.allowed(*question)
        return verdicts[question]

    return [
        flow
        for flow in flows
        if (flow.source in addresses or flow.destination in addresses)
        and flow.source != machine_address
        and not allowed(flow)
    ]


def answers(cut: Iterable[Flow], flows: Iterable[Flow]) -> list[Flow]:
    """The UDP flows that an answer to a cut flow has begun: on its way while the flow was deleted, it counts as new."""
    backwards = {(flow.destination, flow.port, flow.source, flow.source_port) for flow in cut if flow.protocol == "udp"}
    return [
        flow
        for flow in flows
        if flow.protocol == "udp" and (flow.source, flow.source_port, flow.destination, flow.port) in backwards
    ]


def touching(address: str, flows: Iterable[Flow]) -> list[Flow]:
    return [flow for flow in flows if address in {flow.source, flow.asked, flow.destination}]

"""What the enforcer knows of the API's objects, and the world that follows from it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from . import parse
from .model import World

Object = dict[str, Any]
Key = tuple[str, str]


def key(value: Object) -> Key:
    return value["metadata"].get("namespace", ""), value["metadata"]["name"]


def version(value: Object) -> int:
    return int(value["metadata"]["resourceVersion"])


@dataclass
class Store:
    """One kind of object; a watch that lags behind a fresher read does not take it back."""

    objects: dict[Key, Object] = field(default_factory=dict)

    def put(self, value: Object) -> None:
        known = self.objects.get(key(value))
        if known is None or version(known) <= version(value):
            self.objects[key(value)] = value

    def drop(self, value: Object) -> None:
        known = self.objects.get(key(value))
        if known is not None and version(known) <= version(value):
            del self.objects[key(value)]

    def replace(self, values: list[Object], namespace: str | None = None) -> None:
        """All objects there are (of one namespace, if it is named), as a list call gave them."""
        listed = {key(value) for value in values}
        for known in list(self.objects):
            if known not in listed and namespace in {None, known[0]}:
                del self.objects[known]
        for value in values:
            self.put(value)


@dataclass
class Attached:
    """A pod's address as its network was made, before the API knows of it."""

    container: str
    address: str


@dataclass
class State:
    pods: Store = field(default_factory=Store)
    namespaces: Store = field(default_factory=Store)
    policies: Store = field(default_factory=Store)
    attached: dict[Key, Attached] = field(default_factory=dict)

    def detach(self, container: str) -> None:
        """A pod may have a new sandbox by the time its old one goes: only the sandbox that is named leaves."""
        self.attached = {name: entry for name, entry in self.attached.items() if entry.container != container}

    def forget(self, pod: Object) -> None:
        self.pods.drop(pod)
        if key(pod) not in self.pods.objects:
            self.attached.pop(key(pod), None)

    def world(self) -> World:
        pods = []
        for name, value in self.pods.objects.items():
            attached = self.attached.get(name)
            if address := attached.address if attached else parse.pod_address(value):
                pods.append(parse.pod(value, address))
        namespaces = {
            name: value["metadata"].get("labels") or {} for (_, name), value in self.namespaces.objects.items()
        }
        policies = sorted(self.policies.objects.items())
        return World(tuple(pods), namespaces, tuple(parse.policy(value) for _, value in policies))

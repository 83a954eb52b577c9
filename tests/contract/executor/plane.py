"""A control plane for executors under test: the real first contact, with the token key that these executors know."""

import time

from sandfleet_operator.api.values import Isolation
from sandfleet_operator.executors.authority import Authority
from sandfleet_operator.executors.contact import Contacts, Executor
from sandfleet_operator.executors.tokens import KeyRing, Signer, TokenKey


class Plane:
    """A control plane whose token key is the one that the test's executors know."""

    def __init__(self, key):
        self.authority = Authority.new(time.time())
        self.signer = Signer(KeyRing((TokenKey("k", key, 0.0),)), time.time)
        self.contacts = Contacts(self, time.time, deadline=20.0, poll=20.0)


def whom(executor, **changes):
    config = executor.config
    return Executor(
        **({"address": config["listen"], "pod_uid": config["sandbox_uid"], "session_id": "ns.one"} | changes)
    )


def isolation(host):
    """What the set-up has."""
    return Isolation.NAMESPACE if "unix socket" in host.traits else Isolation.GVISOR

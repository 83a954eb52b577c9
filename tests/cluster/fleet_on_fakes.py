"""The fleet with a stand-in for executors, for pods on pretended nodes.

`python -m cluster.fleet_on_fakes ARGUMENTS`.
"""

import sys
import time

from cluster.operator_on_fakes import WINDOW
from sandfleet_operator import __main__ as entry
from sandfleet_operator.cluster.clock import wall_clock
from sandfleet_operator.executors.contact import Contacts
from sandfleet_operator.executors.pod_client import PodExecutors
from sandfleet_operator.fleet.kubernetes import serve
from sandfleet_operator.plan.usage import NOTHING
from sandfleet_operator.plan.witness import Head
from sandfleet_operator.telemetry.loop_times import LoopTimes


class Pretended(PodExecutors):
    """Nothing is said to anybody; tokens are real."""

    async def connect(self, sandbox, address):
        pass

    async def open(self, sandbox, lease):
        pass

    async def lease_left(self, _sandbox):
        return None

    async def answers(self, _sandbox):
        return True

    async def journal_head(self, _sandbox):
        return Head(0, "0" * 64)

    async def prepared(self, _sandbox):
        return ""

    async def usage(self, _sandbox):
        return NOTHING

    async def probe(self, _sandbox, targets):
        return (True,) * len(targets)


def assembled(kube, signing, settings, lease):
    def executors(store):
        return Pretended(Contacts(signing, wall_clock), signing, store, settings.executor_port)

    return serve.assembled(kube, signing, settings, lease, executors=executors, listens=lambda pod: pod.ready)


if __name__ == "__main__":
    real = serve.serve
    # What the loop itself computes: other programs of this machine do not count.
    serve.serve = lambda options: real(options, assembled, LoopTimes(time.thread_time, window=WINDOW))
    sys.exit(entry.main(["fleet", *sys.argv[1:]]))

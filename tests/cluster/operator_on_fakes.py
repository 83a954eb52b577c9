"""The operator with a stand-in for executors, for pods on pretended nodes.

`python -m cluster.operator_on_fakes ARGUMENTS`.
"""

import json
import logging
import sys
import time
from pathlib import Path

from sandfleet_operator.api.settings import Settings
from sandfleet_operator.cluster.clock import wall_clock
from sandfleet_operator.plan.sandbox.observed import Contact
from sandfleet_operator.reconciler.run import live
from sandfleet_operator.telemetry.loop_times import LoopTimes

# Seconds of which the metric of the event loop gives the longest stretch.
WINDOW = 5.0


async def greet(_sandbox, action):
    return Contact(pod_uid=action.pod_uid, at=wall_clock(), runtime="gvisor")


def main(settings: str, port: str) -> int:
    logging.basicConfig(level=logging.INFO)
    logging.getLogger("kopf").setLevel(logging.WARNING)
    chosen = Settings.parse(json.loads(Path(settings).read_text()))
    # What the loop itself computes: other programs of this machine do not count.
    return live(chosen, chosen.control_plane_namespace, int(port), greet, LoopTimes(time.thread_time, window=WINDOW))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

"""What every folder of tests may use."""

import gc
import os
import signal
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings
from sandfleet._fleets import embedded

# A job that a script starts with & inherits an ignored SIGINT, and so would the programs that tests interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# How long an example takes says more of a busy machine than of what is tested.
settings.register_profile("ci", deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=100)
settings.register_profile("fast", settings.get_profile("ci"), max_examples=20)
settings.register_profile("nightly", settings.get_profile("ci"), max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE") or "ci")

pytest_plugins = ["cluster.fixtures", "support.lanes", "support.attacks"]


def pytest_addoption(parser):
    parser.addoption(
        "--executor",
        choices=("here", "pod"),
        default="here",
        help="where the executors of tests/contract/executor run: on this machine, or in gVisor pods of a cluster",
    )


def pytest_collection_finish() -> None:
    """Takes what was collected, millions of objects that stay, out of what the garbage collector looks at."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="module", autouse=True)
def no_embedded_fleet_of_another_file() -> Iterator[None]:
    """A file finds no embedded fleet, whichever files the same process ran before, and leaves none."""
    yield
    embedded.stop()

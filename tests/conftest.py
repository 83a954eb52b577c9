"""What every folder of tests may use."""

import signal

from hypothesis import HealthCheck, settings

# A job that a script starts with & inherits an ignored SIGINT, and so would the programs that tests interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# How long an example takes says more of a busy machine than of what is tested.
settings.register_profile("sandfleet", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("sandfleet")

pytest_plugins = ["cluster.fixtures", "support.quarantine"]


def pytest_addoption(parser):
    parser.addoption(
        "--executor",
        choices=("here", "pod"),
        default="here",
        help="where the executors of tests/contract/executor run: on this machine, or in gVisor pods of a cluster",
    )

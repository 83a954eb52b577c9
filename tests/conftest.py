"""What every folder of tests may use."""

pytest_plugins = ["cluster.fixtures"]


def pytest_addoption(parser):
    parser.addoption(
        "--executor",
        choices=("here", "pod"),
        default="here",
        help="where the executors of tests/contract/executor run: on this machine, or in gVisor pods of a cluster",
    )

"""The manifest of an environment, as the client has it."""

import pytest
from sandfleet import Environment, Package
from sandfleet import _convert as convert
from sandfleet_api.executor.v1 import session_pb2 as pb

FOUND = Environment(
    "3.11.2",
    "Linux",
    packages=(
        Package("both", "2", "image"),
        Package("both", "3", "workspace"),
        Package("My.Own_Package", "1", "workspace"),
    ),
)


@pytest.mark.parametrize(
    ("name", "version"),
    [("both", "2"), ("my-own-package", "1"), ("MY_OWN.package", "1"), ("my-own", None), ("", None)],
)
def test_the_version_is_the_one_that_import_finds(name, version):
    assert FOUND.version_of(name) == version


def test_a_message_becomes_a_value():
    message = pb.GetEnvironmentResponse(
        python_version="3.11.2",
        kernel="Linux",
        languages=[pb.LanguageVersion(language="bash", version="5.2")],
        packages=[pb.Package(name="a", version="1", origin=pb.PACKAGE_ORIGIN_WORKSPACE)],
        fixed_envs={"TZ": "UTC"},
    )
    assert convert.environment(message) == Environment(
        "3.11.2", "Linux", {"bash": "5.2"}, (Package("a", "1", "workspace"),), {"TZ": "UTC"}
    )


def test_what_an_executor_says_is_not_trusted():
    flood = pb.GetEnvironmentResponse(
        packages=[pb.Package(name="a", version="1", origin=99)] * 10_000,
        languages=[pb.LanguageVersion(language=str(n)) for n in range(1000)],
    )
    found = convert.environment(flood)
    assert (len(found.packages), len(found.languages)) == (5000, 64)
    assert found.packages[0].origin == "unknown"

"""The manifest of an environment, as the client has it."""

import pytest
from sandfleet import Environment, Installation, Package
from sandfleet._wire.convert import common as convert
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
def test_version_of_returns_the_version_that_import_finds(name, version):
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


def test_declared_packages_become_values():
    message = pb.GetEnvironmentResponse(
        declared=[
            pb.DeclaredPackage(requirement="a>=1", state=pb.INSTALL_STATE_INSTALLED, name="a", version="1", origin=1),
            pb.DeclaredPackage(requirement="b", state=pb.INSTALL_STATE_FAILED, name="b"),
            pb.DeclaredPackage(requirement="c", state=99),
        ],
        installation=pb.Installation(state=pb.INSTALL_STATE_FAILED, reason="NotFound", message="why", log="pip's"),
    )
    found = convert.environment(message)
    assert found.installation == Installation("failed", "NotFound", "why", "pip's")
    assert found.missing == ("b",)
    assert [(each.state, each.origin) for each in found.declared] == [
        ("installed", "image"),
        ("failed", ""),
        ("unknown", ""),
    ]
    assert convert.environment(pb.GetEnvironmentResponse()).installation is None


def test_an_executors_values_are_not_trusted():
    flood = pb.GetEnvironmentResponse(
        packages=[pb.Package(name="a", version="1", origin=99)] * 10_000,
        languages=[pb.LanguageVersion(language=str(n)) for n in range(1000)],
        declared=[pb.DeclaredPackage(requirement="a")] * 1000,
        installation=pb.Installation(log="x" * 100_000, message="x" * 100_000),
    )
    found = convert.environment(flood)
    assert (len(found.packages), len(found.languages)) == (5000, 64)
    assert found.packages[0].origin == "unknown"
    assert len(found.declared) == 64
    assert (len(found.installation.log), len(found.installation.message)) == (16_384, 4096)

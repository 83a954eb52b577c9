"""The stores that snapshots are tested on: memory, a folder, moto, and versitygw, which is a real S3 server."""

import secrets
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from cluster.harness import binaries
from cluster.harness import s3 as storage
from cluster.harness.layout import cache
from cluster.harness.progress import timed
from moto import mock_aws
from sandfleet_operator.snapshots.backends import Objects
from sandfleet_operator.snapshots.backends.directory import DirectoryObjects
from sandfleet_operator.snapshots.backends.s3 import S3Objects, connect
from support.s3_faults import FaultyProxy
from support.snapshots import MemoryObjects


@pytest.fixture(scope="session")
def versitygw(tmp_path_factory: pytest.TempPathFactory) -> Iterator[storage.S3]:
    if (found := shutil.which("versitygw")) is not None:
        program = Path(found)
    elif shutil.which("go") is None and not list((cache() / "bin").glob("versitygw-*")):
        pytest.skip("needs versitygw, which is not on the path, or go to build it")
    else:
        program = binaries.provide(cache(), timed("snapshots"), ["versitygw"])["versitygw"]
    server, process = storage.start(program, tmp_path_factory.mktemp("versitygw"), "127.0.0.1")
    yield server
    storage.stop(process)


def on_server(server: storage.S3, endpoint: str = "", **how: object) -> S3Objects:
    """A new bucket there."""
    access = (server.root.access_key, server.root.secret_key)
    bucket = f"b{secrets.token_hex(6)}"
    client = connect(server.endpoint, server.region, access)
    client.create_bucket(Bucket=bucket)
    client.close()
    return S3Objects(connect(endpoint or server.endpoint, server.region, access, **how), bucket, "some/prefix", page=3)


@pytest.fixture(params=["memory", "directory", "moto", "versitygw"])
def objects(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Objects]:
    match request.param:
        case "memory":
            yield MemoryObjects()
        case "directory":
            yield DirectoryObjects(tmp_path / "store")
        case "moto":
            with mock_aws():
                client = connect(access=("test", "test"))
                client.create_bucket(Bucket="bucket")
                yield S3Objects(client, "bucket", "some/prefix", page=3)
        case "versitygw":
            one = on_server(request.getfixturevalue("versitygw"))
            yield one
            one.close()


@dataclass(frozen=True)
class Faulty:
    """A bucket behind a proxy that fails as it is told, and the same bucket without it."""

    proxy: FaultyProxy
    objects: S3Objects
    plain: S3Objects


@pytest.fixture
def faulty(versitygw: storage.S3) -> Iterator[Callable[..., Faulty]]:
    made: list[Faulty] = []

    def make(attempts: int = 2, seconds: float = 1.0) -> Faulty:
        proxy = FaultyProxy(versitygw.endpoint)
        through = on_server(versitygw, proxy.endpoint, attempts=attempts, seconds=seconds)
        access = (versitygw.root.access_key, versitygw.root.secret_key)
        plain = S3Objects(connect(versitygw.endpoint, versitygw.region, access), through.bucket, "some/prefix")
        made.append(Faulty(proxy, through, plain))
        return made[-1]

    yield make
    for one in made:
        one.objects.close()
        one.plain.close()
        one.proxy.close()

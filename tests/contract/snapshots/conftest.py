"""The stores that snapshots are tested on: memory, a folder, moto, and versitygw, which is a real S3 server."""

import secrets
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from cluster.harness import s3 as storage
from moto import mock_aws
from sandfleet_operator.snapshots.backends import Objects
from sandfleet_operator.snapshots.backends.directory import DirectoryObjects
from sandfleet_operator.snapshots.backends.s3 import S3Objects, connect
from support.s3_faults import FaultyProxy
from support.snapshots import MemoryObjects
from support.tools import tool


@pytest.fixture(scope="session")
def versitygw(tmp_path_factory: pytest.TempPathFactory) -> Iterator[storage.S3]:
    server, process = storage.start(tool("versitygw"), tmp_path_factory.mktemp("versitygw"), "127.0.0.1")
    yield server
    storage.stop(process)


@dataclass(frozen=True)
class Line:
    """A bucket on versitygw, reached directly and through a proxy that fails as it is told."""

    proxy: FaultyProxy
    bucket: str
    through: Any
    direct: Any


@pytest.fixture(scope="session")
def line(versitygw: storage.S3) -> Iterator[Line]:
    """One for all tests: to make a client takes long. Each test has its own prefix."""
    access, bucket = (versitygw.root.access_key, versitygw.root.secret_key), f"b{secrets.token_hex(6)}"
    proxy = FaultyProxy(versitygw.endpoint)
    through = connect(proxy.endpoint, versitygw.region, access, attempts=2, seconds=0.5)
    direct = connect(versitygw.endpoint, versitygw.region, access)
    direct.create_bucket(Bucket=bucket)
    yield Line(proxy, bucket, through, direct)
    for client in (through, direct):
        client.close()
    proxy.close()


@pytest.fixture(params=["memory", "directory", "moto", "versitygw"])
def objects(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Objects]:
    match request.param:
        case "memory":
            yield MemoryObjects(time.time)
        case "directory":
            yield DirectoryObjects(tmp_path / "store")
        case "moto":
            with mock_aws():
                client = connect(access=("test", "test"))
                client.create_bucket(Bucket="bucket")
                yield S3Objects(client, "bucket", "some/prefix", page=3)
        case "versitygw":
            line = request.getfixturevalue("line")
            yield S3Objects(line.direct, line.bucket, f"some/{secrets.token_hex(6)}", page=3)


@dataclass(frozen=True)
class Faulty:
    """A new prefix, behind a proxy that fails as it is told and without it."""

    proxy: FaultyProxy
    objects: S3Objects
    plain: S3Objects


@pytest.fixture
def faulty(line: Line) -> Iterator[Callable[[], Faulty]]:
    def make() -> Faulty:
        prefix = f"some/{secrets.token_hex(6)}"
        both = (S3Objects(client, line.bucket, prefix, page=50) for client in (line.through, line.direct))
        return Faulty(line.proxy, *both)

    yield make
    line.proxy.heal()

"""Objects on S3, by boto3, which blocks: for threads of a process that serves nothing else.

A pack is one PUT of at most 8 MiB and a little, so there are no multi-part uploads, and none that could be left over.
Every PUT carries the SHA-256 of its body: the server refuses another one. Conditional writes need a server with
`If-None-Match: *` (AWS S3 since 2024, versitygw, MinIO, Ceph Tentacle); `check` finds out.
"""

import base64
import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import boto3
from botocore.client import Config
from botocore.exceptions import BotoCoreError, ClientError, ParamValidationError

from sandfleet_operator.plan.snapshots.errors import Reason, SnapshotError
from sandfleet_operator.snapshots.backends import Found, Objects

T = TypeVar("T")

# Seconds. A body of 8 MiB at 0.2 MB/s still arrives.
_CONNECT, _READ = 5, 60
_ATTEMPTS = 5
_CONNECTIONS = 16
_DELETES_AT_ONCE = 8
_REASONS = {
    404: Reason.NOT_FOUND,
    401: Reason.DENIED,
    403: Reason.DENIED,
    # Of a conditional write: it is there; another one is being written.
    412: Reason.EXISTS,
    409: Reason.UNAVAILABLE,
    507: Reason.FULL,
}
_WORDS = {
    "QuotaExceeded": Reason.FULL,
    "XMinioStorageFull": Reason.FULL,
    "InvalidAccessKeyId": Reason.DENIED,
    "SignatureDoesNotMatch": Reason.DENIED,
    # The clock of this machine is minutes wrong.
    "RequestTimeTooSkewed": Reason.DENIED,
    "ExpiredToken": Reason.DENIED,
}


def connect(
    endpoint: str | None = None,
    region: str | None = None,
    access: tuple[str, str] | None = None,
    *,
    attempts: int = _ATTEMPTS,
    seconds: float = _READ,
) -> Any:
    """A client; keys come from the environment, files or the machine, as boto3 looks for them, or from `access`.

    `attempts`: of one request, with pauses between them. `seconds`: how long the server may be silent.
    """
    session = boto3.session.Session(
        *(access or (None, None)), region_name=region or os.environ.get("AWS_REGION") or "us-east-1"
    )
    config = Config(
        connect_timeout=_CONNECT,
        read_timeout=seconds,
        max_pool_connections=_CONNECTIONS,
        retries={"mode": "standard", "total_max_attempts": attempts},
        # Servers differ in trailing checksums; the digest of each PUT is in its head.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        # A bucket in the host's name needs DNS that servers of one's own seldom have.
        s3={"addressing_style": "path"} if endpoint else {},
    )
    return session.client("s3", endpoint_url=endpoint, config=config)


class S3Objects:
    def __init__(self, client: Any, bucket: str, prefix: str = "", page: int = 1000) -> None:
        """Keys begin with `prefix/`, where there is one. `page`: names in one answer of a listing."""
        self._client = client
        self.bucket = bucket
        self._page = page
        self._prefix = f"{prefix}/" if prefix else ""
        self._deleters = ThreadPoolExecutor(_DELETES_AT_ONCE, "snapshot-delete")

    def put(self, key: str, data: bytes, *, new: bool = False) -> None:
        digest = base64.b64encode(hashlib.sha256(data).digest()).decode("ascii")
        condition = {"IfNoneMatch": "*"} if new else {}
        self._call(
            f"write {key}",
            self._client.put_object,
            Key=self._prefix + key,
            Body=data,
            ChecksumSHA256=digest,
            **condition,
        )

    def get(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        if length == 0:
            return b""
        last = "" if length is None else start + length - 1
        ranged = {"Range": f"bytes={start}-{last}"} if start or length is not None else {}

        def read(**kwargs: Any) -> bytes:
            answer = self._client.get_object(**kwargs)
            with answer["Body"] as body:
                # A body that is cut off raises.
                return bytes(body.read())

        try:
            return self._call(f"read {key}", read, Key=self._prefix + key, **ranged)
        except _Beyond:
            return b""

    def delete(self, keys: Sequence[str]) -> None:
        """One request each: not every server deletes several at once, and its quota of requests is the same."""
        done = [self._deleters.submit(self._delete, key) for key in keys]
        for one in done:
            one.result()

    def list(self, prefix: str) -> Iterator[Found]:
        more: dict[str, str] = {}
        while True:
            page = self._call(
                f"list {prefix}", self._client.list_objects_v2, Prefix=self._prefix + prefix, MaxKeys=self._page, **more
            )
            for found in page.get("Contents", ()):
                key = found["Key"].removeprefix(self._prefix)
                yield Found(key, found["Size"], found["LastModified"].timestamp())
            if not page.get("IsTruncated"):
                return
            more = {"ContinuationToken": page["NextContinuationToken"]}

    def close(self) -> None:
        self._deleters.shutdown()
        self._client.close()

    def _delete(self, key: str) -> None:
        try:
            self._call(f"remove {key}", self._client.delete_object, Key=self._prefix + key)
        except SnapshotError as error:
            if error.reason is not Reason.NOT_FOUND:
                raise

    def _call(self, what: str, work: Callable[..., T], **kwargs: Any) -> T:
        try:
            return work(Bucket=self.bucket, **kwargs)
        except ClientError as error:
            raise _told(what, error) from error
        except ParamValidationError as error:
            raise SnapshotError(Reason.HOSTILE, f"cannot {what}: {error}") from error
        except (BotoCoreError, OSError) as error:
            raise SnapshotError(Reason.UNAVAILABLE, f"cannot {what}: {error}") from error


class _Beyond(Exception):
    """The range begins at the end of the object or behind it."""


def _told(what: str, error: ClientError) -> Exception:
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    word = error.response.get("Error", {}).get("Code", "")
    if status == 416 or word == "InvalidRange":
        return _Beyond()
    reason = _WORDS.get(word) or _REASONS.get(status, Reason.UNAVAILABLE)
    return SnapshotError(reason, f"cannot {what}: the server answers {status} {word}")


def check(objects: Objects, name: str) -> None:
    """Whether this server has what the store needs: it refuses a second conditional write. Raises SnapshotError."""
    key = f"checks/{name}"
    objects.put(key, b"", new=True)
    try:
        objects.put(key, b"", new=True)
    except SnapshotError as error:
        if error.reason is Reason.EXISTS:
            return
        raise
    finally:
        objects.delete([key])
    raise SnapshotError(Reason.DENIED, "cannot use this S3 server: it does not know conditional writes (If-None-Match)")

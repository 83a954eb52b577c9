"""S3 for tests: versitygw on a directory, with users, versions and conditional writes."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
from dataclasses import dataclass
from pathlib import Path

from support.ports import free_port

from .layout import ClusterError
from .processes import wait_until

REGION = "us-east-1"
# Of the server that `make cluster-bucket` starts.
BUCKET = "sandfleet-snapshots"
START_SECONDS = 20


@dataclass(frozen=True)
class Account:
    access_key: str
    secret_key: str


@dataclass(frozen=True)
class S3:
    """A running server; `endpoint` is reachable from pods of a cluster of ours as well as from the tests."""

    program: Path
    endpoint: str
    root: Account
    pid: int
    region: str = REGION

    @property
    def shell(self) -> str:
        """Variables for a shell: of the SDKs, and of a store of snapshots in BUCKET."""
        return "".join(
            f"export {name}='{value}'\n"
            for name, value in (
                ("AWS_ACCESS_KEY_ID", self.root.access_key),
                ("AWS_SECRET_ACCESS_KEY", self.root.secret_key),
                ("S3_URL", f"s3://{BUCKET}?endpoint={self.endpoint}&region={self.region}"),
                ("S3_PORT", self.endpoint.rpartition(":")[2]),
            )
        )

    def user(self, name: str, role: str = "user") -> Account:
        """Make an account: a `user` sees only what is his, a `userplus` may make buckets, an `admin` all."""
        account = Account(name, secrets.token_hex(16))
        arguments = ["--access", account.access_key, "--secret", account.secret_key, "--role", role]
        self._admin("create-user", *arguments)
        return account

    def revoke(self, account: Account) -> None:
        """From now on the account's requests are refused."""
        self._admin("delete-user", "--access", account.access_key)

    def give_bucket(self, bucket: str, owner: Account) -> None:
        self._admin("change-bucket-owner", "--bucket", bucket, "--owner", owner.access_key)

    def _admin(self, *arguments: str) -> None:
        access = ["--access", self.root.access_key, "--secret", self.root.secret_key]
        command = [
            str(self.program),
            "admin",
            *access,
            "--region",
            self.region,
            "--endpoint-url",
            self.endpoint,
            *arguments,
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise ClusterError(f"cannot {arguments[0]} on the S3 server: {(done.stdout + done.stderr).strip()}")


def start(program: Path, directory: Path, host: str) -> tuple[S3, subprocess.Popen[bytes]]:
    """Start a server in an empty directory; it ends with the process that started it at the latest.

    Raises:
        ClusterError: it does not answer; its log is in the directory.
    """
    for name in ("objects", "versions", "accounts"):
        (directory / name).mkdir(parents=True)
    port, root = free_port(host), Account("root" + secrets.token_hex(4), secrets.token_hex(16))
    keys = {"ROOT_ACCESS_KEY": root.access_key, "ROOT_SECRET_KEY": root.secret_key}
    general = ["--port", f"{host}:{port}", "--region", REGION, "--iam-dir", str(directory / "accounts"), "--quiet"]
    storage = ["posix", "--versioning-dir", str(directory / "versions"), str(directory / "objects")]
    command = ["setpriv", "--pdeathsig", "KILL", str(program), *general, "--health", "/health", *storage]
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(
            command, env={**os.environ, **keys}, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=directory
        )

    def answers() -> bool:
        with socket.socket() as probe:
            return probe.connect_ex((host, port)) == 0

    if not wait_until(lambda: answers() or process.poll() is not None, START_SECONDS) or process.poll() is not None:
        process.kill()
        process.wait()
        raise ClusterError(f"cannot start the S3 server: {(directory / 'log').read_text(errors='replace')[-1000:]}")
    return S3(program, f"http://{host}:{port}", root, process.pid), process


def stop(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()

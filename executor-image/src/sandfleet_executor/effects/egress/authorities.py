"""The file of authorities that a session trusts: those of the machine, and the session's own."""

import os
from pathlib import Path

from sandfleet_executor.core.egress.variables import BUNDLE

# Debian's and Red Hat's.
MACHINES = (Path("/etc/ssl/certs/ca-certificates.crt"), Path("/etc/pki/tls/certs/ca-bundle.crt"))
READABLE = 0o644


def write(tmp_fd: int, authority: bytes) -> None:
    """Writes the file into the session's /tmp, before any user code runs there. Raises OSError."""
    machines = next((path.read_bytes() for path in MACHINES if path.exists()), b"")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(BUNDLE, flags, READABLE, dir_fd=tmp_fd), "wb") as file:
        file.write(machines + b"\n" + authority)
        os.fchmod(file.fileno(), READABLE)

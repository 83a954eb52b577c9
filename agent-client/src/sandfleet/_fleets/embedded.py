"""The embedded fleet: a process that is started at the first use, one per client process, and ends with the client.

Its lifeline is a pipe whose write end only this process has: the kernel closes it when this process ends, in any way.
"""

from __future__ import annotations

import atexit
import logging
import os
import secrets
import select
import subprocess
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from time import monotonic
from typing import Self

from sandfleet.errors import InvalidArgument, UnavailableError
from sandfleet.values.sandbox import Isolation

_START_TIMEOUT = 120.0
_STOP_TIMEOUT = 10.0
_FLEETS_LIMIT = 256
_SAID_LIMIT = 65_536
_SLOW = (
    "the first start takes some seconds longer: Python compiles the installed packages. "
    "`uv pip install --compile-bytecode`, or `python -m compileall` on the environment, does it ahead"
)
_log = logging.getLogger("sandfleet")


@dataclass(frozen=True, slots=True)
class Options:
    """Options of an embedded fleet; None means the default."""

    pool_size: int | None = None
    max_sandboxes: int | None = None
    isolation: Isolation | None = None
    # Modules that are in the memory of each context from its start.
    preload: tuple[str, ...] | None = None
    # A file of SandboxQueues.
    queues: Path | None = None
    # Reviewers that are told apart, and how many of them have to approve each request.
    reviewers: tuple[str, ...] | None = None
    approvals: int | None = None
    # Rules that approve without a reviewer.
    review_rules: tuple[str, ...] | None = None

    def filled(self) -> Self:
        """Fill in what is missing from the environment. Raises InvalidArgument."""
        return replace(
            self,
            pool_size=_number("SANDFLEET_POOL_SIZE") if self.pool_size is None else self.pool_size,
            max_sandboxes=_number("SANDFLEET_MAX_SANDBOXES") if self.max_sandboxes is None else self.max_sandboxes,
            isolation=self.isolation or isolation_from_environment(),
            preload=_checked(_words("SANDFLEET_PRELOAD") if self.preload is None else self.preload),
            queues=_file("SANDFLEET_QUEUES") if self.queues is None else self.queues.absolute(),
            reviewers=_words("SANDFLEET_REVIEWERS") if self.reviewers is None else self.reviewers,
            approvals=_number("SANDFLEET_APPROVALS") if self.approvals is None else self.approvals,
            review_rules=_words("SANDFLEET_REVIEW_RULES") if self.review_rules is None else self.review_rules,
        )

    def arguments(self) -> list[str]:
        """Write them as arguments of the fleet's command line."""
        pairs = {
            "--pool-size": self.pool_size,
            "--max-sandboxes": self.max_sandboxes,
            "--isolation": self.isolation.value if self.isolation else None,
            "--preload": ",".join(self.preload) if self.preload else None,
            "--queues": self.queues,
            "--reviewers": ",".join(self.reviewers) if self.reviewers else None,
            "--approvals": self.approvals,
            "--review-rules": ",".join(self.review_rules) if self.review_rules else None,
        }
        return [word for name, value in pairs.items() if value is not None for word in (name, str(value))]

    def agree_with(self, wish: Options) -> bool:
        """Return whether a fleet with these options fulfils a wish."""
        pairs = (
            (wish.pool_size, self.pool_size),
            (wish.max_sandboxes, self.max_sandboxes),
            (wish.isolation, self.isolation),
            (wish.preload, self.preload),
            (wish.queues, self.queues),
            (wish.reviewers, self.reviewers),
            (wish.approvals, self.approvals),
            (wish.review_rules, self.review_rules),
        )
        return all(wished is None or wished == mine for wished, mine in pairs)


def isolation_from_environment() -> Isolation | None:
    """Read SANDFLEET_ISOLATION. Raises InvalidArgument."""
    text = os.environ.get("SANDFLEET_ISOLATION")
    try:
        return Isolation(text) if text else None
    except ValueError:
        raise InvalidArgument(f"cannot use SANDFLEET_ISOLATION={text!r}: it is namespace or none") from None


def default_isolation() -> Isolation:
    """Return the weakest isolation that a sandbox may have by default; gVisor is stronger. Raises InvalidArgument."""
    return isolation_from_environment() or Isolation.NAMESPACE


def isolation_of_claim(asked: Isolation | str | None) -> Isolation:
    """Return the weakest isolation that a claim takes: what it asks for, else the default. Raises InvalidArgument."""
    return Isolation(asked or default_isolation())


def _words(name: str) -> tuple[str, ...] | None:
    text = os.environ.get(name)
    return tuple(word.strip() for word in text.split(",") if word.strip()) if text else None


def _file(name: str) -> Path | None:
    text = os.environ.get(name)
    return Path(text).absolute() if text else None


def _checked(modules: tuple[str, ...] | None) -> tuple[str, ...] | None:
    for name in modules or ():
        if not all(part.isidentifier() for part in name.split(".")):
            raise InvalidArgument(f"cannot preload {name!r}: it is no name of a module", reason="InvalidArgument")
    return modules


def _number(name: str) -> int | None:
    text = os.environ.get(name)
    try:
        return int(text) if text else None
    except ValueError:
        raise InvalidArgument(f"cannot use {name}={text!r}: it has to be a number") from None


def state_base() -> Path:
    """Return the directory below which all fleets of this user on this machine live."""
    if state := os.environ.get("SANDFLEET_STATE"):
        return Path(state).absolute()
    if runtime := os.environ.get("XDG_RUNTIME_DIR"):
        return Path(runtime).absolute() / "sandfleet"
    if os.geteuid() == 0:
        return Path("/run/sandfleet")
    return Path.home() / ".local" / "state" / "sandfleet"


def other_fleets() -> list[str]:
    """Return the addresses of all fleets of this user that may be alive, this process's own left out."""
    found = [f"unix:{socket}" for socket in sorted(state_base().glob("f-*/fleet.sock"))[:_FLEETS_LIMIT]]
    own = running()
    return [address for address in found if address != own]


class Process:
    """A fleet process of this client."""

    def __init__(self, options: Options, state_dir: Path | None = None) -> None:
        """Start it and wait until it serves. Raises UnavailableError."""
        self.options = options
        self.state_dir = state_dir or state_base() / f"f-{secrets.token_hex(3)}"
        ready, ready_write = os.pipe()
        lifeline_read, self._lifeline = os.pipe()
        try:
            self._process = self._spawn(ready_write, lifeline_read)
        except BaseException:  # Also by Ctrl-C: no other code would close them.
            os.close(self._lifeline)
            os.close(ready)
            raise
        finally:
            os.close(ready_write)
            os.close(lifeline_read)
        try:
            said = _read_line(ready, _START_TIMEOUT)
        finally:
            os.close(ready)
        if said != "ready":
            self.stop()
            raise _not_started(said.removeprefix("failed: ") or "its process ended without a word")

    def _spawn(self, ready: int, lifeline: int) -> subprocess.Popen[bytes]:
        if find_spec("sandfleet_operator") is None or find_spec("sandfleet_executor") is None:
            raise _not_started("install sandfleet[local]", reason="LocalNotInstalled")
        if not compiled("IPython"):
            _log.warning(_SLOW)
        pipes = ["--ready-fd", str(ready), "--lifeline-fd", str(lifeline)]
        command = [
            sys.executable,
            "-P",
            "-m",
            "sandfleet_operator.fleet",
            "serve-local",
            "--state-dir",
            str(self.state_dir),
        ]
        return subprocess.Popen(
            [*command, *pipes, *self.options.arguments()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=(ready, lifeline),
            # Ctrl-C at the terminal is for us; it ends with the lifeline.
            start_new_session=True,
        )

    @property
    def address(self) -> str:
        """Where it serves."""
        return f"unix:{self.state_dir}/fleet.sock"

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return self._process.poll() is None

    def wait(self) -> int:
        """Wait for its end; return its exit code."""
        return self._process.wait()

    def let_go(self) -> None:
        """Close our end of the lifeline, so that the fleet ends, or, in a forked child, is not held by it."""
        if self._lifeline >= 0:
            os.close(self._lifeline)
            self._lifeline = -1

    def stop(self) -> None:
        """End it with all its sandboxes."""
        self.let_go()
        try:
            self._process.wait(_STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def compiled(package: str) -> bool:
    """Return whether a package has byte code, without which its first import takes seconds."""
    spec = find_spec(package)
    return spec is None or spec.cached is None or Path(spec.cached).exists()


def _not_started(why: str, *, reason: str = "FleetNotStarted") -> UnavailableError:
    return UnavailableError(f"cannot start an embedded fleet: {why}", reason=reason)


def _read_line(pipe: int, patience: float) -> str:
    deadline, said = monotonic() + patience, b""
    while b"\n" not in said and len(said) < _SAID_LIMIT:
        if not select.select([pipe], [], [], max(0.0, deadline - monotonic()))[0]:
            return f"failed: it is not ready after {patience:g} s"
        if not (piece := os.read(pipe, 4096)):
            break
        said += piece
    return said.decode("utf-8", "replace").strip()


_lock = threading.Lock()
_own: Process | None = None
# Sessions of this process's fleet that sleep on its volume, and when they end by themselves.
asleep: dict[str, datetime | None] = {}


def start(options: Options) -> str:
    """Start this process's fleet, or find it running; return its address. Raises UnavailableError, InvalidArgument."""
    global _own  # noqa: PLW0603  one a process is the point
    with _lock:
        if _own is not None and _own.alive:
            if not _own.options.agree_with(options):
                raise InvalidArgument("cannot start an embedded fleet: this process has one with other options already")
            return _own.address
        _own = Process(options)
        return _own.address


def start_or_join(isolation: Isolation) -> str:
    """Return the address of this process's fleet.

    It is started if needed, without namespaces only for isolation `none`.
    """
    if (address := running()) is not None:
        return address
    wish = Isolation.NONE if isolation is Isolation.NONE else None
    return start(Options(isolation=wish).filled())


def running() -> str | None:
    """Return the address of this process's fleet, None where there is none."""
    return _own.address if _own is not None and _own.alive else None


def stop() -> None:
    """End this process's fleet with all its sandboxes; done by itself at the end of the process."""
    global _own  # noqa: PLW0603  one a process is the point
    with _lock:
        if _own is not None:
            _own.stop()
            _own = None


def _end() -> None:
    """Name the suspended sessions that end with this process, and end its fleet."""
    now = datetime.now(UTC)
    ending = [name for name, until in asleep.items() if until is None or until > now]
    if ending and running() is not None:
        several = f" (and {len(ending) - 1} more)" if len(ending) > 1 else ""
        print(
            f"sandfleet: the suspended session {ending[0]}{several} ends with this process, whose fleet keeps it; "
            'suspend(to="snapshot") keeps a session longer, and so does a fleet of `sandfleet dev`',
            file=sys.stderr,
        )
    stop()


def _forget_in_child() -> None:
    """Do not hold the parent's fleet: it is the parent's, and a lock may be held by a thread that is not here."""
    global _own, _lock  # noqa: PLW0603  one a process is the point
    _lock = threading.Lock()
    asleep.clear()
    if _own is not None:
        with suppress(OSError):
            _own.let_go()
        _own = None


atexit.register(_end)
os.register_at_fork(after_in_child=_forget_in_child)
